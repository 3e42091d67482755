"""Output projection and loss as one operation on a GPU, against torch: on a GPU, and in Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.gpu import output_loss
from transformer_mt.model.gpu.output_loss import ALIGNED, OutputCrossEntropy, chunk_height, takes_output
from transformer_mt.model.loss import NO_TARGET, aligned_logits, cross_entropy_sums, output_loss_sums

LOW = {"cuda": torch.bfloat16, "cpu": torch.float16}  # the interpreter takes bfloat16 for whole numbers


def projected(
    device: torch.device, num_classes: int, num_rows: int = 150, bias: bool = True
) -> tuple[nn.Linear, Tensor, Tensor]:
    """An output projection, hidden states that reach logits of some ten, and targets of which two are missing."""
    torch.manual_seed(0)
    output = nn.Linear(8, num_classes, bias=bias).to(device)
    hidden = (15 * torch.randn(num_rows, 8)).to(device).requires_grad_()
    targets = torch.randint(num_classes, (num_rows,))
    targets[0], targets[-1] = num_classes - 1, 0
    targets[3] = targets[num_rows - 2] = NO_TARGET
    return output, hidden, targets.to(device)


def prior_of(num_classes: int, device: torch.device) -> Tensor:
    return torch.rand(num_classes, generator=torch.Generator().manual_seed(2)).softmax(dim=0).to(device)


def exact_loss(output: nn.Linear, hidden: Tensor, targets: Tensor, smoothing: float, prior: Tensor | None):
    """Loss, nll and their inputs in double precision, by torch; with a prior by its definition."""
    inputs = [x.detach().double().requires_grad_() for x in (hidden, *output.parameters())]
    logits = F.linear(*inputs)
    options = {"ignore_index": NO_TARGET, "reduction": "sum"}
    nll = F.cross_entropy(logits, targets, **options)
    if prior is None:
        return F.cross_entropy(logits, targets, label_smoothing=smoothing, **options), nll, inputs
    smooth = -(logits.log_softmax(dim=-1) @ prior.double())[targets != NO_TARGET].sum()
    return (1 - smoothing) * nll + smoothing * smooth, nll, inputs


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("num_classes", "smoothing", "with_prior", "bias", "bits"),
    [
        (30, 0.1, False, True, 32), (32, 0.0, False, False, 32), (37, 0.1, True, True, 32), (37, 0.1, True, False, 16),
        (30, 0.1, False, True, 16), (3000, 0.1, False, True, 32),
    ],
)  # fmt: skip
def test_sums_and_gradients_equal_torch(
    device: torch.device, num_classes: int, smoothing: float, with_prior: bool, bias: bool, bits: int, several: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With all rows at once in one block a row; and in chunks of rows, the longest of which are read twice."""
    if several:
        monkeypatch.setattr(output_loss, "MOST_BYTES", 1)
        monkeypatch.setattr(output_loss, "_BLOCKS", (1024, 1024))
    output, hidden, targets = projected(device, num_classes, bias=bias)
    prior = prior_of(num_classes, device) if with_prior else None
    dtype = torch.float32 if bits == 32 else LOW[device.type]
    given = output.weight, output.bias, targets, smoothing, dtype
    loss, nll = OutputCrossEntropy.apply(hidden, *given, True, prior)
    expected, expected_nll, exact = exact_loss(output, hidden, targets, smoothing, prior)
    tolerance = 1e-5 if bits == 32 else 5e-3
    assert (loss.dtype, nll.dtype) == (torch.float32, torch.float32)
    assert loss.item() == pytest.approx(expected.item(), rel=tolerance)
    assert nll.item() == pytest.approx(expected_nll.item(), rel=tolerance)
    # Twice, with a factor: nothing that was kept is used up.
    inputs = [hidden, *output.parameters()]
    found = torch.autograd.grad(3 * loss, inputs, retain_graph=True)
    assert all(map(torch.equal, found, torch.autograd.grad(3 * loss, inputs)))
    low = [x.to(dtype) for x in inputs]
    same = cross_entropy_sums(F.linear(*low), targets, smoothing, None, prior).loss
    gradients = found, torch.autograd.grad(3 * same, inputs), torch.autograd.grad(3 * expected, exact)
    for ours, theirs, true in zip(*gradients, strict=True):
        assert ours.dtype == torch.float32
        allowed = 1.2 * (theirs - true).norm() + 1e-3 * true.norm() if bits == 16 else 2e-5 * true.norm()
        assert (ours - true).norm() <= allowed
    assert not found[0][targets == NO_TARGET].any()
    with torch.no_grad():
        unneeded = OutputCrossEntropy.apply(hidden, *given, False, prior)
    assert (unneeded[0].item(), unneeded[1].item()) == (loss.item(), nll.item())


