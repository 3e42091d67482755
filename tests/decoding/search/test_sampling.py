"""Samples: as often as the model's own probabilities say, and a function of nothing but their seed and place."""

import math
from collections import Counter
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from languages import Case, Language, Languages, allowed_tokens, random_case, random_language

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.search.greedy import Hypothesis, greedy_search
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.search.random_numbers import key_of
from transformer_mt.decoding.search.rules import Demand
from transformer_mt.decoding.search.sampling import draw, likeliest, sampling
from transformer_mt.errors import UserError

CPU = torch.device("cpu")
KINDS: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"sampling_topk": 0},
    {"sampling_topk": 3},
    {"sampling_topp": 0.7},
    {"temperature": 0.6},
    {"temperature": 2.5, "sampling_topk": 4},
    {"temperature": 0.5, "sampling_topp": 0.9},
    {"temperature": 1.5, "sampling_topk": 5, "sampling_topp": 0.8},
]


def options_of(n_best: int = 1, **changes: Any) -> SearchOptions:
    return search_options(DecodingConfig(), n_best=n_best, **changes)


def probabilities(log_probs: dict[int, float], options: SearchOptions) -> dict[int, float]:
    """What a token is drawn with: tempered, then the K likeliest, then the nucleus of what is left, in words."""
    weights = {token: math.exp(value / (options.temperature or 1.0)) for token, value in log_probs.items()}
    ranked = sorted(weights, key=lambda token: -weights[token])[: options.sampling_topk or None]
    before = accumulate((weights[token] for token in ranked), initial=0.0)
    enough = (options.sampling_topp or 1.0) * sum(weights[token] for token in ranked)
    nucleus = [token for token, so_far in zip(ranked, before, strict=False) if so_far < enough]
    whole = sum(weights[token] for token in nucleus)
    return {token: weights[token] / whole for token in nucleus}


def all_sentences(
    language: Language, limit: int, options: SearchOptions, demand: Demand, within: list[int]
) -> dict[tuple[int, ...], float]:
    """Everything that may be said, with its probability."""
    said, begun = {}, {(): 1.0}
    while begun:
        longer = {}
        for prefix, probability in begun.items():
            log_probs = language((BOS_ID, *prefix)).log_softmax(-1).tolist()
            allowed = allowed_tokens(prefix, len(log_probs), limit, options, demand, set(within))
            for token, share in probabilities({token: log_probs[token] for token in allowed}, options).items():
                target = said if token == EOS_ID else longer
                target[prefix if token == EOS_ID else (*prefix, token)] = probability * share
        begun = longer
    return said


def samples_of(case: Case, places: list[tuple[int, ...]] | None = None) -> list[list[Hypothesis]]:
    return sampling(Languages(case.languages), case.limits, case.options, CPU, case.rules(), places)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tokens_are_drawn_as_often_as_their_probabilities_say(kind: dict) -> None:
    """Within 3 standard deviations, of 12 tokens in 30,000 draws."""
    options, num = options_of(**kind), 30_000
    logits = random_language(11, 12, 1.5)(())
    expected = probabilities(dict(enumerate(logits.log_softmax(-1).tolist())), options)
    keys = torch.tensor([key_of(i) for i in range(num)])
    found = Counter(draw(logits.expand(num, -1).clone(), keys, options).tolist())
    assert found.keys() <= expected.keys()
    for token, probability in expected.items():
        sigma = math.sqrt(num * probability * (1 - probability))
        assert abs(found[token] - num * probability) <= 3 * sigma, (token, probability)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("with_rules", [False, True])
def test_whole_sentences_come_as_often_as_their_probabilities_say(kind: dict, with_rules: bool) -> None:
    """Two sentences of one batch, all of whose translations are enumerated: chi-square, far from impossible."""
    num = 4000
    case = random_case(5, with_rules, beam_size=1, n_best=num, **kind)
    case.limits = [min(limit, 4) for limit in case.limits]
    case.demands = [Demand(demand.prefix[:2], demand.ends_in_word, demand.avoided) for demand in case.demands]
    for language, limit, demand, samples in zip(
        case.languages, case.limits, case.demands, samples_of(case), strict=True
    ):
        expected = all_sentences(language, limit, case.options, demand, case.within)
        assert sum(expected.values()) == pytest.approx(1)
        found = Counter(tuple(h.tokens) for h in samples)
        assert len(samples) == num
        assert found.keys() <= expected.keys()
        common = {said: p for said, p in expected.items() if num * p >= 5}
        rest = 1 - sum(common.values()), num - sum(found[said] for said in common)
        cells = [(p, found[said]) for said, p in common.items()] + [rest] * (num * rest[0] >= 5)
        chi_square = sum((count - num * p) ** 2 / (num * p) for p, count in cells)
        freedom = max(1, len(cells) - 1)
        assert chi_square <= freedom + 3 * math.sqrt(2 * freedom), (kind, len(cells))


