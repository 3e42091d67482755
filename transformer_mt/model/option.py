"""An entry in a table of choices: what the config's name for it makes, what engines call it, what a trace says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Option(Generic[_Made]):
    """`make` is what the model is built with. `ctranslate2` is what CTranslate2's specification is told of it, and
    `huggingface` what the config.json of `transformers` is told; None where that engine does not compute it, and an
    export refuses it. `description` is what a trace says of it; empty where a trace does not speak of this option.
    """

    make: _Made
    ctranslate2: Mapping[str, Any] | None
    description: str = ""
    huggingface: Mapping[str, Any] | None = None
