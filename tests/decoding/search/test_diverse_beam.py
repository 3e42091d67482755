"""Diverse beam search against algorithm 1 of Vijayakumar et al. (2016) written out with lists, and its laws."""

import random
from collections import Counter
from typing import Any

import pytest
import torch
from languages import Case, Language, Languages, allowed_tokens, drop_as_on_a_gpu, random_case

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.search.batch_search import choose_search
from transformer_mt.decoding.search.beam import beam_search
from transformer_mt.decoding.search.diverse_beam import diverse_beam_search
from transformer_mt.decoding.search.greedy import Hypothesis
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.search.rules import Demand

CPU = torch.device("cpu")
Live = list[tuple[float, tuple[int, ...]]]


def diverse_case(seed: int, with_rules: bool, **changes: Any) -> Case:
    draw = random.Random(seed)
    groups, size = draw.choice([2, 2, 3, 4]), draw.choice([1, 2, 3])
    strength = draw.choice([0.1, 0.5, 1.0, 3.0])
    given = {"diverse_beam_groups": groups, "diverse_beam_strength": strength, "beam_size": groups * size}
    given |= {"n_best": draw.randint(1, groups * size)}
    return random_case(seed, with_rules, **{**given, **changes})


def searched(case: Case) -> list[list[Hypothesis]]:
    return diverse_beam_search(Languages(case.languages), case.limits, case.options, CPU, case.rules())


class Group:
    """A group of one sentence: its live hypotheses, what it has finished, and its answer once it is done."""

    def __init__(self, options: SearchOptions) -> None:
        self.size = options.beam_size // options.diverse_beam_groups
        self.wanted = min(options.n_best, self.size)
        self.options = options
        self.live: Live = [(0.0, ())]
        self.finished: Live = []
        self.answer: Live | None = None

    def step(self, language: Language, allowed: Any, taken: Counter[int], length: int) -> Counter[int]:
        """Choose the best by log-probability and diversity; returns how often each token was chosen."""
        candidates = []
        for total, prefix in self.live:
            log_probs = language((BOS_ID, *prefix)).log_softmax(-1).tolist()
            candidates += [(total + log_probs[token], prefix, token) for token in allowed(prefix, len(log_probs))]
        candidates.sort(key=lambda c: c[0] - self.options.diverse_beam_strength * taken[c[2]], reverse=True)
        best = candidates[: self.size]
        ended = [(total / self.options.norm(length), prefix) for total, prefix, token in best if token == EOS_ID]
        self.finished += ended
        self.live = [(total, (*prefix, token)) for total, prefix, token in candidates if token != EOS_ID][: self.size]
        return Counter({EOS_ID: len(ended)}) + Counter(prefix[-1] for _, prefix in self.live)

    def rest(self, length: int) -> None:
        """The stopping rule of a plain beam, without its bound on what can still win."""
        best = sorted(self.finished, key=lambda h: -h[0])
        enough = max(self.wanted, self.size * self.options.patience)
        scores = [total / self.options.norm(length) for total, _ in self.live]
        can_win = len(best) < enough or any(score > best[self.wanted - 1][0] for score in scores)
        if self.answer is None and not (self.live and can_win):
            self.answer = best[: self.wanted]


def by_lists(language: Language, limit: int, options: SearchOptions, demand: Demand, within: list[int]) -> Live:
    def allowed(prefix: tuple[int, ...], vocab_size: int) -> set[int]:
        return allowed_tokens(prefix, vocab_size, limit, options, demand, set(within))

    groups = [Group(options) for _ in range(options.diverse_beam_groups)]
    for length in range(1, limit + 1):
        taken: Counter[int] = Counter()
        for group in groups:
            taken += group.step(language, allowed, taken, length)
        for group in groups:
            group.rest(length)
    merged: dict[tuple[int, ...], float] = {}
    for group in groups:
        assert group.answer is not None
        merged |= {prefix: score for score, prefix in group.answer if prefix not in merged}
    return sorted(((score, prefix) for prefix, score in merged.items()), key=lambda h: -h[0])[: options.n_best]


