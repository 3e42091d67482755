"""Train a Transformer translation model from your own sentence pairs, and use it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformer_mt.decoding.translator import Translator

__version__ = "0.1.0"
__all__ = ["Translator", "__version__"]


def __getattr__(name: str) -> object:
    # Imported on first use: torch takes a second that `tmt --help` must not wait for.
    if name == "Translator":
        from transformer_mt.decoding.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