def test_what_is_frozen_gets_no_gradient(device: torch.device) -> None:
    output, hidden, targets = projected(device, 30)
    found = []
    for frozen in (False, True):
        output.weight.requires_grad_(not frozen)
        output.zero_grad()
        hidden.grad = None
        given = output.weight, output.bias, targets, 0.1, torch.float32
        OutputCrossEntropy.apply(hidden, *given, True, None)[0].backward()
        assert (output.weight.grad is None) is frozen
        assert output.bias.grad is not None
        found.append((hidden.grad, output.bias.grad.clone()))
    assert all(map(torch.equal, *found))


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize("num_classes", [1003, 40000])
def test_on_a_gpu_it_is_as_near_as_the_loss_of_all_logits(num_classes: int, bits: int) -> None:
    device = torch.device("cuda")
    dtype = torch.float32 if bits == 32 else torch.bfloat16
    output, hidden, targets = projected(device, num_classes, 300)
    assert takes_output(output, device, dtype)
    inputs = [hidden, *output.parameters()]
    with torch.autocast("cuda", torch.bfloat16, enabled=bits == 16):
        sums = output_loss_sums(output, hidden, targets, 0.1, lambda *_: pytest.fail("the kernel computes it"))
        same = cross_entropy_sums(aligned_logits(output, hidden), targets, 0.1, num_classes)
    expected, _, exact = exact_loss(output, hidden, targets, 0.1, None)
    tolerance = 1e-5 if bits == 32 else 1e-3
    assert sums.loss.item() == pytest.approx(same.loss.item(), rel=tolerance)
    assert sums.nll.item() == pytest.approx(same.nll.item(), rel=tolerance)
    gradients = (torch.autograd.grad(loss / 7, x) for loss, x in ((sums.loss, inputs), (same.loss, inputs)))
    true_ones = torch.autograd.grad(expected / 7, exact)
    for ours, theirs, true in zip(*gradients, true_ones, strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours - true).norm() <= 1.2 * (theirs - true).norm() + 1e-3 * true.norm()


def test_chunks_are_equal_and_bounded() -> None:
    for num_rows, width in [(1, 16), (25_000, 13_632), (100_000, 13_632), (64, 2**25)]:
        height = chunk_height(num_rows, width, torch.bfloat16)
        assert height % 64 == 0
        assert height == 64 or height * width * 2 <= output_loss.MOST_BYTES + 64 * width * 2
        parts = -(-num_rows // height)
        assert height - 64 < -(-num_rows // parts) <= height
    assert ALIGNED % 8 == 0


@pytest.mark.parametrize(
    ("device_name", "dtype"), [("cpu", torch.float32), ("cuda", torch.float16), ("cuda", torch.float64)]
)
def test_what_the_kernel_is_not_made_for_is_not_taken(device_name: str, dtype: torch.dtype) -> None:
    assert not takes_output(nn.Linear(4, 9), torch.device(device_name), dtype)


def test_hooks_and_other_modules_keep_their_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_loss, "triton_works", lambda device: True)
    device, dtype = torch.device("cuda"), torch.bfloat16
    output = nn.Linear(4, 9)
    assert takes_output(output, device, dtype)
    handle = output.register_forward_hook(lambda *_: None)
    assert not takes_output(output, device, dtype)
    handle.remove()
    output.register_forward_pre_hook(lambda *_: None)
    assert not takes_output(output, device, dtype)
    assert not takes_output(nn.Identity(), device, dtype)