@pytest.mark.parametrize("with_rules", [False, True])
@pytest.mark.parametrize("seed", range(150))
def test_equals_the_algorithm_written_out(seed: int, with_rules: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        drop_as_on_a_gpu(monkeypatch)
    case = diverse_case(seed, with_rules)
    for language, limit, demand, found in zip(case.languages, case.limits, case.demands, searched(case), strict=True):
        expected = by_lists(language, limit, case.options, demand, case.within)
        assert [tuple(h.tokens) for h in found] == [prefix for _, prefix in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-4)
        for hypothesis in found:
            tokens, total = [*hypothesis.tokens, EOS_ID], 0.0
            for i, token in enumerate(tokens):
                total += language((BOS_ID, *tokens[:i])).log_softmax(-1)[token].item()
            assert hypothesis.log_prob == pytest.approx(total, abs=1e-4), "the model's own, without the diversity"


@pytest.mark.parametrize("seed", range(40))
def test_without_strength_every_group_is_the_same_plain_beam(seed: int) -> None:
    case = diverse_case(seed, with_rules=True, diverse_beam_strength=0.0)
    plain = beam_search(Languages(case.languages), case.limits, case.options.of_group, CPU, case.rules())
    for found, expected in zip(searched(case), plain, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in expected]
        assert [h.log_prob for h in found] == pytest.approx([h.log_prob for h in expected], abs=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_is_its_sentences_one_by_one(seed: int) -> None:
    case = diverse_case(seed, with_rules=True)
    alone = [
        searched(Case([language], [limit], case.options, [demand], case.within))[0]
        for language, limit, demand in zip(case.languages, case.limits, case.demands, strict=True)
    ]
    for ours, theirs in zip(searched(case), alone, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-5)


def test_groups_of_one_that_cost_much_never_take_a_word_of_each_other() -> None:
    """As long as there are words: 4 groups, 8 words and EOS."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        rows = [torch.randn(12, generator=generator) for _ in range(5)]
        for row in rows[:3]:
            row[EOS_ID] = -30.0
        options = search_options(
            DecodingConfig(), beam_size=4, n_best=4, diverse_beam_groups=4, diverse_beam_strength=50.0
        )
        case = Case([lambda prefix, rows=rows: rows[len(prefix) - 1]], [5], options, [Demand()], [])
        (found,) = searched(case)
        assert len(found) == 4
        for place in range(3):
            assert len({h.tokens[place] for h in found}) == 4
        plain = search_options(DecodingConfig(), beam_size=4, n_best=4)
        (alike,) = beam_search(Languages(case.languages), [5], plain, CPU)
        assert len({h.tokens[0] for h in alike}) < 4


def test_one_group_is_the_plain_beam_itself() -> None:
    assert choose_search(search_options(DecodingConfig(), diverse_beam_groups=1), []) is beam_search
    assert choose_search(search_options(DecodingConfig(), diverse_beam_groups=2), []) is diverse_beam_search


def test_a_small_diversity_by_hand() -> None:
    """Two groups of one. A has 0.5 and B 0.3: with the strength log(5/3) + a little, the second group takes B; less
    would not do.
    """

    def language(prefix: tuple[int, ...]) -> torch.Tensor:
        shares = {4: 0.5, 5: 0.3, 6: 0.2} if len(prefix) == 1 else {EOS_ID: 1.0}
        return torch.tensor([shares.get(token, 0.0) for token in range(7)]).log()

    strength = torch.tensor(5 / 3).log().item()
    for extra, expected in ((1e-3, [[4], [5]]), (-1e-3, [[4]])):
        options = search_options(
            DecodingConfig(), beam_size=2, n_best=2, diverse_beam_groups=2, diverse_beam_strength=strength + extra
        )
        (found,) = searched(Case([language], [4], options, [Demand()], []))
        assert [h.tokens for h in found] == expected, "what both groups found stands once"
