"""The files of phrases that a search names: what to avoid, and a glossary."""

from collections.abc import Callable
from pathlib import Path

from transformer_mt.config.sections.decoding import SearchConfig
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.demands import AvoidedPhrases
from transformer_mt.decoding.glossary import Glossary
from transformer_mt.decoding.translation import Translation


class PhraseLists:
    """Each file is read once. `origin` says of a key and a file what names it, for messages."""

    def __init__(self, src: Tokenizer, tgt: Tokenizer, origin: Callable[[str, str], str]) -> None:
        self._src, self._tgt, self._origin = src, tgt, origin
        self._avoided: dict[str, AvoidedPhrases] = {}
        self._glossaries: dict[str, Glossary] = {}

    def avoided(self, path: str) -> AvoidedPhrases:
        """The phrases of a file of `avoid`."""
        if path not in self._avoided:
            self._avoided[path] = AvoidedPhrases.read(Path(path), self._tgt, self._origin("avoid", path))
        return self._avoided[path]

    def without_avoided(
        self, hypotheses: list[Translation], path: str | None, where: str
    ) -> tuple[list[Translation], str]:
        """The hypotheses whose texts hold no phrase of a file of `avoid`, if there is one. And why there is none, where
        each of them has come to hold a phrase; `where` says at which place.
        """
        if path is None:
            return hypotheses, ""
        found = [h for h in hypotheses if not self.avoided(path).is_in_text(h.text)]
        all_hold_one = len(hypotheses) > 0 and not found
        return found, f"every translation holds a phrase of {path} {where}" * all_hold_one

    def glossary(self, path: str) -> Glossary:
        """The terms of a file of `glossary`."""
        if path not in self._glossaries:
            named_by = self._origin("glossary", path)
            self._glossaries[path] = Glossary.read(Path(path), self._src.lowercase, named_by)
        return self._glossaries[path]

    def read(self, options: SearchConfig) -> None:
        """Read what the options name, so that what cannot be read is told before anything is done. UserError."""
        if options.avoid is not None:
            self.avoided(options.avoid)
        if options.glossary is not None:
            self.glossary(options.glossary)