@pytest.mark.parametrize("seed", range(60))
def test_every_sample_keeps_the_rules_and_is_scored_as_the_model_would(seed: int) -> None:
    kind = KINDS[seed % len(KINDS)]
    case = random_case(seed, with_rules=True, beam_size=1, n_best=5, **kind)
    norm = case.options.norm
    for language, limit, demand, samples in zip(
        case.languages, case.limits, case.demands, samples_of(case), strict=True
    ):
        assert len(samples) == 5
        for sample in samples:
            total, tokens = 0.0, [*sample.tokens, EOS_ID]
            for length, token in enumerate(tokens):
                prefix = tuple(tokens[:length])
                log_probs = language((BOS_ID, *prefix)).log_softmax(-1).tolist()
                assert token in allowed_tokens(prefix, len(log_probs), limit, case.options, demand, set(case.within))
                total += log_probs[token]
            assert sample.log_prob == pytest.approx(total, abs=1e-4)
            assert sample.score == pytest.approx(total / norm(len(tokens)), abs=1e-4)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", [{"sampling_topk": 1}, {"temperature": 1e-4}, {"sampling_topp": 1e-9}], ids=str)
def test_where_one_token_is_left_it_is_the_greedy_one(seed: int, kind: dict) -> None:
    case = random_case(seed, with_rules=True, beam_size=1)
    greedy = greedy_search(Languages(case.languages), case.limits, case.options, CPU, case.rules())
    case.options = search_options(case.options, n_best=2, seed=seed, **kind)
    for (expected,), samples in zip(greedy, samples_of(case), strict=True):
        for sample in samples:
            assert sample.tokens == expected.tokens
            assert sample.log_prob == pytest.approx(expected.log_prob, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS[::3], ids=str)
