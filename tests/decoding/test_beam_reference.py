"""Beam search against the same rules written out with lists, over many random settings."""

import math
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.beam import beam_search
from transformer_mt.decoding.search import LengthNorm, greedy_search
from transformer_mt.errors import UserError

Language = Callable[[tuple[int, ...]], Tensor]


def random_language(seed: int, vocab_size: int, sharpness: float) -> Language:
    """Logits of what follows a prefix, drawn once and remembered."""
    known: dict[tuple[int, ...], Tensor] = {}

    def logits(prefix: tuple[int, ...]) -> Tensor:
        if prefix not in known:
            place = sum((token + 1) * 31**i for i, token in enumerate(prefix))
            generator = torch.Generator().manual_seed((seed * 1_000_003 + place) % 2**63)
            known[prefix] = torch.randn(vocab_size, generator=generator) * sharpness
        return known[prefix]

    return logits


class Languages:
    """One language a sentence, as a step function."""

    def __init__(self, languages: list[Language]) -> None:
        self.rows: list[tuple[Language, tuple[int, ...]]] = [(language, ()) for language in languages]

    def step(self, tokens: Tensor) -> Tensor:
        self.rows = [(language, (*prefix, t)) for (language, prefix), t in zip(self.rows, tokens.tolist(), strict=True)]
        return torch.stack([language(prefix) for language, prefix in self.rows])

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        self.rows = [self.rows[i] for i in index.tolist()]


def by_lists(
    language: Language, max_length: int, size: int, n_best: int, norm: LengthNorm, allow_unk: bool
) -> list[tuple[float, list[int]]]:
    """The rules of `beam.py` without its bound on what can still win, which must not change an answer."""
    live, finished = [((BOS_ID,), 0.0)], []
    forbidden = {PAD_ID, BOS_ID} if allow_unk else {PAD_ID, BOS_ID, UNK_ID}
    for length in range(1, max_length + 1):
        candidates = []
        for prefix, total in live:
            for token, log_prob in enumerate(language(prefix).log_softmax(-1).tolist()):
                if token not in forbidden and (token == EOS_ID or length < max_length):
                    candidates.append((total + log_prob, prefix, token))
        candidates.sort(key=lambda candidate: -candidate[0])
        for total, prefix, token in candidates[:size]:
            if token == EOS_ID:
                finished.append((total / norm(length), list(prefix[1:])))
        live = [((*prefix, token), total) for total, prefix, token in candidates if token != EOS_ID][:size]
        best = sorted((score for score, _ in finished), reverse=True)
        if len(best) >= size and all(total / norm(length) <= best[n_best - 1] for _, total in live):
            break
    return sorted(finished, key=lambda hypothesis: -hypothesis[0])[:n_best]


@pytest.mark.parametrize("seed", range(120))
def test_equals_the_rules_written_out(seed: int) -> None:
    draw = random.Random(seed)
    vocab_size, size = draw.choice([4, 5, 6, 7, 9, 12]), draw.choice([1, 2, 3, 4, 6, 8])
    n_best, allow_unk = draw.randint(1, size), draw.random() < 0.5
    languages = [
        random_language(seed * 10 + i, vocab_size, draw.choice([0.3, 1, 3])) for i in range(draw.randint(1, 4))
    ]
    max_lengths = [draw.randint(1, 6) for _ in languages]
    norm = LengthNorm(draw.choice(["gnmt", "average"]), draw.choice([0, 0.6, 1, 2, 5.0]))
    found = beam_search(Languages(languages), max_lengths, size, n_best, norm, allow_unk, torch.device("cpu"))
    for language, max_length, hypotheses in zip(languages, max_lengths, found, strict=True):
        expected = by_lists(language, max_length, size, n_best, norm, allow_unk)
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in expected]
        for hypothesis, (score, _) in zip(hypotheses, expected, strict=True):
            assert math.isclose(hypothesis.score, score, abs_tol=1e-4)


def test_output_that_is_not_a_number_is_a_user_error() -> None:

    def nan(_prefix: tuple[int, ...]) -> Tensor:
        return torch.full((8,), torch.nan)

    norm = LengthNorm()
    with pytest.raises(UserError, match="not a number"):
        beam_search(Languages([nan]), [5], 3, 1, norm, False, torch.device("cpu"))
    with pytest.raises(UserError, match="not a number"):
        greedy_search(Languages([nan]), [5], norm, False, torch.device("cpu"))
