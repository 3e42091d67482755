"""The files of phrases that a search names: what to avoid, and a glossary."""

from pathlib import Path

from transformer_mt.config.sections.decoding import SearchConfig
from transformer_mt.config.switching_off import named_by
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.demands import AvoidedPhrases
from transformer_mt.decoding.glossary import Glossary


class PhraseLists:
    """Each file is read once. `config` is what a run has set, so that a message can say who names a file."""

    def __init__(self, config: SearchConfig, src: Tokenizer, tgt: Tokenizer) -> None:
        self._config, self._src, self._tgt = config, src, tgt
        self._avoided: dict[str, AvoidedPhrases] = {}
        self._glossaries: dict[str, Glossary] = {}

    def avoided(self, path: str) -> AvoidedPhrases:
        """The phrases of a file of `avoid`."""
        if path not in self._avoided:
            origin = named_by(self._config, "avoid", path)
            self._avoided[path] = AvoidedPhrases.read(Path(path), self._tgt, origin)
        return self._avoided[path]

    def glossary(self, path: str) -> Glossary:
        """The terms of a file of `glossary`."""
        if path not in self._glossaries:
            origin = named_by(self._config, "glossary", path)
            self._glossaries[path] = Glossary.read(Path(path), self._src.lowercase, origin)
        return self._glossaries[path]

    def read(self, options: SearchConfig) -> None:
        """Read what the options name, so that what cannot be read is told before anything is done. UserError."""
        if options.avoid is not None:
            self.avoided(options.avoid)
        if options.glossary is not None:
            self.glossary(options.glossary)