def test_a_sample_depends_on_its_seed_place_and_number_alone(kind: dict) -> None:
    cases = [random_case(seed, with_rules=seed % 2 == 0, beam_size=1, n_best=6, **kind) for seed in range(12)]
    languages = [language for case in cases for language in case.languages]
    limits = [limit + 3 for case in cases for limit in case.limits]
    size = min(len(language((BOS_ID,))) for language in languages)

    def cut(language: Language) -> Language:
        return lambda prefix: language(prefix)[:size]

    case = Case([cut(language) for language in languages], limits, options_of(6, **kind), [Demand()] * len(limits), [])
    places = [(i // 2, i % 2, 7) for i in range(len(limits))]
    together = samples_of(case, places)
    assert len({len(h.tokens) for samples in together for h in samples}) > 3

    order = torch.randperm(len(limits), generator=torch.Generator().manual_seed(2)).tolist()
    few = search_options(case.options, n_best=2)
    for start in range(0, len(order), 5):
        some = order[start : start + 5]
        part = Case([case.languages[i] for i in some], [limits[i] for i in some], few, [Demand()] * len(some), [])
        found = samples_of(part, [places[i] for i in some])
        assert found == [together[i][:2] for i in some], "neither batch mates nor later samples matter"


def test_samples_of_other_seeds_places_and_numbers_are_others() -> None:
    language = random_language(3, 40, 0.3)
    options = options_of(3, temperature=1.0, seed=1)
    case = Case([language] * 2, [8, 8], options, [Demand()] * 2, [])
    first, second = samples_of(case)
    (again, _), (moved, _) = samples_of(case), samples_of(case, [(4,), (0, 0)])
    case.options = search_options(options, seed=2)
    (other, _) = samples_of(case)
    assert again == first
    texts = [tuple(h.tokens) for samples in (first, second, moved, other) for h in samples]
    assert len({*texts}) == len(texts) == 12
    assert all(a[:1] != b[:1] or len(a) < 2 or a[:2] != b[:2] for a, b in pairwise(texts))


def nuclei(
    logits: torch.Tensor, num_kept: int, mass: float, temperature: float = 1.0
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The logits and tokens of each row, in order; each row once."""
    found = {
        row: (values, tokens)
        for part in likeliest(logits, num_kept, mass, temperature)
        for row, values, tokens in zip(part[0].tolist(), *part[1:], strict=True)
    }
    return [found.pop(row) for row in range(len(logits))]


def test_a_nucleus_is_the_fewest_tokens_that_have_its_mass() -> None:
    shares = torch.tensor([[0.05, 0.4, 0.15, 0.3, 0.1], [0.2] * 5, [0.001, 0.99, 0.003, 0.003, 0.003]])
    sizes_of = {0.39: [1, 2, 1], 0.41: [2, 3, 1], 0.71: [3, 4, 1], 0.992: [5, 5, 2], 1e-12: [1, 1, 1]}
    for mass, sizes in sizes_of.items():
        assert [int((logits > -torch.inf).sum()) for logits, _ in nuclei(shares.log(), 5, mass)] == sizes, mass
    logits, tokens = nuclei(shares.log(), 3, 0.8)[0]  # of 0.4, 0.3 and 0.15 the first two are 0.82
    assert tokens[logits > -torch.inf].tolist() == [1, 3]


@pytest.mark.parametrize(("num_kept", "mass"), [(5000, 0.9), (5000, 0.999), (700, 0.95), (40, 0.9), (5000, 1e-6)])
def test_a_wide_nucleus_is_found_as_a_sort_finds_it(num_kept: int, mass: float) -> None:
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(1)) * torch.tensor([[0.1, 0.5, 1, 2, 4, 8]]).T
    logits[2, 100:] = -torch.inf
    for temperature in (0.5, 1.0, 3.0):
        found = nuclei(logits, num_kept, mass, temperature)
        for row, (values, places) in zip(logits, found, strict=True):
            log_probs = dict(enumerate(row.log_softmax(-1).tolist()))
            expected = probabilities(
                log_probs, options_of(temperature=temperature, sampling_topk=num_kept, sampling_topp=mass)
            )
            kept = values > -torch.inf
            assert len(expected) == pytest.approx(int(kept.sum()), abs=1)  # sums of thousands are rounded
            assert len({*places[kept].tolist()} - expected.keys()) <= 1
            assert row[places].equal(values) or not kept.all()


def test_a_row_with_a_narrow_nucleus_is_not_looked_at_as_widely_as_one_with_a_wide_one() -> None:
    """Or one unsure sentence of a batch makes all of them slow."""
    scales = torch.tensor([[8.0, 0.01, 1.0, 8.0]]).T
    logits = torch.randn(4, 5000, generator=torch.Generator().manual_seed(1)) * scales
    widths = {row: tokens.size(1) for rows, _, tokens in likeliest(logits, 5000, 0.9, 1.0) for row in rows.tolist()}
    assert widths == {0: 16, 3: 16, 2: 5000, 1: 5000}
    alone = [nuclei(logits[row : row + 1], 5000, 0.9)[0] for row in range(4)]
    for (values, tokens), (of_alone, by_alone) in zip(nuclei(logits, 5000, 0.9), alone, strict=True):
        assert values.equal(of_alone)
        assert tokens.equal(by_alone)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_gpu_draws_the_same_tokens(kind: dict) -> None:
    logits = torch.randn(2000, 5000, generator=torch.Generator().manual_seed(1)) * 3
    keys = torch.tensor([key_of(5, i) for i in range(len(logits))])
    expected = draw(logits.clone(), keys, options_of(**kind))
    found = draw(logits.cuda(), keys.cuda(), options_of(**kind)).cpu()
    assert (found != expected).sum() <= 1, "two tokens that are as good as equal"


def test_pad_bos_and_unk_are_never_drawn() -> None:
    def special(_prefix: tuple[int, ...]) -> torch.Tensor:
        logits = torch.zeros(8)
        logits[[PAD_ID, BOS_ID]] = 9.0
        logits[UNK_ID] = 1.0
        return logits

    for allow_unk in (False, True):
        case = Case([special], [6], options_of(300, temperature=1.0, allow_unk=allow_unk), [Demand()], [])
        drawn = {token for sample in samples_of(case)[0] for token in sample.tokens}
        assert drawn == {4, 5, 6, 7} | ({UNK_ID} if allow_unk else set())


def test_without_scores_the_samples_are_the_same() -> None:
    case = random_case(3, with_rules=True, beam_size=1, n_best=4, sampling_topk=3)
    expected = samples_of(case)
    case.options = case.options.model_copy(update={"scored": False})
    for plain, scored in zip(samples_of(case), expected, strict=True):
        assert [h.tokens for h in plain] == [h.tokens for h in scored]
        assert all(math.isnan(h.score) and math.isnan(h.log_prob) for h in plain)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_output_that_is_not_a_number_is_a_user_error(kind: dict) -> None:
    for place in (EOS_ID, 7):
        logits = torch.zeros(8)
        logits[place] = torch.nan
        case = Case([lambda _, logits=logits: logits], [5], options_of(2, **kind), [Demand()], [])
        with pytest.raises(UserError, match="not a number"):
            samples_of(case)
