"""Log-probabilities of translations that are given, by one pass over each pair: teacher forcing.

They are those that the search finds for the same tokens, because the same packed model computes them.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transformer_mt.config.sections.decoding import SCORING, SearchConfig
from transformer_mt.config.special_ids import PAD_ID, UNK_ID
from transformer_mt.data.batches.batching import Batch, make_batch
from transformer_mt.data.longest_line import LONGEST_LINE, is_beyond
from transformer_mt.data.tokenizers import Tokenizer, normalize
from transformer_mt.decoding.coverage import coverages
from transformer_mt.decoding.lines.target_language import TargetLanguages
from transformer_mt.decoding.search.options import LengthNorm, SearchOptions, search_options
from transformer_mt.decoding.search.top_tokens import refuse_nan
from transformer_mt.errors import UserError
from transformer_mt.machine.workers import Workers
from transformer_mt.model.interface import TranslationModel

# Rows of logits in memory at once. A GPU wants larger products.
ROWS_AT_ONCE, ROWS_AT_ONCE_ON_A_GPU = 128, 4096
KILLED = "Take a smaller --batch-size, or fewer processes with OMP_NUM_THREADS=1."  # the way out where one is killed
IdPair = tuple[list[int], list[int]]  # source (of a picture its patches) and target, both without special tokens


@dataclass(frozen=True)
class WordScore:
    """A stretch without white space, as the tokenizer reads it, and the sum of the log-probabilities of its tokens."""

    word: str
    log_prob: float


@dataclass(frozen=True)
class Scored:
    """A pair of texts and what the model says of the second.

    `log_probs` are those of `tokens`, and the last of them that of EOS; `log_prob` is their sum, and `score` that
    divided by the length norm. `words` have the log-probabilities of the tokens without EOS. Where `problem` says why
    there is no score, the numbers are nan and the lists empty. `unknown_words` are those of both texts that the model
    reads as UNK.
    """

    source: str
    translation: str
    score: float = math.nan
    log_prob: float = math.nan
    tokens: tuple[str, ...] = ()
    log_probs: tuple[float, ...] = ()
    words: tuple[WordScore, ...] = ()
    unknown_words: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_blank(self) -> bool:
        """Whether both texts are blank, which needs no remark."""
        return not self.source.strip() and not self.translation.strip()


def token_log_probs(model: TranslationModel, pairs: list[IdPair]) -> list[list[float]]:
    """The log-probability of each token of the targets, EOS last; natural logarithms. The pairs are one batch.

    Raises UserError where the model's output is not a number.
    """
    src, tgt = zip(*pairs, strict=True)
    return batch_log_probs(model, make_batch(src, tgt))


@torch.inference_mode()
def batch_log_probs(model: TranslationModel, batch: Batch) -> list[list[float]]:
    """The log-probability of each target token of a batch, by row. Raises as `token_log_probs` does."""
    assert not model.training, "dropout would change the log-probabilities"
    device = next(model.parameters()).device
    lengths = (batch.tgt_out != PAD_ID).sum(dim=1).tolist()
    batch = batch.to(device)
    hidden = model.real_hidden_states(batch.src, batch.tgt_in, batch.real)
    targets = batch.tgt_out.flatten().index_select(0, batch.real)
    rows = ROWS_AT_ONCE if device.type == "cpu" else ROWS_AT_ONCE_ON_A_GPU
    parts = zip(hidden.split(rows), targets.split(rows), strict=True)
    found = torch.cat([_log_probs_of(model.output(some), of) for some, of in parts])
    refuse_nan(found)
    return [part.tolist() for part in found.cpu().split(lengths)]


def scoring_options(config: SearchConfig, **changes: Any) -> SearchOptions:
    """`search_options` for a score. UserError for a key that a search obeys and no score, too."""
    given = [key for key, value in changes.items() if value is not None]
    if unread := [key for key in given if key in SearchOptions.model_fields and key not in SCORING]:
        raise UserError(
            f"{', '.join(unread)}: a search obeys this, and scoring does not search. It obeys {', '.join(SCORING)}."
        )
    return search_options(config, **changes)


def _log_probs_of(logits: Tensor, targets: Tensor) -> Tensor:
    """logits (rows, vocab_size), targets (rows,) -> their log-probabilities (rows,)."""
    logits = logits.float()
    return logits.gather(1, targets[:, None]).squeeze(1) - logits.logsumexp(dim=1)


class Scorer:
    """Scores given translations by a model that is packed for decoding, its two tokenizers and its languages."""

    def __init__(self, model: TranslationModel, src: Tokenizer, tgt: Tokenizer, languages: TargetLanguages) -> None:
        self.model = model
        self.languages = languages
        self.src_tokenizer = src
        self.tgt_tokenizer = tgt
        self._workers = Workers("the scoring", KILLED)

    def keep_processes(self) -> AbstractContextManager[None]:
        """Inside, the processes of a CPU stay for the next call, as in `Translator.keep_processes`."""
        return self._workers.keep()

    def score(self, pairs: Iterable[tuple[str, str]], options: SearchOptions) -> list[Scored]:
        """What the model says of each pair of source and translation, in order. Pairs of similar length are scored
        together, `options.batch_size` at a time.
        """
        pairs = list(pairs)
        tagged = self.languages.all_parted(["" if is_beyond(src) else src for src, _ in pairs], options.to)
        ids = [self._ids_of([one.whole for one in tagged], 0), self._ids_of([pair[1] for pair in pairs], 1)]
        problems = [
            one.problem or self._problem(pair, *rows) for one, pair, *rows in zip(tagged, pairs, *ids, strict=True)
        ]
        to_do = {i: (ids[0][i], ids[1][i]) for i, problem in enumerate(problems) if not problem}
        found = dict(self.score_ids(to_do, options.batch_size))
        penalties = self._penalties(to_do, options) if options.coverage_penalty else {}
        return [
            Scored(*pair, problem=problems[i])
            if problems[i]
            else self._scored(pair, to_do[i], found[i], options.norm, penalties.get(i, 0.0))
            for i, pair in enumerate(pairs)
        ]

    def score_ids(self, pairs: dict[int, IdPair], batch_size: int) -> Iterator[tuple[int, list[float]]]:
        """The `token_log_probs` of each numbered pair of ids, in the order in which they are done: long ones first."""
        order = sorted(pairs, key=lambda number: max(map(len, pairs[number])), reverse=True)
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        rows = [[pairs[number] for number in batch] for batch in batches]
        device = next(self.model.parameters()).device
        with closing(self._workers.map(partial(token_log_probs, self.model), rows, device)) as results:
            for batch, result in zip(batches, results, strict=True):
                yield from zip(batch, result, strict=True)

    def _penalties(self, pairs: dict[int, IdPair], options: SearchOptions) -> dict[int, float]:
        """What the coverage penalty adds to the score of each pair."""
        numbers = sorted(pairs, key=lambda number: max(map(len, pairs[number])))
        found: dict[int, float] = {}
        for start in range(0, len(numbers), options.batch_size):
            some = numbers[start : start + options.batch_size]
            found |= zip(some, coverages(self.model, [pairs[number] for number in some]), strict=True)
        return {number: options.coverage_penalty * coverage for number, coverage in found.items()}

    def _ids_of(self, texts: list[str], side: int) -> list[list[int]]:
        return self._tokenizer(side).encode_batch(["" if is_beyond(text) else text for text in texts])

    def _tokenizer(self, side: int) -> Tokenizer:
        return (self.src_tokenizer, self.tgt_tokenizer)[side]

    def _problem(self, pair: tuple[str, str], src: list[int], tgt: list[int]) -> str:
        """Why a pair has no score, as the middle of a sentence; empty where it has one."""
        positions = self.model.config.max_len
        for name, text, ids in zip(("source", "translation"), pair, (src, tgt), strict=True):
            if is_beyond(text):
                return f"the {name} is longer than {LONGEST_LINE:,} bytes"
            if len(ids) == 0:
                return f"the {name} is blank"
            if len(ids) + 1 > positions:
                return f"the {name} is longer than the model's {positions} positions"
        return ""

    def _scored(
        self, pair: tuple[str, str], ids: IdPair, log_probs: list[float], norm: LengthNorm, penalty: float
    ) -> Scored:
        log_prob = math.fsum(log_probs)
        unknown = [
            word for side in (0, 1) if UNK_ID in ids[side] for word in self._tokenizer(side).unknown_words(pair[side])
        ]
        return Scored(
            *pair,
            score=log_prob / norm(len(log_probs)) + penalty,
            log_prob=log_prob,
            tokens=tuple(self.tgt_tokenizer.tokens(ids[1])),
            log_probs=tuple(log_probs),
            words=tuple(self._words_of(pair[1], log_probs)),
            unknown_words=tuple(unknown),
        )

    def _words_of(self, text: str, log_probs: list[float]) -> Iterator[WordScore]:
        """No token crosses white space, so the tokens of a text are those of its words, one after the other."""
        words = normalize(text, self.tgt_tokenizer.lowercase).split()
        start = 0
        for word, ids in zip(words, self.tgt_tokenizer.encode_batch(words), strict=True):
            yield WordScore(word, math.fsum(log_probs[start : start + len(ids)]))
            start += len(ids)
