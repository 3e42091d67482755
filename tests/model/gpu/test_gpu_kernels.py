"""The Triton kernels of a training on a GPU against the formulas: on a GPU, and anywhere in Triton's interpreter."""

import pytest
import torch
from torch import Tensor

from transformer_mt.model.cpu import attention as cpu_attention
from transformer_mt.model.gpu.attention import attention, joint_attention, takes_heads, unpadded_attention
from transformer_mt.model.gpu.dropout import STEPS, kept, threshold_of
from transformer_mt.model.parts.attention import MultiHeadAttention, attention_weights
from transformer_mt.model.unpadded import BlockDiagonal

pytest.importorskip("triton", reason="Triton is not installed; `pip install triton` brings it")
SCALE, SEED = 0.3, 5
SRC_LENGTHS, TGT_LENGTHS = [5, 1, 20, 7], [3, 18, 1, 7]
LONG = [70, 3, 33]  # several tiles
LOW = {"cuda": torch.bfloat16, "cpu": torch.float16}  # the interpreter takes bfloat16 for whole numbers


def heads_of(lengths: list[int], num_heads: int, dtype: torch.dtype, size: int = 16, surplus: int = 0) -> Tensor:
    """(1, num_heads, tokens and surplus, size), in memory as the projections leave it."""
    return torch.randn(1, sum(lengths) + surplus, num_heads, size).to(dtype).transpose(1, 2)


