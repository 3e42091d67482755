"""The language of a text by py3langid, which the extra `check` installs; it needs no network."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from tempfile import gettempdir
from typing import Any

from transformer_mt.config.language_names import base
from transformer_mt.errors import UserError

LEAST_CHARACTERS = 20  # of shorter texts nobody can be sure
MOST_TEXTS = 1_000  # of a side show which its language is
SURE = 1e-3  # a text is in another language where its own is less likely than this
LEAST_SHARE = 0.5  # of a side's long texts are in the side's language
ABSENT = "language: only the other side's words were looked for; pip install 'transformer-mt[check]' finds any language"


@cache
def _identifier() -> Any:
    """The identifier; None where the library is not installed. UserError where it has no room to unpack its model."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        return None
    try:
        return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    except OSError as error:
        raise UserError(
            f"py3langid cannot unpack its model in {gettempdir()}: {error.strerror or error}. Free some space there, "
            "or set TMPDIR to another folder."
        ) from None


def is_there() -> bool:
    """Whether the library is installed."""
    return _identifier() is not None


def language_of_side(texts: Sequence[str]) -> str | None:
    """The language of most of the texts that are long enough; None where no language has so many."""
    identifier = _identifier()
    long = [text for text in texts if len(text) >= LEAST_CHARACTERS]
    every = max(1, len(long) // MOST_TEXTS)
    found = Counter(identifier.classify(text)[0] for text in long[::every])
    if not found:
        return None
    (language, number), *_ = found.most_common(1)
    return language if number >= LEAST_SHARE * found.total() else None


def swap_of_sides(named: Sequence[str], found: Sequence[str | None]) -> str | None:
    """What to say where each side is in the language that the other one is named for; None where it is not. `named`:
    codes such as en, en_GB or .en, of the source and of the target.
    """
    src, tgt = (base(name.strip(".")) for name in named)
    if src == tgt or tuple(found) != (tgt, src):
        return None
    return f"the source is named {src} and in {tgt}, the target named {tgt} and in {src}; swap the files"


def other_language(text: str, own: str) -> str | None:
    """The language of a text, where it is surely not its side's own one."""
    if len(text) < LEAST_CHARACTERS:
        return None
    ranked = _identifier().rank(text[:1000])
    language, _ = ranked[0]
    return language if language != own and dict(ranked).get(own, 1.0) < SURE else None
