import pytest
import torch
from torch.nn import functional as F

from transformer_mt.model.loss import cross_entropy_sums


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.4])
def test_sums_and_gradients_equal_torch(label_smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 30, generator=generator, requires_grad=True)
    targets = torch.randint(30, (20,), generator=generator)
    sums = cross_entropy_sums(logits, targets, label_smoothing)
    expected = F.cross_entropy(logits, targets, label_smoothing=label_smoothing, reduction="sum")
    torch.testing.assert_close(sums.loss, expected)
    torch.testing.assert_close(sums.nll, F.cross_entropy(logits, targets, reduction="sum"))
    (ours,) = torch.autograd.grad(sums.loss, logits, retain_graph=True)
    (theirs,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(ours, theirs)


def test_low_precision_logits_are_summed_in_float32() -> None:
    logits = torch.zeros(4000, 8, dtype=torch.bfloat16)
    sums = cross_entropy_sums(logits, torch.zeros(4000, dtype=torch.long), 0.1)
    assert sums.nll.dtype == torch.float32
    assert sums.nll.item() == pytest.approx(4000 * 2.0794415, rel=1e-5)
