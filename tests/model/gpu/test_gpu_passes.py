"""The Triton kernels that end a sublayer, and those of relu with dropout, against the formulas: see
`test_gpu_kernels.py`.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model import stack
from transformer_mt.model.gpu.attention import unpadded_attention
from transformer_mt.model.gpu.dropout import STEPS, threshold_of
from transformer_mt.model.gpu.embedding import embedded
from transformer_mt.model.gpu.post_norm import Stream, add_and_norm, normed_sum, takes_norm
from transformer_mt.model.gpu.relu_dropout import relu_dropped
from transformer_mt.model.layers import EncoderLayer, fed_forward
from transformer_mt.model.parts import attention, feed_forward
from transformer_mt.model.parts.attention import unrotated
from transformer_mt.model.parts.layer_context import LayerContext
from transformer_mt.model.stack import Embedder
from transformer_mt.model.transformer import Transformer
from transformer_mt.model.unpadded import Tokens, Unpadded

pytest.importorskip("triton", reason="Triton is not installed; `pip install triton` brings it")
SEED = 5
LOW = {"cuda": torch.bfloat16, "cpu": torch.float16}  # the interpreter takes bfloat16 for whole numbers


def is_share(kept: Tensor, p: float) -> bool:
    """Whether as many are kept as dropout with p keeps, within 4 deviations."""
    return abs(float(kept.double().mean()) - (1 - p)) <= 4 * (p * (1 - p) / kept.numel()) ** 0.5 + 1e-9


def assert_close(found: Tensor, exact: Tensor) -> None:
    """Within the rounding of what was found, which knows the type of the exact one no more."""
    bound = 2e-6 if found.dtype == torch.float32 else {torch.bfloat16: 2**-8, torch.float16: 2**-10}[found.dtype]
    assert (found.double() - exact).norm() <= bound * exact.norm() + 1e-12


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(
    ("shape", "has_bias", "end"),
    [((37, 24), True, "this"), ((5, 512), False, "past"), ((70, 64), True, "both"), ((9, 1000), True, "both")],
)
def test_the_end_of_a_sublayer_has_the_formulas_values_and_gradients(
    device: torch.device, p: float, shape: tuple[int, int], has_bias: bool, end: str
) -> None:
    """`end` names the ways by which the gradient comes."""
    torch.manual_seed(0)
    x = (torch.randn(shape, device=device) + 3).to(LOW[device.type])
    y = torch.randn(shape, device=device).to(x.dtype)
    norm = nn.LayerNorm(shape[1], device=device)
    y_bias = torch.randn(shape[1], device=device, requires_grad=True) if has_bias else None
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    given = [x.requires_grad_(), y.requires_grad_(), norm.weight, norm.bias, *([] if y_bias is None else [y_bias])]
    torch.manual_seed(SEED)
    out, past = normed_sum(Stream.begun(x[None]), y[None], y_bias, norm, p)
    upstream = torch.randn(out.shape, device=device).to(out.dtype)
    ends = {"this": (out,), "past": (past,), "both": (out, past)}[end]
    found = torch.autograd.grad(ends, given, [upstream] * len(ends))
    upstream = upstream * len(ends)

    kept = found[1] != 0  # forward and backward pass agree on that, or the values are others
    assert is_share(kept, p)
    factors = torch.where(kept, STEPS / threshold_of(p), 0.0).double()
    doubles = [tensor.detach().double().requires_grad_() for tensor in given]
    of_x, of_y, weight, bias, *of_bias = doubles
    exact = F.layer_norm(of_x + factors * sum(of_bias, start=of_y), shape[1:], weight, bias, norm.eps)
    assert (out.dtype, out.shape) == (x.dtype, (1, *shape))
    assert_close(out[0].detach(), exact.detach())
    for ours, theirs in zip(found, torch.autograd.grad(exact, doubles, upstream[0].double()), strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize(("size", "has_positions"), [(24, True), (512, False), (1000, True)])
def test_the_foot_of_a_stack_has_the_formulas_values_and_gradients(
    device: torch.device, p: float, bits: int, size: int, has_positions: bool
) -> None:
    torch.manual_seed(0)
    table = torch.randn(9, size, device=device).requires_grad_()
    positions = torch.randn(7, size, device=device) if has_positions else None
    ids, at = torch.randint(9, (1, 37), device=device), torch.randint(7, (1, 37), device=device)
    out = embedded(table, ids, positions, at, 3.5, p, torch.float32 if bits == 32 else LOW[device.type])
    upstream = torch.randn(out.shape, device=device).to(out.dtype)
    (found,) = torch.autograd.grad(out, table, upstream)

    kept = out.detach() != 0
    assert is_share(kept, p)
    factors = torch.where(kept, STEPS / threshold_of(p), 0.0).double()
    exact_table = table.detach().double().requires_grad_()
    exact = factors * (3.5 * exact_table[ids] + (0 if positions is None else positions.double()[at]))
    assert out.shape == (1, 37, size)
    assert_close(out.detach(), exact.detach())
    assert_close(found, torch.autograd.grad(exact, exact_table, upstream.double())[0])


@pytest.mark.parametrize("kind", ["sinusoidal", "rotary", "learned", "factors", "hooked"])
def test_only_a_usual_foot_that_nobody_looks_at_is_one_pass(
    device: torch.device, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = kind if kind in ("rotary", "learned") else "sinusoidal"
    config = ModelConfig(d_model=32, num_heads=2, positions=positions, dropout=0.0)
    embedder = Embedder(config, nn.Embedding(20, 32), 16, causal=False).to(device)
    seen: list[object] = []
    if kind == "hooked":
        embedder.dropout.register_forward_hook(lambda module, given, result: seen.append(result))
    factors = torch.rand(1, 6, device=device) if kind == "factors" else None
    ids, at = torch.randint(20, (1, 6), device=device), torch.arange(6, device=device)[None]
    calls: list[int] = []
    monkeypatch.setattr(stack, "embedded", lambda *given: (calls.append(1), embedded(*given))[1])
    low = LOW[device.type]
    found = embedder.by_kernel(Tokens(ids, at, ids > 0, factors=factors), low)
    assert len(calls) == (kind in ("sinusoidal", "rotary"))
    assert len(seen) == (kind == "hooked")
    assert found.dtype == low
    torch.testing.assert_close(found, embedder(ids, at, factors).to(low))


def test_no_pass_adds_the_gradients_of_a_residual(device: torch.device) -> None:
    """That of a sublayer and that which goes past it: the kernel of the end before it does."""

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append(func.name())
            return func(*args, **(kwargs or {}))

    called: list[str] = []
    torch.manual_seed(0)
    norm = nn.LayerNorm(16, device=device)
    x = torch.randn(1, 7, 16, device=device).to(LOW[device.type]).requires_grad_()
    state = Stream.begun(x)
    for factor in (2, 3):
        state = normed_sum(state, state.low * factor, None, norm, 0.0)
    with Calls():
        (found,) = torch.autograd.grad(state.low, x, torch.ones_like(state.low).cumsum(-1))
    assert [name for name in called if "aten::add" in name] == ["aten::add.Tensor"]  # at x itself
    exact = x.detach().double().requires_grad_()
    y = exact
    for factor in (2, 3):
        y = F.layer_norm((1 + factor) * y, (16,))
    (true,) = torch.autograd.grad(y, exact, torch.ones_like(y).cumsum(-1))
    assert (found - true).norm() <= 2**-6 * true.norm()


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize(("shape", "has_bias"), [((37, 24), True), ((11, 1100), True), ((70, 512), False)])
def test_relu_with_dropout_has_the_formulas_values_and_gradients(
    device: torch.device, p: float, bits: int, shape: tuple[int, int], has_bias: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, device=device).to(torch.float32 if bits == 32 else LOW[device.type]).requires_grad_()
    bias = torch.randn(shape[1], device=device).requires_grad_() if has_bias else None
    given = [x] if bias is None else [x, bias]
    torch.manual_seed(SEED)
    out = relu_dropped(x, bias, threshold_of(p))
    upstream = torch.randn(shape, device=device).to(x.dtype)
    found = torch.autograd.grad(out, given, upstream)

    torch.manual_seed(SEED)
    kept = relu_dropped(torch.ones_like(x), None, threshold_of(p)) > 0
    assert is_share(kept, p)
    factors = torch.where(kept, STEPS / threshold_of(p), 0.0).double()
    doubles = [tensor.detach().double().requires_grad_() for tensor in given]
    exact = F.relu(sum(doubles, start=torch.zeros((), dtype=torch.float64, device=device))) * factors
    assert (out.dtype, out.shape) == (x.dtype, x.shape)
    assert_close(out.detach(), exact.detach())
    for ours, theirs in zip(found, torch.autograd.grad(exact, doubles, upstream.double()), strict=True):
        assert_close(ours, theirs)


def test_what_is_not_a_number_stays_none_behind_relu(device: torch.device) -> None:
    x = torch.tensor([[-1.0, torch.nan, 2.0, -torch.inf] * 8], device=device)
    found = relu_dropped(x, None, threshold_of(0.0))
    assert torch.equal(found.nan_to_num(9.0), F.relu(x).nan_to_num(9.0))


def test_neighbours_are_kept_independently_in_one_draw_and_in_another(device: torch.device) -> None:
    torch.manual_seed(SEED)
    kept = (relu_dropped(torch.ones(64, 1024, device=device), None, threshold_of(0.3)) > 0).double()
    deviation = (0.3 * 0.7 / kept.numel()) ** 0.5
    for down, right in ((0, 1), (0, 2), (0, 4), (0, 64), (0, 512), (1, 0), (4, 0), (1, 512)):
        both = kept[down:, right:] * kept[: 64 - down, : 1024 - right]
        assert abs(both.mean() - 0.7**2) <= 6 * deviation


def test_norms_that_the_kernels_are_not_made_for_are_not_taken() -> None:
    assert takes_norm(nn.LayerNorm(512), torch.bfloat16)
    assert not takes_norm(nn.LayerNorm(512), torch.float32)
    assert not takes_norm(nn.LayerNorm(512, bias=False), torch.bfloat16)
    assert not takes_norm(nn.RMSNorm(512), torch.bfloat16)
    assert not takes_norm(nn.LayerNorm(8192), torch.bfloat16)


def test_torch_compile_is_told_the_truth_about_the_operations(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shapes, types and gradients, of sizes that are symbols too; but not what stands where nobody reads."""
    monkeypatch.setattr(torch, "empty_like", torch.zeros_like)
    low = LOW[device.type]
    x = torch.randn(6, 16, device=device, requires_grad=True)
    y, z = (torch.randn(6, 16, device=device, dtype=low) for _ in range(2))
    weight, bias = torch.ones(16, device=device), torch.zeros(16, device=device)
    z, y, weight, bias = (tensor.requires_grad_() for tensor in (z, y, weight, bias))
    for p in (0.0, 1.0):  # all or nothing, for they are called more than once
        rows = (z.detach(), z, y)
        ends = [(add_and_norm, (*rows, of_y, weight, bias, threshold_of(p), 1e-5)) for of_y in (None, bias)]
        relus = [
            (relu_dropped, (y, bias, threshold_of(p))),
            (relu_dropped, (x.requires_grad_(), None, threshold_of(p))),
        ]
        for operation, arguments in (*ends, *relus):
            assert set(torch.library.opcheck(operation, arguments).values()) == {"SUCCESS"}


