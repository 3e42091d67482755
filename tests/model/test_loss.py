import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.model import loss as loss_module
from transformer_mt.model.cpu import chunked_loss
from transformer_mt.model.loss import LossSums, aligned_logits, cross_entropy_sums, output_loss_sums, wants_alignment


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


@pytest.mark.parametrize("with_prior", [False, True])
def test_under_autocast_the_smooth_part_is_not_rounded(with_prior: bool) -> None:
    """The mean of all logits is one product of two sums."""
    output, hidden, _ = projected(True, torch.float32)
    prior = torch.full((len(output.weight),), 1 / len(output.weight)) if with_prior else None
    parts = hidden.detach(), output.weight.detach(), output.bias.detach(), prior
    expected = chunked_loss.mean_logits(*parts)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(chunked_loss.mean_logits(*parts), expected)


def test_under_autocast_the_gradient_of_a_prior_is_not_rounded() -> None:
    output, hidden, _ = projected(True, torch.float32)
    prior = torch.rand(len(output.weight), generator=torch.Generator().manual_seed(1))
    found = []
    for is_low in (False, True):
        gradients = chunked_loss.OutputGradients(hidden.detach(), output.weight.detach(), None)
        gradients.hidden.zero_()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_low):
            gradients.smooth(slice(None), 0.1, prior / prior.sum())
        found.append(gradients.finished())
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_hook_on_the_output_sees_all_logits_and_changes_nothing() -> None:
    output, hidden, targets = projected(False)
    expected = output_loss_sums(output, hidden, targets, 0.1)
    seen = []
    output.register_forward_hook(lambda module, inputs, logits: seen.append(logits))
    hooked = output_loss_sums(output, hidden, targets, 0.1)
    assert torch.equal(hooked.loss, expected.loss)
    torch.testing.assert_close(seen, [hidden.detach() @ output.weight.detach().T])


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("behind", [0.0, 1e4, -1e4])
def test_columns_behind_the_vocabulary_are_as_if_not_there(label_smoothing: float, behind: float) -> None:
    torch.manual_seed(0)
    logits, targets = 9 * torch.randn(6, 11) - 500, torch.tensor([0, 10, 3, 3, 7, 1])
    wide = torch.cat((logits, torch.full((6, 5), behind)), dim=1).requires_grad_()
    logits.requires_grad_()
    found = cross_entropy_sums(wide, targets, label_smoothing, 11)
    expected = cross_entropy_sums(logits, targets, label_smoothing)
    assert (found.loss.item(), found.nll.item()) == (expected.loss.item(), expected.nll.item())
    for sums in (found, expected):
        (2 * sums.loss).backward()
    assert wide.grad is not None
    assert logits.grad is not None
    assert torch.equal(wide.grad[:, :11], logits.grad)
    assert torch.equal(wide.grad[:, 11:], torch.zeros(6, 5))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_classes", [9, 15, 16])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_aligned_logits_give_the_loss_and_the_gradients(num_classes: int, bias: bool, precision: str) -> None:
    """What a GPU computes in 16 bits, here on a CPU; in fp32 the padding alone."""
    torch.manual_seed(0)
    output, targets = torch.nn.Linear(8, num_classes, bias=bias), torch.randint(0, num_classes, (5,))
    found = []
    for aligned in (False, True):
        output.zero_grad()
        hidden = torch.randn(5, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = aligned_logits(output, hidden) if aligned else output(hidden)
            assert logits.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
            assert logits.size(1) == (16 if aligned else num_classes)
            sums = cross_entropy_sums(logits, targets, 0.1, num_classes if aligned else None)
        sums.loss.backward()
        found.append([sums.loss, sums.nll, hidden.grad, *(parameter.grad for parameter in output.parameters())])
    tolerance = 1e-6 if precision == "fp32" else 2e-2
    for plain, padded in zip(*found, strict=True):
        torch.testing.assert_close(padded, plain, rtol=tolerance, atol=tolerance)


def test_a_compiler_takes_the_width_as_one_more_number() -> None:
    """One graph for all heights."""
    torch._dynamo.reset()
    compiled = torch.compile(cross_entropy_sums, dynamic=True, backend="aot_eager")
    torch._dynamo.utils.counters.clear()
    for height in (5, 7, 12):
        found = []
        for function in (compiled, cross_entropy_sums):
            logits = torch.randn(height, 16, generator=torch.Generator().manual_seed(height)).requires_grad_()
            sums = function(logits, torch.arange(height) % 11, 0.1, 11)
            sums.loss.backward()
            found.append((sums.loss, sums.nll, logits.grad))
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_only_16_bits_on_a_gpu_want_a_width() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    odd, even = torch.nn.Linear(4, 9), torch.nn.Linear(4, 16)
    assert all(wants_alignment(odd, gpu, dtype) for dtype in (torch.bfloat16, torch.float16))
    assert not any(wants_alignment(even, gpu, dtype) for dtype in (torch.bfloat16, torch.float16))
    assert not wants_alignment(odd, gpu, torch.float32)
    assert not wants_alignment(odd, cpu, torch.bfloat16)
    assert not wants_alignment(torch.nn.Identity(), gpu, torch.bfloat16)
    odd.register_forward_hook(lambda *_: None)
    assert not wants_alignment(odd, gpu, torch.bfloat16), "somebody looks at what the module makes"


@pytest.mark.parametrize("wanted", [True, False])
def test_a_loss_on_a_gpu_takes_the_width_that_is_wanted(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "wants_alignment", lambda *_: wanted)
    seen = []

    def other(
        logits: torch.Tensor, targets: torch.Tensor, smoothing: float, num_classes: int | None, prior: None
    ) -> LossSums:
        seen.append((logits.size(1), num_classes))
        return cross_entropy_sums(logits, targets, smoothing, num_classes, prior)

    output, hidden, targets = torch.nn.Linear(4, 9), torch.randn(3, 4), torch.tensor([0, 8, 5])
    sums = output_loss_sums(output, hidden, targets, 0.1, other)
    assert seen == [(16, 9) if wanted else (9, None)]
    torch.testing.assert_close(sums.loss, cross_entropy_sums(output(hidden), targets, 0.1).loss)
