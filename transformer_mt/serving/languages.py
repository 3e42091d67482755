"""Which of our languages a client means by a code, and which way it is written."""

from collections.abc import Iterable

from transformer_mt.config.language_names import base, normal

_RIGHT_TO_LEFT = frozenset(["ar", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"])


def direction_of(code: str) -> str:
    """`rtl` or `ltr`, as HTML has it."""
    return "rtl" if base(code) in _RIGHT_TO_LEFT else "ltr"


def find(code: str, ours: Iterable[str]) -> str | None:
    """The one of our languages that a client means by a code: the same code, else the same language. So `EN-US` is our
    `en`, and `pt` our `pt-br` where there is no other Portuguese.
    """
    ours = list(dict.fromkeys(ours))
    for meant in (normal(code), base(code)):
        for one in ours:
            if normal(one) == meant:
                return one
    alike = [one for one in ours if base(one) == base(code)]
    return alike[0] if len(alike) == 1 else None
