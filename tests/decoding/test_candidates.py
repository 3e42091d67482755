"""The best tokens of a step against torch.topk over masked log-probabilities."""

import pytest
import torch

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.candidates import BLOCK, allowed_tokens, best_tokens
from transformer_mt.errors import UserError


@pytest.mark.parametrize("num_best", [1, 2, 10])
@pytest.mark.parametrize("vocab_size", [10, BLOCK, 21 * BLOCK - 1, 21 * BLOCK, 50 * BLOCK + 7])
def test_best_tokens_are_the_best(vocab_size: int, num_best: int) -> None:
    logits = torch.randn(40, vocab_size + 4, generator=torch.Generator().manual_seed(vocab_size))[:, 4:]
    values, tokens = best_tokens(logits, num_best)
    assert torch.equal(values, logits.topk(num_best).values)
    assert torch.equal(logits.gather(1, tokens), values)
    assert all(len(set(row)) == num_best for row in tokens.tolist())


@pytest.mark.parametrize("num_best", [1, 6])
def test_best_tokens_where_many_are_equal(num_best: int) -> None:
    logits = torch.randint(0, 3, (50, 40 * BLOCK + 3), generator=torch.Generator().manual_seed(0)).float()
    logits[0] = -torch.inf
    logits[0, 7] = 0.0
    values, tokens = best_tokens(logits, num_best)
    assert torch.equal(values, logits.topk(num_best).values)
    assert torch.equal(logits.gather(1, tokens), values)
    assert all(len(set(row)) == num_best for row in tokens.tolist())


@pytest.mark.parametrize("allow_unk", [True, False])
@pytest.mark.parametrize("vocab_size", [7, 2000])
def test_allowed_tokens_are_those_of_the_masked_logits(vocab_size: int, allow_unk: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(30, vocab_size, generator=generator)
    logits[:10, :4] += 5  # special tokens first, unless they are left out
    must_end = torch.rand(30, generator=generator) < 0.3
    masked = logits.clone()
    masked[:, [PAD_ID, BOS_ID] if allow_unk else [PAD_ID, BOS_ID, UNK_ID]] = -torch.inf
    masked[must_end] = masked[must_end].masked_fill(torch.arange(vocab_size) != EOS_ID, -torch.inf)
    before = logits.clone()
    for ends, expected in ((must_end, masked), (None, masked.where(~must_end[:, None], logits))):
        rows = slice(None) if ends is not None else ~must_end
        values, tokens = allowed_tokens(logits, 3, allow_unk, ends)
        wanted = expected.topk(3).values
        assert torch.equal(values[rows], wanted[rows])
        real = values[rows] > -torch.inf
        assert torch.equal(logits.gather(1, tokens)[rows][real], values[rows][real])
    assert torch.equal(logits, before), "the step's logits are its own"


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(UserError, match="not a number"):
        allowed_tokens(torch.full((2, 2000), torch.nan), 2, False, None)
