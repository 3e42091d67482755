"""The Triton kernel of the loss, with the output projection around it, against torch's: see `test_gpu_kernels.py`."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model import loss
from transformer_mt.model.gpu import output_loss
from transformer_mt.model.gpu.output_loss import OutputCrossEntropy, chunk_height, takes_output
from transformer_mt.model.loss import NO_TARGET, cross_entropy_sums, output_loss_sums

pytest.importorskip("triton", reason="Triton is not installed; `pip install triton` brings it")
BITS = {32: torch.float32, 16: torch.bfloat16}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where the kernel runs: on a CPU it is interpreted, which `conftest.py` sees to."""
    return torch.device(request.param)


def exact(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, prior: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Loss and nll by torch's log-softmax; hidden, weight and bias are float64."""
    log_probs = F.linear(hidden, weight, bias).log_softmax(dim=1)
    counts = targets != NO_TARGET
    nll = -log_probs.gather(1, targets.clamp(min=0)[:, None])[counts].sum()
    smooth = -(log_probs.mean(dim=1) if prior is None else log_probs @ prior.double())[counts].sum()
    return (1 - smoothing) * nll + smoothing * smooth, nll


@pytest.mark.parametrize("most_bytes", [2**30, 64 * 38 * 4])  # in one part, and in several
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("has_bias", "has_prior"), [(False, False), (True, False), (True, True)])
def test_loss_and_gradients_are_those_of_the_formula(
    device: torch.device, most_bytes: int, smoothing: float, has_bias: bool, has_prior: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(output_loss, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(output_loss, "_BLOCK", 16)  # so that a row has several
    torch.manual_seed(0)
    hidden, weight = torch.randn(150, 12, device=device), torch.randn(38, 12, device=device)
    bias = torch.randn(38, device=device) if has_bias else None
    prior = torch.rand(38, device=device).softmax(dim=0) if has_prior else None
    targets = torch.randint(38, (150,), device=device)
    targets[::7] = NO_TARGET
    given = [x.requires_grad_() for x in (hidden, weight, bias) if x is not None]
    sums = OutputCrossEntropy.apply(hidden, weight, bias, targets, smoothing, torch.float32, True, prior)
    doubles = [x.detach().double().requires_grad_() for x in given]
    expected = exact(doubles[0], doubles[1], doubles[2] if has_bias else None, targets, smoothing, prior)
    for ours, theirs in zip(sums, expected, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs.detach(), rtol=1e-5, atol=0)
    found = torch.autograd.grad(sums[0], given, torch.tensor(0.3, device=device))
    for ours, theirs in zip(found, torch.autograd.grad(0.3 * expected[0], doubles), strict=True):
        assert (ours.double() - theirs).norm() <= 1e-5 * theirs.norm()


def test_without_gradients_the_sums_are_the_same(device: torch.device) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(70, 8, device=device), torch.randn(21, 8, device=device)
    targets = torch.randint(21, (70,), device=device)
    ways = [OutputCrossEntropy.apply(hidden, weight, None, targets, 0.1, torch.float32, way, None) for way in (0, 1)]
    assert torch.equal(torch.stack(ways[0]), torch.stack(ways[1]))


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize("vocab_size", [501, 9000])
def test_on_a_gpu_it_takes_the_place_of_logits_and_loss(
    bits: int, vocab_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As near to float64 as the way over all logits. 8 does not divide one vocabulary; the other has many blocks."""
    torch.manual_seed(0)
    output = nn.Linear(64, vocab_size).cuda()
    hidden = torch.randn(300, 64, device="cuda", requires_grad=True)
    targets = torch.randint(vocab_size, (300,), device="cuda")
    given = [hidden, output.weight, output.bias]

    def sums_and_gradients() -> list[Tensor]:
        with torch.autocast("cuda", BITS[bits], enabled=bits == 16):
            sums = output_loss_sums(output, hidden, targets, 0.1)
        return [sums.loss, sums.nll, *torch.autograd.grad(sums.loss, given)]

    assert takes_output(output, hidden.device, BITS[bits])
    found = sums_and_gradients()
    monkeypatch.setattr(loss, "takes_output", lambda *_: False)
    plain = sums_and_gradients()
    doubles = [x.detach().double().requires_grad_() for x in given]
    in_64 = cross_entropy_sums(F.linear(*doubles), targets, 0.1)
    true = [in_64.loss, in_64.nll, *torch.autograd.grad(in_64.loss, doubles)]
    for ours, theirs, best in zip(found, plain, true, strict=True):
        assert (ours - best).norm() <= 1.5 * (theirs - best).norm() + 1e-5 * best.norm()


def test_what_it_is_not_made_for_is_not_taken() -> None:
    output = nn.Linear(8, 16)
    assert not takes_output(output, torch.device("cpu"), torch.float32)
    assert not takes_output(output, torch.device("cuda"), torch.float16)
    assert not takes_output(nn.Sequential(output), torch.device("cuda"), torch.float32)
    output.register_forward_hook(lambda *_: None)
    assert not takes_output(output, torch.device("cuda"), torch.float32)


@pytest.mark.parametrize(
    ("num_rows", "width", "height"), [(1, 100, 64), (25_000, 13_632, 25_024), (61_000, 13_632, 30_528), (0, 8, 64)]
)
def test_parts_are_equal_and_small_enough(num_rows: int, width: int, height: int) -> None:
    assert chunk_height(num_rows, width, torch.bfloat16) == height
    assert (height - 64) * width * 2 <= output_loss.MOST_BYTES
