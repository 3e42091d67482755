"""The best tokens of a step against torch.topk over everything that a search could go on with."""

import math

import pytest
import torch
from marks import with_numba
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.fast_layers.find_kernels import compiled_passes
from transformer_mt.decoding.search import top_tokens as candidates
from transformer_mt.decoding.search.top_tokens import (
    BLOCK,
    LANES,
    LONG_BLOCK,
    Totals,
    best_extensions,
    best_tokens,
    largest_token,
    survey,
)


@pytest.fixture(params=["for a CPU", "for a GPU"])
def on_either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to the largest token."""
    if request.param == "for a GPU":
        monkeypatch.setattr(candidates, "_num_blocks", lambda *_: 0)


either = pytest.mark.usefixtures("on_either")
WIDTHS = [10, LANES, 16 * LANES - 1, 16 * LANES, 50 * LANES + 7, 7996]


def assert_best(words: Tensor, num_best: int, totals: Totals) -> None:
    """What `best_tokens` finds is the best of the whole table, each once."""
    values, rows, places = best_tokens(words, num_best, totals)
    every = totals(words)
    assert torch.equal(values, every[torch.arange(len(words))[:, None], rows, places])
    assert torch.equal(values, every.flatten(1).topk(values.size(1)).values)
    chosen = rows * words.size(2) + places
    assert all(len(set(row)) == len(row) == min(num_best, every[0].numel()) for row in chosen.tolist())


@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("num_best", [1, 2, 10])
@pytest.mark.parametrize("width", WIDTHS)
def test_best_tokens_are_the_best(width: int, num_best: int, num_rows: int) -> None:
    generator = torch.Generator().manual_seed(width)
    logits = torch.randn(12, num_rows, width + 4, generator=generator)
    assert_best(logits[:, :, 4:], num_best, Totals(torch.zeros(12, num_rows, 1), torch.zeros(12, num_rows, 1)))
    log_probs = -10 * torch.rand(12, num_rows, generator=generator)
    log_probs[0, 1:] = -torch.inf  # hypotheses that have ended
    assert_best(logits[:, :, 4:], num_best, Totals.of(logits, log_probs))


@pytest.mark.parametrize("num_best", [1, 6])
def test_best_tokens_where_many_are_equal(num_best: int) -> None:
    logits = torch.randint(0, 3, (50, 3, 40 * LANES + 3), generator=torch.Generator().manual_seed(0)).float()
    logits[0] = -torch.inf
    logits[0, 1, 7] = 0.0
    assert_best(logits, num_best, Totals(torch.zeros(50, 3, 1), torch.ones(50, 3, 1)))


def test_normalizer_is_that_of_log_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 5 * torch.randn(6, 5, 300, generator=torch.Generator().manual_seed(2))
    expected = logits.logsumexp(dim=-1)[:, :, None]
    with compiled_passes(True):
        assert torch.allclose(Totals.of(logits, torch.zeros(6, 5)).normalizer, expected, atol=1e-5)
    for at_once in (1, 300, 2000, 10**6):
        monkeypatch.setattr(candidates, "NORMALIZED_AT_ONCE", at_once)
        assert torch.equal(Totals.of(logits, torch.zeros(6, 5)).normalizer, expected)


@with_numba
@pytest.mark.parametrize("vocab_size", [2000, 2043])
def test_what_a_survey_finds_makes_no_difference(vocab_size: int) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    logits, log_probs = torch.randn(12, 5, vocab_size, generator=generator), -torch.rand(12, 5, generator=generator)
    logits[:4, :, :4] += 5
    logits[5, 2, vocab_size - 1] = 9.0
    rows = logits.flatten(0, 1)
    for size in (BLOCK, LONG_BLOCK):
        with compiled_passes(True):
            totals, maxima = survey(logits, log_probs, size)
        assert maxima is not None
        for found, expected in (
            (
                best_extensions(logits, 10, False, None, totals, maxima),
                best_extensions(logits, 10, False, None, totals),
            ),
            (largest_token(rows, True, maxima.flatten(0, 1)), largest_token(rows, True)),
        ):
            assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    without, nothing = survey(logits, log_probs, BLOCK)
    assert nothing is None
    torch.testing.assert_close(without.normalizer, totals.normalizer)


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("allow_unk", [True, False])
@pytest.mark.parametrize("vocab_size", [7, 2000])
def test_extensions_are_those_of_the_masked_logits(vocab_size: int, allow_unk: bool, num_rows: int) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(30, num_rows, vocab_size, generator=generator)
    logits[:10, :, :4] += 5  # special tokens first, unless they are left out
    log_probs = -3 * torch.rand(30, num_rows, generator=generator)
    every = log_probs[:, :, None] + logits.log_softmax(dim=-1)
    every[:, :, [PAD_ID, BOS_ID] if allow_unk else [PAD_ID, BOS_ID, UNK_ID]] = -torch.inf
    must_end = torch.rand(30, generator=generator) < 0.3
    ending = every.clone()
    ending[must_end] = ending[must_end].masked_fill(torch.arange(vocab_size) != EOS_ID, -torch.inf)
    before = logits.clone()
    for ends, expected in ((must_end, ending), (None, every)):
        values, rows, tokens = best_extensions(logits, 3, allow_unk, ends, Totals.of(logits, log_probs))
        assert torch.allclose(values, expected.flatten(1).topk(3).values, atol=1e-6)
        real = values > -torch.inf
        chosen = expected[torch.arange(30)[:, None], rows, tokens]
        assert torch.allclose(chosen[real], values[real], atol=1e-6)
        assert torch.equal(values, values.sort(dim=1, descending=True).values)
    assert torch.equal(logits, before), "the step's logits are its own"


@either
@pytest.mark.parametrize("allow_unk", [True, False])
@pytest.mark.parametrize("vocab_size", [5, 7, 68, 2000, 2043])
def test_the_best_token_is_that_of_the_masked_logits(vocab_size: int, allow_unk: bool) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    logits = torch.randn(60, vocab_size, generator=generator)
    logits[:20, :4] += 5
    logits[20:30] -= 100  # nothing but numbers below zero
    logits[30] = -torch.inf
    logits[30, EOS_ID] = -1e30
    logits[31, vocab_size - 1] = torch.inf
    logits[32] = 0.0
    masked = logits.clone()
    masked[:, [PAD_ID, BOS_ID] if allow_unk else [PAD_ID, BOS_ID, UNK_ID]] = -torch.inf
    values, tokens = largest_token(logits, allow_unk)
    assert torch.equal(masked[torch.arange(60), tokens], masked.amax(dim=1))
    assert torch.equal(values, masked.amax(dim=1))
    assert (values > -torch.inf).all()


@either
@pytest.mark.parametrize("number", [torch.nan, -torch.nan])
@pytest.mark.parametrize("bad", [slice(None), 4, 900, 1999, EOS_ID])
def test_what_is_no_number_is_the_largest(bad: slice | int, number: float) -> None:
    logits = torch.zeros(2, 2000)
    logits[1, bad] = torch.tensor(torch.nan).copysign(torch.tensor(math.copysign(1, number)))
    assert largest_token(logits, False)[0].isnan().tolist() == [False, True]


@pytest.mark.parametrize(
    ("bad", "number"),
    [(slice(None), torch.nan), (900, torch.nan), (EOS_ID, -torch.nan), (900, torch.inf), (EOS_ID, torch.inf),
     (slice(None), -torch.inf)],
)  # fmt: skip
def test_what_leaves_no_probabilities_is_bad(bad: slice | int, number: float) -> None:
    """Also in a row that is dead. Totals would not be numbers, and a beam search would not end."""
    logits = torch.zeros(2, 3, 2000)
    logits[1, 2, bad] = number
    log_probs = torch.tensor([[0.0, 0.0, -torch.inf]] * 2)
    assert Totals.of(logits, log_probs).are_bad.tolist() == [False, True]
    logits[1, 2] = 0.0
    logits[1, 2, 4:] = -torch.inf  # forbidden words are not bad
    assert Totals.of(logits, log_probs).are_bad.tolist() == [False, False]
