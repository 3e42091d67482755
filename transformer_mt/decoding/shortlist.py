"""A lexical shortlist: a source's words name the target tokens that its translation may hold, so that the output layer
has few rows to compute (Schwenk et al. 2007; Devlin et al. 2014, section 5; Junczys-Dowmunt et al. 2018, section 3).
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.aligning.words import Vocabulary
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.data.word_splitting import bare_words, has_word, is_of_spaced_word
from transformer_mt.decoding.ensemble import Ensemble, EnsembleDecoder
from transformer_mt.decoding.fast_layers.packed_layers import NarrowableLinear
from transformer_mt.decoding.search.constrained_beam import Found
from transformer_mt.decoding.search.greedy import StepFunction
from transformer_mt.decoding.search.rules import Demand, WordEdges
from transformer_mt.decoding.search.top_tokens import NUM_SPECIAL
from transformer_mt.errors import UserError
from transformer_mt.model.interface import TranslationModel

NUM_TRANSLATIONS, NUM_COMMON = 50, 100
LOOKED_AT = 1000  # of the commonest words, for whether a language parts its words
MAX_WORDS = 200_000  # whose tokens are remembered: some 100 MB
Ids = NDArray[np.int64]


class Shortlist:
    """The target tokens that a translation of each source may hold.

    They are the special ones, and those that write one of these words, in lower case or with a capital: the
    `num_translations` likeliest translations of each source word by the aligner, the source word itself, and the
    `num_common` commonest words. A source has the same tokens in every batch.
    """

    def __init__(
        self,
        aligner: Aligner,
        src: Tokenizer,
        tgt: Tokenizer,
        num_translations: int = NUM_TRANSLATIONS,
        num_common: int = NUM_COMMON,
    ) -> None:
        """Raises UserError for a language that does not part its words, of which the aligner knows none."""
        for side, vocabulary in (("source", aligner.src_vocabulary), ("target", aligner.tgt_vocabulary)):
            if not _parts_words(vocabulary):
                raise UserError(
                    f"A shortlist goes by words, and the {side} language does not part them. Translate without one."
                )
        self._aligner = aligner
        self._src, self._tgt = src, tgt
        self._num_translations = num_translations
        self._by_word: dict[str, Ids] = {}
        common = self._tokens_that_write(aligner.tgt_vocabulary.words[:num_common])
        self._common = np.union1d(np.arange(NUM_SPECIAL), common)

    def tokens_of(self, row: list[int]) -> Ids:
        """The tokens for a source of these ids, in ascending order; the special ones come first."""
        return np.flatnonzero(~self._outside([row])[0])

    def _outside(self, rows: Sequence[list[int]]) -> NDArray[np.bool_]:
        """(sources, vocab_size), false for the tokens of each."""
        outside = np.ones((len(rows), self._tgt.vocab_size), bool)
        outside[:, self._common] = False
        for of_one, row in zip(outside, rows, strict=True):
            words = {text for chunk in self._src.decode(row).split() for text in bare_words(chunk)}
            of_one[np.concatenate([self._tokens_for(word) for word in words] or [self._common])] = False
        return outside

    def narrow(
        self, rows: Sequence[list[int]], demands: Sequence[Demand], device: torch.device, keep_numbers: bool = False
    ) -> "Narrow":
        """The tokens for a batch of sources, and those of their prefixes and constraints. With `keep_numbers` all
        tokens of the vocabulary are there, though not for every sentence: for samples, which are drawn by the tokens'
        numbers, and for constraints, whose writings are in them. That saves no time.
        """
        outside = self._outside(rows)
        for of_one, demand in zip(outside, demands, strict=True):
            of_one[list(demand.prefix)] = False
            of_one[[token for phrase in demand.constraints for way in phrase for token in way.tokens]] = False
        ids = np.arange(outside.shape[1]) if keep_numbers else np.flatnonzero(~outside.all(axis=0))
        bias = np.where(outside[:, ids], np.float32(-np.inf), np.float32(0))
        return Narrow(torch.from_numpy(ids).to(device), torch.from_numpy(bias).to(device))

    def _tokens_for(self, word: str) -> Ids:
        """The tokens for one source word."""
        found = self._by_word.get(word)
        if found is None:
            if len(self._by_word) > MAX_WORDS:
                self._by_word.clear()
            likely = [translation for translation, _ in self._aligner.translations(word, self._num_translations)]
            if word.isupper() and len(word) > 1:
                likely += [translation.upper() for translation in likely]
            found = self._by_word[word] = self._tokens_that_write([word, *likely])
        return found

    def _tokens_that_write(self, words: list[str]) -> Ids:
        return np.unique(np.array([i for ids in self._tgt.ids_that_write(words) for i in ids], np.int64))


def _parts_words(vocabulary: Vocabulary) -> bool:
    """Whether most of the commonest words are of a script that puts space between words."""
    words = [word for word in vocabulary.words[:LOOKED_AT] if has_word(word)]
    return 2 * sum(is_of_spaced_word(word[0]) for word in words) >= len(words)


@dataclass(frozen=True)
class Narrow:
    """A batch over fewer tokens, numbered anew in the same order.

    `ids` (number,) are their ids in the vocabulary; `bias` (sentences, number) is -inf for those that are not for a
    sentence but for another one of the batch, and else 0.
    """

    ids: Tensor
    bias: Tensor

    def edges(self, edges: WordEdges) -> WordEdges:
        """The same in the new numbers, of those entries that there are."""
        if not edges.continuing and not edges.ending_within:
            return edges
        numbers = self._numbers()
        continuing, ending = (
            [numbers[i] for i in ids if i in numbers] for ids in (edges.continuing, edges.ending_within)
        )
        return WordEdges(continuing, ending)

    def renumbered(self, demands: Sequence[Demand]) -> Sequence[Demand]:
        """The demands in the new numbers. A sequence of tokens that cannot come any more needs no avoiding."""
        if not any(demand.prefix or demand.avoided for demand in demands):
            return demands
        numbers = self._numbers()
        return [
            replace(
                demand,
                prefix=tuple(numbers[i] for i in demand.prefix),
                avoided=tuple(
                    tuple(numbers[i] for i in sequence)
                    for sequence in demand.avoided
                    if all(i in numbers for i in sequence)
                ),
            )
            for demand in demands
        ]

    def begin(
        self, begin: Callable[[TranslationModel, Tensor], StepFunction], model: TranslationModel, src: Tensor
    ) -> StepFunction:
        """`begin` with a packed model, or with each of an ensemble's, over these tokens alone. The probabilities of a
        model, and so those of an ensemble, are shared out among the tokens of the sentence.
        """
        if isinstance(model, Ensemble):
            return EnsembleDecoder([self.begin(begin, member, src) for member in model.members], model.combine)
        output = model._modules["output"]
        assert isinstance(output, NarrowableLinear), "a packed layer"
        twin = copy.copy(model)
        twin._modules = {**model._modules, "output": output.narrowed(self.ids)}
        return NarrowDecoder(begin(twin, src), self)

    def widened(self, found: list[Found]) -> list[Found]:
        """Hypotheses with the ids of the vocabulary again."""
        ids = self.ids.tolist()
        return [
            replace(one, hypotheses=[replace(h, tokens=[ids[token] for token in h.tokens]) for h in one.hypotheses])
            for one in found
        ]

    def _numbers(self) -> dict[int, int]:
        return {token: number for number, token in enumerate(self.ids.tolist())}


class NarrowDecoder:
    """A step function over the tokens of a `Narrow`, of which each sentence may take its own."""

    def __init__(self, decoder: StepFunction, narrow: Narrow) -> None:
        """decoder: it takes ids of the vocabulary, and gives logits of `narrow.ids` alone."""
        self._decoder = decoder
        self._ids = narrow.ids
        self._bias = narrow.bias

    def step(self, tokens: Tensor) -> Tensor:
        """As `StepFunction.step`; -inf for a token that is not for the sentence."""
        logits = self._decoder.step(self._ids[tokens])
        # Adding takes an eighth of the time of `masked_fill_` with a mask that is the same for several rows.
        logits.unflatten(0, (len(self._bias), -1)).add_(self._bias[:, None])
        return logits

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """As `StepFunction.reorder`."""
        self._decoder.reorder(index, sentences)
        if sentences is not None:
            self._bias = self._bias[sentences]
