"""Scores of each direction of a split whose pairs are of several: `en-de`, `de-en`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.data.batches.batching import Rows, plan_in_order
from transformer_mt.data.bleu_tokenizers import bleu_tokenizer, tokenizer_over
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.preparation import Split
from transformer_mt.evaluation.metrics import Scores, score_texts
from transformer_mt.evaluation.nll import NllResult, mean_nll

Sums = list[tuple[float, int]]  # the nll and the target tokens of each batch


@dataclass(frozen=True)
class Directions:
    """The directions of a corpus, as source and target language, and the number of each row's."""

    languages: list[tuple[str, str]]
    of_row: NDArray[np.int64]

    @classmethod
    def of(cls, corpus: Corpus, data: DataConfig) -> Self:
        """Those of its sources, in their order."""
        of_source = [data.languages_of(source.config) for source in corpus.sources]
        languages = list(dict.fromkeys(of_source))
        numbers = np.array([languages.index(one) for one in of_source])
        return cls(languages, numbers[corpus.dataset.data.column("source").to_numpy()])

    @property
    def are_several(self) -> bool:
        """Whether there is anything to tell apart."""
        return len(self.languages) > 1

    @property
    def names(self) -> list[str]:
        """What each is called: `en-de`; text in one language, which is not translated, by that: `de`."""
        return [src if src == tgt else f"{src}-{tgt}" for src, tgt in self.languages]

    def bleu_tokenizer(self, data: DataConfig) -> str:
        """The tokenizer of BLEU over all of them: that of their language, where they are of one."""
        return tokenizer_over(self.languages, data.tgt_lang)

    def plan(self, split: Split, max_tokens: int) -> tuple[list[Rows], list[int]]:
        """Batches of a split of the corpus for its nll, and the direction of each; of none are pairs of several."""
        of_pair = self.of_row[split.rows]
        batches, of_batch = [], []
        for number in range(len(self.languages)):
            places = np.flatnonzero(of_pair == number)
            found = plan_in_order(split.src_lengths[places], split.tgt_lengths[places], max_tokens)
            batches += [places[batch] for batch in found]
            of_batch += [number] * len(found)
        return batches, of_batch

    def nlls(self, sums: Sums, of_batch: list[int]) -> dict[str, NllResult]:
        """The nll of each direction that has a pair, by name, from those of the batches of `plan`."""
        found = {}
        for number, name in enumerate(self.names):
            if own := [one for one, direction in zip(sums, of_batch, strict=True) if direction == number]:
                found[name] = mean_nll(own)
        return found

    def scores(
        self,
        of_text: Sequence[int],
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        lowercase: bool,
        tokenizer: str | None = None,
    ) -> dict[str, tuple[Scores, int]]:
        """The scores of each direction that has a text, by name, and the number of its texts. `of_text` are the
        directions of the texts, and `references` one list or more. BLEU's tokenizer is that of the language, unless one
        is given.
        """
        found = {}
        for number, name in enumerate(self.names):
            places = [place for place, direction in enumerate(of_text) if direction == number]
            if places:
                own, first, *others = ([texts[i] for i in places] for texts in (hypotheses, *references))
                chosen = tokenizer or bleu_tokenizer(self.languages[number][1])
                found[name] = score_texts(own, first, chosen, lowercase, others), len(places)
        return found
