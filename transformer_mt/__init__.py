"""Train a Transformer translation model from your own sentence pairs, and use it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformer_mt.api import evaluate, score, train
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.errors import UserError

__version__ = "0.1.0"
__all__ = ["Translator", "UserError", "__version__", "evaluate", "score", "train"]


def __getattr__(name: str) -> object:
    # Imported on first use: torch takes a second that `tmt --help` must not wait for.
    if name == "Translator":
        from transformer_mt.decoding.translator import Translator

        return Translator
    if name in ("evaluate", "score", "train"):
        from transformer_mt import api

        return getattr(api, name)
    if name == "UserError":
        from transformer_mt.errors import UserError

        return UserError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
