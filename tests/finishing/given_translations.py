"""A translator that knows some translations by heart."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.word_splitting import join_words
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated, Translation


class Given:
    """Each translation is given as tokens of whole words, with a blank between them. Others have none."""

    def __init__(self, translations: dict[str, str], config: RunConfig) -> None:
        self.translations = translations
        self.config = config
        self.precision = "fp32"
        self.asked: list[SearchOptions | None] = []

    def keep_processes(self) -> AbstractContextManager[None]:
        return nullcontext()

    def translate_lines(
        self, texts: Iterable[str | SourceLine], options: SearchOptions | None = None
    ) -> list[Translated]:
        self.asked.append(options)
        lines = [text.text if isinstance(text, SourceLine) else text for text in texts]
        found = [[self.translations[line].split()] if line in self.translations else [] for line in lines]
        return [
            Translated(line, [Translation(join_words(tokens), -1.0, -2.0, tokens) for tokens in some])
            for line, some in zip(lines, found, strict=True)
        ]
