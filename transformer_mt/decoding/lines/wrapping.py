"""What stands around a translator of lines and is one itself, so that several can stand around each other."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from transformer_mt.config.schema import RunConfig
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.lines.line_stream import LineTranslator
from transformer_mt.decoding.search.options import SearchOptions, refuse_other_precision, search_options
from transformer_mt.decoding.translation import Translated


class WrappingTranslator(ABC):
    """Translates lines by `translator`, with work of its own before or after it."""

    def __init__(self, translator: LineTranslator) -> None:
        self.translator = translator

    @property
    def config(self) -> RunConfig:
        """That of the run."""
        return self.translator.config

    @property
    def precision(self) -> str:
        """That in which the model was loaded."""
        return self.translator.precision

    def keep_processes(self) -> AbstractContextManager[None]:
        """See `Translator.keep_processes`."""
        return self.translator.keep_processes()

    def translate(self, texts: Iterable[str | SourceLine], **changes: Any) -> list[str]:
        """As `Translator.translate`."""
        refuse_other_precision(self.precision, changes)
        options = search_options(self.config.decoding, **{"scored": False, **changes})
        return [translated.text for translated in self.translate_lines(texts, options)]

    @abstractmethod
    def translate_lines(
        self, texts: Iterable[str | SourceLine], options: SearchOptions | None = None
    ) -> list[Translated]:
        """As `Translator.translate_lines`."""


class Treatment(WrappingTranslator):
    """Translates lines by `translator`, and treats what comes of it."""

    def translate_lines(
        self, texts: Iterable[str | SourceLine], options: SearchOptions | None = None
    ) -> list[Translated]:
        """As `Translator.translate_lines`, treated."""
        options = self.changed(options or search_options(self.config.decoding))
        return self.treated(self.translator.translate_lines(texts, options), options)

    def changed(self, options: SearchOptions) -> SearchOptions:
        """The options under which the treatment wants lines to be translated."""
        return options

    @abstractmethod
    def treated(self, lines: list[Translated], options: SearchOptions) -> list[Translated]:
        """The lines after the treatment, in order."""