def plain(tensors: list[Tensor], mask: BlockDiagonal, factors: Tensor) -> Tensor:
    """The formula, one sentence after the other; factors (num_heads, queries, keys) are those of dropout."""
    q, k, v = tensors
    k, v = (x.repeat_interleave(q.size(1) // x.size(1), dim=1) for x in (k, v))
    outs = []
    for first_query, queries, first_key, keys in mask.blocks.tolist():
        own, others = slice(first_query, first_query + queries), slice(first_key, first_key + keys)
        visible = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
        weights = attention_weights(q[:, :, own], k[:, :, others], visible.tril() if mask.causal else visible, SCALE)
        outs.append((weights * factors[:, own, others]) @ v[:, :, others])
    return torch.cat(outs, dim=2)


def ours(tensors: list[Tensor], mask: BlockDiagonal, p: float) -> Tensor:
    """What is tested, with one and the same dropout."""
    torch.manual_seed(SEED)
    q, k, v = tensors
    return unpadded_attention(q, k, v, mask, p, SCALE)


def joined(tensors: list[Tensor], number: int) -> list[Tensor]:
    """Heads of queries, keys and values, or gradients of these, as so many tensors (tokens, heads, size)."""
    rows = [x.squeeze(0).transpose(0, 1) for x in tensors]
    parts = {1: [rows], 2: [rows[:1], rows[1:]], 3: [[x] for x in rows]}[number]
    return [torch.cat(part, dim=1).detach() for part in parts]


def ours_jointly(heads: list[Tensor], num_heads: int, mask: BlockDiagonal, p: float) -> Tensor:
    """`ours` of heads as `joined` gives them."""
    torch.manual_seed(SEED)
    return joint_attention(heads, num_heads, mask, p, SCALE).transpose(0, 1)[None]


def factors_of(q: Tensor, k: Tensor, mask: BlockDiagonal, p: float) -> Tensor:
    """What dropout multiplies each weight with: the weights come out where the values are the rows of a unit matrix."""
    num_keys, size = k.size(2), q.size(3)
    unit = torch.eye(num_keys, -(-num_keys // size) * size, device=q.device)
    weights = []
    for dropped in (p, 0.0):
        columns = [ours([q.float(), k.float(), v.expand_as(k)], mask, dropped) for v in unit.split(size, dim=1)]
        weights.append(torch.cat(columns, dim=3)[0, :, :, :num_keys])
    with_dropout, without = weights
    return torch.where(without > 0, with_dropout / without.clamp(min=1e-30), 0.0)


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize(
    ("lengths", "num_heads", "kv_heads", "size", "causal"),
    [
        ((TGT_LENGTHS, SRC_LENGTHS), 4, 4, 16, False), ((TGT_LENGTHS, TGT_LENGTHS), 4, 2, 24, True),
        ((LONG, LONG), 2, 1, 64, True), ((LONG, [3, 70, 35]), 2, 2, 16, False),
    ],
)  # fmt: skip
def test_attention_has_the_formulas_values_and_gradients(
    device: torch.device, p: float, bits: int, lengths: tuple[list[int], list[int]], num_heads: int,
    kv_heads: int, size: int, causal: bool,
) -> None:  # fmt: skip
    queries, keys = lengths
    dtype = torch.float32 if bits == 32 else LOW[device.type]
    mask = BlockDiagonal.of(torch.tensor(queries, device=device), torch.tensor(keys, device=device), causal)
    torch.manual_seed(0)
    tensors = [heads_of(queries, num_heads, dtype, size), *(heads_of(keys, kv_heads, dtype, size) for _ in range(2))]
    tensors = [x.to(device).requires_grad_() for x in tensors]
    q, k, _ = (x.detach() for x in tensors)
    factors = factors_of(q, k, mask, p)
    seen = factors_of(q, k, mask, 0.0) > 0
    kept = factors[seen] > 0
    torch.testing.assert_close(factors[seen][kept], torch.full_like(factors[seen][kept], STEPS / threshold_of(p)))
    assert abs(kept.double().mean() - (1 - p)) <= 4 * (p * (1 - p) / kept.numel()) ** 0.5 + 1e-9
    out = ours(tensors, mask, p)
    doubles = [x.detach().double().requires_grad_() for x in tensors]
    expected = plain(doubles, mask, factors.double())
    upstream = torch.randn(out.shape, device=device).to(dtype)
    exact = [expected, *torch.autograd.grad(expected, doubles, upstream.double())]
    assert_near([out, *torch.autograd.grad(out, tensors, upstream)], exact, dtype)
    for number in [2, 1] if queries == keys else [2]:
        heads = [x.requires_grad_() for x in joined(tensors, number)]
        out = ours_jointly(heads, num_heads, mask, p)
        found = [out, *torch.autograd.grad(out, heads, upstream)]
        assert_near(found, [expected, *joined(exact[1:], number)], dtype)


def assert_near(found: list[Tensor], exact: list[Tensor], dtype: torch.dtype) -> None:
    """Found in this type, with the errors that it brings."""
    for x, y in zip(found, exact, strict=True):
        assert x.dtype == dtype
        # Weights and their gradients are rounded before the second product, to 8 bits where it is bfloat16.
        y = y.detach()
        assert (x.detach().double() - y).norm() <= (1e-6 if dtype == torch.float32 else 2**-7) * y.norm()


@pytest.mark.parametrize("number", [3, 2, 1])
@pytest.mark.parametrize("longest", [18, 70])
def test_rows_that_are_no_sentences_take_no_part_whatever_is_in_them(
    device: torch.device, number: int, longest: int
) -> None:
    """Whether tokens are one tensor with several heads, or several; whether one tile holds a sentence, or not."""
    queries = [3, longest, 1, 7]
    keys = queries if number == 1 else SRC_LENGTHS
    mask = BlockDiagonal.of(torch.tensor(queries, device=device), torch.tensor(keys, device=device))
    torch.manual_seed(0)
    tensors = [heads_of(n, heads, torch.float32).to(device) for n, heads in ((queries, 4), (keys, 2), (keys, 2))]
    exact = joined(tensors, number)
    longer = [
        torch.cat((x, torch.full((surplus, *x.shape[1:]), torch.nan, device=device)))
        for x, surplus in zip(exact, (5, 3, 3), strict=False)
    ]
    results = []
    for heads in (exact, longer):
        heads = [x.requires_grad_() for x in heads]
        out = ours_jointly(heads, 4, mask, 0.0)[0].transpose(0, 1)
        upstream = torch.ones_like(out)
        upstream[sum(queries) :] = torch.nan
        results.append((out, *torch.autograd.grad(out, heads, upstream)))
    for short, long in zip(*results, strict=True):
        assert torch.equal(long[: len(short)], short)
        assert not long[len(short) :].any()


@pytest.mark.parametrize("number", [3, 2, 1])
def test_the_operation_is_what_it_tells_the_compiler(device: torch.device, number: int) -> None:
    torch.manual_seed(0)
    tensors = [heads_of([4, 3], heads, torch.float32).to(device) for heads in (4, 2, 2)]
    lengths = torch.tensor([4, 3], device=device)
    mask = BlockDiagonal.of(lengths, lengths)
    heads = [x.requires_grad_() for x in joined(tensors, number)]
    found = torch.library.opcheck(attention, (heads, mask.blocks, 4, *mask.most, mask.causal, 0.0, SCALE))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize(
    ("of_itself", "kv_heads", "bias", "frozen"),
    [(True, 4, True, "v_proj"), (True, 2, False, ""), (False, 4, False, ""), (False, 1, True, "k_proj")],
)
def test_one_product_for_several_projections_changes_nothing(
    device: torch.device, of_itself: bool, kv_heads: int, bias: bool, frozen: str, bits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(cpu_attention, "unpadded_attention", unpadded_attention)  # the GPU's, wherever it runs
    torch.manual_seed(0)
    module = MultiHeadAttention(32, 4, 0.3, bias, kv_heads).to(device)
    keys = TGT_LENGTHS if of_itself else SRC_LENGTHS
    mask = BlockDiagonal.of(torch.tensor(TGT_LENGTHS, device=device), torch.tensor(keys, device=device), of_itself)
    x = torch.randn(1, sum(TGT_LENGTHS) + 3, 32, device=device, requires_grad=True)
    source = x if of_itself else torch.randn(1, sum(keys) + 5, 32, device=device, requires_grad=True)
    if frozen:
        module.get_submodule(frozen).requires_grad_(False)
    trained = [x, *[source] * (not of_itself), *(p for p in module.parameters() if p.requires_grad)]
    upstream = torch.randn(x.shape, device=device)
    results = []
    for jointly in (True, False):
        torch.manual_seed(SEED)
        with torch.autocast(device.type, LOW[device.type], enabled=bits == 16):
            out = module.attend_jointly(x, source, mask) if jointly else module.attend(*module.project(x, source), mask)
        results.append([out, *torch.autograd.grad(out, trained, upstream.to(out.dtype))])
    for joint, separate in zip(*results, strict=True):
        assert joint.dtype == separate.dtype
        # The gradient of a key's bias is nothing but rounding.
        assert (joint - separate).norm() <= (1e-5 if bits == 32 else 2**-7) * (separate.norm() + 10)


def test_a_sentence_of_nothing_leaves_the_others_alone(device: torch.device) -> None:
    torch.manual_seed(0)
    tensors = [heads_of(n, 2, torch.float32).to(device) for n in ([4, 3], [6, 5], [6, 5])]
    masks = [
        BlockDiagonal.of(torch.tensor(queries, device=device), torch.tensor(keys, device=device))
        for queries, keys in (([4, 3], [6, 5]), ([4, 0, 3], [6, 0, 5]))
    ]
    assert torch.equal(*(ours(tensors, mask, 0.0) for mask in masks))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_keeps_each_number_with_its_probability(device: torch.device, p: float) -> None:
    """And independently of the one next to it, in its draw or in another one."""
    x = torch.empty(1001, 37, device=device)
    threshold = round((1 - p) * STEPS)
    torch.manual_seed(SEED)
    chosen = kept(x, threshold)
    torch.manual_seed(SEED)
    assert torch.equal(kept(x, threshold), chosen)
    assert not torch.equal(kept(x, threshold), chosen)
    assert (chosen.shape, chosen.dtype) == (x.shape, torch.bool)
    flat = chosen.flatten().double()
    deviation = (p * (1 - p) / len(flat)) ** 0.5
    assert abs(flat.mean() - (1 - p)) <= 4 * deviation
    for apart in (1, 2, 4, 7, 8, 1024):
        both = (flat[apart:] * flat[:-apart]).mean()
        assert abs(both - (1 - p) ** 2) <= 5 * deviation
    assert kept(x, STEPS).all()
    assert not kept(x, 0).any()


@pytest.mark.parametrize(
    ("device_name", "dtype", "size"),
    [("cpu", torch.float32, 16), ("cuda", torch.float64, 16), ("cuda", torch.float32, 256)],
)
def test_what_the_kernels_are_not_made_for_is_not_taken(device_name: str, dtype: torch.dtype, size: int) -> None:
    assert not takes_heads(torch.device(device_name), dtype, size)
