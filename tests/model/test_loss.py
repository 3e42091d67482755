import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.model.cpu import chunked_loss
from transformer_mt.model.loss import cross_entropy_sums, output_loss_sums


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


def projected(bias: bool, dtype: torch.dtype = torch.float64) -> tuple[nn.Linear, Tensor, Tensor]:
    """An output projection to 30 words, 20 hidden states that reach logits of a few hundred, and targets."""
    torch.manual_seed(0)
    hidden = (40 * torch.randn(20, 8, dtype=dtype)).requires_grad_()
    return nn.Linear(8, 30, bias=bias, dtype=dtype), hidden, torch.randint(30, (20,))


@pytest.mark.parametrize("chunk", [7, 20, 64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_chunks_equal_torch_on_all_logits(
    monkeypatch: pytest.MonkeyPatch, label_smoothing: float, bias: bool, chunk: int
) -> None:
    monkeypatch.setattr(chunked_loss, "CHUNK", chunk)
    output, hidden, targets = projected(bias)
    inputs = [hidden, *output.parameters()]
    sums = output_loss_sums(output, hidden, targets, label_smoothing)
    logits = output(hidden)
    expected = F.cross_entropy(logits, targets, label_smoothing=label_smoothing, reduction="sum")
    torch.testing.assert_close(sums.loss, expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(sums.nll, F.cross_entropy(logits, targets, reduction="sum"), rtol=1e-9, atol=0)
    # Twice, with a factor: gradients are added up, and nothing that was kept is used up.
    ours = torch.autograd.grad(3 * sums.loss, inputs, retain_graph=True)
    assert all(map(torch.equal, ours, torch.autograd.grad(3 * sums.loss, inputs)))
    torch.testing.assert_close(ours, torch.autograd.grad(3 * expected, inputs), rtol=1e-9, atol=1e-9)


def test_chunks_without_gradients_give_the_same_sums() -> None:
    output, hidden, targets = projected(True)
    expected = output_loss_sums(output, hidden, targets, 0.1)
    with torch.no_grad():
        sums = output_loss_sums(output, hidden, targets, 0.1)
    assert sums.loss == expected.loss
    assert sums.nll == expected.nll
    assert not sums.loss.requires_grad


def test_chunks_under_bf16_are_as_near_as_bf16_logits() -> None:
    output, hidden, targets = projected(True, torch.float32)
    with torch.no_grad():
        hidden /= 40
    inputs = [hidden, *output.parameters()]
    with torch.autocast("cpu", torch.bfloat16):
        sums = output_loss_sums(output, hidden, targets, 0.1)
        same = cross_entropy_sums(output(hidden), targets, 0.1)
    exact = F.cross_entropy(output(hidden), targets, label_smoothing=0.1, reduction="sum")
    assert sums.loss.item() == pytest.approx(exact.item(), rel=2e-3)
    for ours, theirs, true in zip(
        *(torch.autograd.grad(loss, inputs) for loss in (sums.loss, same.loss, exact)), strict=True
    ):
        assert ours.dtype == torch.float32
        assert (ours - true).norm() <= 1.2 * (theirs - true).norm() + 1e-3 * true.norm()


def test_a_hook_on_the_output_sees_all_logits_and_changes_nothing() -> None:
    output, hidden, targets = projected(False)
    expected = output_loss_sums(output, hidden, targets, 0.1)
    seen = []
    output.register_forward_hook(lambda module, inputs, logits: seen.append(logits))
    hooked = output_loss_sums(output, hidden, targets, 0.1)
    assert torch.equal(hooked.loss, expected.loss)
    torch.testing.assert_close(seen, [hidden.detach() @ output.weight.detach().T])
