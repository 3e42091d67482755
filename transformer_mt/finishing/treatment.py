"""What is done to the translations of another translator. Treatments chain, because each is a translator of lines."""

from abc import abstractmethod
from collections.abc import Iterable

from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.lines.wrapping import WrappingTranslator
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translation import Translated


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