@pytest.mark.parametrize("bits", [32, 16])
def test_a_stack_with_the_kernels_computes_what_it_does_without(
    device: torch.device, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits and gradients, all in all as near to those of float32, where a stream is not wanted. The gradients of
    norms and biases are less near, since they are sums of rounded numbers. So few numbers are compared together.
    """
    torch.manual_seed(0)
    config = ModelConfig(
        d_model=32, d_ff=48, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, norm_position="post", dropout=0.0
    )
    model = Transformer(config, 20, 20).to(device).train()
    src = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 9, 3, 0]], device=device)
    tgt = torch.tensor([[2, 6, 7], [2, 0, 0], [2, 9, 0]], device=device)
    upstream = torch.randn(64, 20, device=device)
    monkeypatch.setattr(attention.cpu, "unpadded_attention", unpadded_attention)
    entered = []

    def passed(lowers: bool = bits == 16) -> list[Tensor]:
        with torch.autocast(device.type, LOW[device.type], enabled=lowers):
            logits = model.output(model.unpadded_hidden_states(Unpadded.of(src), Unpadded.of(tgt))).float()
        return [logits, *torch.autograd.grad(logits, list(model.parameters()), upstream)]

    exact, plain = passed(False), passed()
    monkeypatch.setattr(feed_forward, "draws_for", lambda x: True)
    through = EncoderLayer.forward
    monkeypatch.setattr(EncoderLayer, "forward", lambda self, x, c: (entered.append(type(x)), through(self, x, c))[1])
    model.encoder.is_compiled = model.decoder.is_compiled = True
    found = passed()
    assert set(entered) == {Stream if bits == 16 else Tensor}
    assert [ours.dtype for ours in found] == [theirs.dtype for theirs in plain]
    vectors = [place for place, tensor in enumerate(exact) if tensor.dim() == 1]
    matrices = [[place] for place, tensor in enumerate(exact) if tensor.dim() > 1]
    for places, most in (*((one, 2.5) for one in (vectors, *matrices)), (range(1, len(exact)), 1.2)):
        true, theirs, ours = (
            torch.cat([tensors[place].flatten() for place in places]) for tensors in (exact, plain, found)
        )
        # What is true is rounded itself.
        assert (ours - true).norm() <= most * (theirs - true).norm() + 1e-5 * max(1, true.norm())


def test_a_class_of_layers_is_one_graph_and_computes_the_same(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first layer's input is of another origin than the others', which must not tell torch.compile anything."""
    torch.manual_seed(0)
    config = ModelConfig(d_model=32, d_ff=48, num_heads=2, norm_position="post", dropout=0.0)
    model = Transformer(config.model_copy(update={"num_encoder_layers": 2, "num_decoder_layers": 2}), 20, 20)
    model = model.to(device).train()
    monkeypatch.setattr(attention.cpu, "unpadded_attention", unpadded_attention)
    monkeypatch.setattr(feed_forward, "draws_for", lambda x: True)
    model.encoder.is_compiled = model.decoder.is_compiled = True
    src = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 9, 3, 0]], device=device)
    tgt = torch.tensor([[2, 6, 7], [2, 0, 0], [2, 9, 0]], device=device)

    def passed() -> Tensor:
        with torch.autocast(device.type, LOW[device.type]):
            hidden = model.unpadded_hidden_states(Unpadded.of(src), Unpadded.of(tgt)).float()
        found = torch.autograd.grad(hidden.cumsum(-1).sum(), [*model.encoder.parameters(), *model.decoder.parameters()])
        return torch.cat([tensor.flatten() for tensor in (hidden, *found)])

    plain = passed()
    torch._dynamo.reset()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.compile(dynamic=True, backend="aot_eager")
    assert (passed() - plain).norm() <= 2**-7 * plain.norm()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 2


def test_a_residual_adds_the_bias_only_of_a_product_that_nobody_looks_at(device: torch.device) -> None:
    """What a hook on the last product sees has its bias, which is then not added again."""
    torch.manual_seed(0)
    config = ModelConfig(d_model=32, d_ff=48, num_heads=2, norm_position="post", dropout=0.0)
    layer = EncoderLayer(config).to(device).train()
    residual, last = layer.feed_forward_residual, layer.feed_forward.out_proj
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.bias.normal_()
    x = Stream.begun(torch.randn(1, 5, 32, device=device).to(LOW[device.type]))
    seen: list[object] = []

    def passed() -> Tensor:
        with torch.autocast(device.type, LOW[device.type]):
            return fed_forward(x, layer.feed_forward, residual, LayerContext(None, unrotated)).low

    alone = passed()
    last.register_forward_hook(lambda module, given, result: seen.append(result))
    hooked = passed()
    assert len(seen) == 1
    torch.testing.assert_close(hooked, alone, atol=0.02, rtol=0.02)
