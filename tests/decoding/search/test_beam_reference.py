"""Beam search against the same rules written out with lists, over many random settings."""

import math
from collections.abc import Sequence

import pytest
import torch
from languages import Language, Languages, allowed_tokens, drop_as_on_a_gpu, random_case
from torch import Tensor
from translators import rules

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.search.batch_search import choose_search
from transformer_mt.decoding.search.beam import beam_search
from transformer_mt.decoding.search.greedy import greedy_search
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.search.rules import Demand, make_rules
from transformer_mt.errors import UserError


def by_lists(
    language: Language, limit: int, options: SearchOptions, demand: Demand, within: Sequence[int]
) -> list[tuple[float, list[int]]]:
    """The rules of `beam.py` without its bound on what can still win, which must not change an answer."""
    live, finished = [((BOS_ID,), 0.0)], []
    size, norm = options.beam_size, options.norm
    for length in range(1, limit + 1):
        candidates = []
        for prefix, total in live:
            log_probs = language(prefix).log_softmax(-1).tolist()
            allowed = allowed_tokens(prefix[1:], len(log_probs), limit, options, demand, set(within))
            candidates += [(total + log_probs[token], prefix, token) for token in allowed]
        candidates.sort(key=lambda candidate: -candidate[0])
        for total, prefix, token in candidates[:size]:
            if token == EOS_ID:
                finished.append((total / norm(length), list(prefix[1:])))
        live = [((*prefix, token), total) for total, prefix, token in candidates if token != EOS_ID][:size]
        best = sorted((score for score, _ in finished), reverse=True)
        enough = max(options.n_best, size * options.patience)
        if len(best) >= enough and all(total / norm(length) <= best[options.n_best - 1] for _, total in live):
            break
    return sorted(finished, key=lambda hypothesis: -hypothesis[0])[: options.n_best]


def greedily(
    language: Language, limit: int, options: SearchOptions, demand: Demand, within: Sequence[int]
) -> list[int]:
    prefix = ()
    while not prefix or prefix[-1] != EOS_ID:
        logits = language((BOS_ID, *prefix)).tolist()
        allowed = allowed_tokens(prefix, len(logits), limit, options, demand, set(within))
        prefix = (*prefix, max(allowed, key=lambda token: logits[token]))
    return list(prefix[:-1])


@pytest.mark.parametrize("with_rules", [False, True])
@pytest.mark.parametrize("seed", range(120))
def test_equals_the_rules_written_out(seed: int, with_rules: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        drop_as_on_a_gpu(monkeypatch)
    case = random_case(seed, with_rules)
    found = beam_search(Languages(case.languages), case.limits, case.options, torch.device("cpu"), case.rules())
    for language, limit, demand, hypotheses in zip(case.languages, case.limits, case.demands, found, strict=True):
        expected = by_lists(language, limit, case.options, demand, case.within)
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in expected]
        for hypothesis, (score, _) in zip(hypotheses, expected, strict=True):
            assert math.isclose(hypothesis.score, score, abs_tol=1e-4)


@pytest.mark.parametrize("on_a_gpu", [False, True])
@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_greedy_search_keeps_the_same_rules(
    seed: int, scored: bool, on_a_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where rows that have ended stay for a while."""
    if on_a_gpu:
        drop_as_on_a_gpu(monkeypatch)
    case = random_case(seed, with_rules=True, beam_size=1)
    options = case.options.model_copy(update={"scored": scored})
    found = greedy_search(Languages(case.languages), case.limits, options, torch.device("cpu"), case.rules())
    for language, limit, demand, (hypothesis,) in zip(case.languages, case.limits, case.demands, found, strict=True):
        assert hypothesis.tokens == greedily(language, limit, options, demand, case.within)


def test_a_search_that_asks_for_nothing_has_no_rules() -> None:
    assert make_rules(search_options(DecodingConfig()), [5], [Demand()], [4], torch.device("cpu")) is None


@pytest.mark.parametrize("bad", [[torch.nan] * 8, [0.0] * 7 + [torch.nan], [0.0] * 7 + [torch.inf], [-torch.inf] * 8])
@pytest.mark.parametrize("beam_size", [1, 3, 6])
def test_output_that_is_not_a_number_is_a_user_error(beam_size: int, bad: list[float]) -> None:
    """Nor one that has no probability. A beam of 6 is three groups. Beside the bad sentence stands a good one."""

    def good(_prefix: tuple[int, ...]) -> Tensor:
        return torch.arange(8.0)

    options = rules(beam_size).model_copy(update={"diverse_beam_groups": 3 if beam_size == 6 else 1})
    search = choose_search(options, [Demand()] * 2)
    languages = [good, lambda _: torch.tensor(bad)]
    assert len(search(Languages([good, good]), [5, 5], options, torch.device("cpu"))) == 2
    with pytest.raises(UserError, match="not a number"):
        search(Languages(languages), [5, 5], options, torch.device("cpu"))
