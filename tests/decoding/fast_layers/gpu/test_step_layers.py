"""The Triton kernels of a search, and a search by them, against the formulas; and in CUDA graphs on a GPU: see
`tests/model/gpu/test_gpu_kernels.py`."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from greedy_choices import CHOICES, assert_chooses_as_torch_does, assert_equal_logits_are_decided_by_the_token
from searches import LENGTHS, model_of, search, sources
from torch import Tensor, nn
from translators import MODELS_BY_NAME

from transformer_mt.decoding.fast_layers import cuda_graphs, packed_weights
from transformer_mt.decoding.fast_layers.cuda_graphs import GraphedDecoders
from transformer_mt.decoding.fast_layers.gpu.greedy_choice import KernelGreedyRows
from transformer_mt.decoding.fast_layers.gpu.step_layers import LowLinear, StepPostNorm, StepSelfAttention, attend_rows
from transformer_mt.decoding.fast_layers.packed_weights import packed
from transformer_mt.decoding.model_decoder import ModelDecoder
from transformer_mt.decoding.search.greedy_rows import Choice
from transformer_mt.machine.cuda_graphs import CudaGraphs
from transformer_mt.model.cache import DecoderCache
from transformer_mt.model.gpu.post_norm import normed_sum_of

pytest.importorskip("triton", reason="Triton is not installed; `pip install triton` brings it")
LIMITS = [8, 3, 7, 9, 5]
MODELS = [
    "sinusoidal, post-norm",  # the end of a sublayer is a kernel, and the stream has 16 bits
    "rotary, pre-norm",
    "relative_bias, post-norm",  # a bias of each head
    "short window, one stream",  # which sees little of its slots, and has one key head
]
assert set(MODELS) <= set(MODELS_BY_NAME)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "num_rows", "head_dim", "num_keys", "dtype", "bound"),
    [
        (4, 4, 1, 8, 16, torch.float32, 1e-6),
        (4, 2, 3, 20, 48, torch.float32, 1e-6),
        (2, 1, 5, 64, 100, torch.float16, 2e-3),
        (2, 2, 2, 128, 70, torch.float32, 1e-6),
    ],
)
@pytest.mark.parametrize("of_heads", [False, True])
def test_attention_of_few_queries_is_that_of_the_formula(
    device: torch.device, num_heads: int, num_kv_heads: int, num_rows: int, head_dim: int, num_keys: int,
    dtype: torch.dtype, bound: float, of_heads: bool,
) -> None:  # fmt: skip
    """With a bias for each head or one for all; of one row only the last key is seen."""
    torch.manual_seed(0)
    joint = torch.randn(3, num_rows, 3, num_heads, head_dim, device=device).to(dtype)
    q = joint[:, :, 1].transpose(1, 2)  # as a product of several projections leaves it
    k, v = torch.randn(2, 3, num_kv_heads, num_keys, head_dim, device=device).to(dtype)
    seen = torch.rand(3, 1, num_rows, num_keys, device=device) > 0.6
    seen[0, :, 0] = False
    seen[..., -1] = True
    bias = torch.randn(3, num_heads if of_heads else 1, num_rows, num_keys, device=device)
    bias = bias.masked_fill(~seen, -torch.inf)
    found = attend_rows(q, k, v, bias, 0.3)
    keys, values = (x.double().repeat_interleave(num_heads // num_kv_heads, dim=1) for x in (k, v))
    exact = (q.double() * 0.3 @ keys.transpose(2, 3) + bias).softmax(dim=-1) @ values
    assert (found.dtype, found.shape) == (dtype, (3, num_rows, num_heads * head_dim))
    assert (found - exact.transpose(1, 2).flatten(2)).abs().max() <= bound


@pytest.mark.parametrize("choice", CHOICES)
def test_the_kernel_chooses_as_torch_does(device: torch.device, choice: Choice) -> None:
    assert_chooses_as_torch_does(KernelGreedyRows, choice, device, vocab_size=5001, bad=4000, strided=True)


def test_equal_logits_are_decided_by_the_token(device: torch.device) -> None:
    assert_equal_logits_are_decided_by_the_token(KernelGreedyRows, device)


@pytest.mark.parametrize("low", [torch.float32, torch.float16])
def test_a_sum_is_normed_out_of_training(device: torch.device, low: torch.dtype) -> None:
    torch.manual_seed(0)
    norm = nn.LayerNorm(24, device=device)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
        x, y = torch.randn(7, 1, 24, device=device), torch.randn(7, 1, 24, device=device).to(low)
        found = normed_sum_of(x, y, norm)
        assert (found.dtype, found.shape) == (low, x.shape)
        assert (found - norm(x + y)).abs().max() <= (1e-5 if low == torch.float32 else 4e-3)


class Uncaptured:
    """A `Capture` that runs its step as it is, since nothing records the kernels of an interpreter."""

    def __call__(self, step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        return step

    def forget(self) -> None:
        pass

    def has_room(self, num_bytes: int) -> bool:
        return True


def decoders_on(device: torch.device) -> GraphedDecoders:
    return GraphedDecoders(partial(CudaGraphs, device) if device.type == "cuda" else Uncaptured)


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (packed_weights, cuda_graphs):
        monkeypatch.setattr(module, "triton_works", lambda device: True)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_a_search_by_kernels_finds_what_torch_finds(
    name: str, beam_size: int, device: torch.device, by_kernels: None
) -> None:
    """On a GPU captured, too, and over an arena that a wider beam has made another."""
    model = model_of(name).to(device)
    src = sources(model.output.out_features, LENGTHS, 3).to(device)
    by_steps = packed(model, "fp32", for_graphs=True)
    kinds = {type(module) for module in by_steps.modules()}
    assert StepSelfAttention in kinds
    assert (StepPostNorm in kinds) == (model.config.norm_position == "post")
    decoders = decoders_on(device)
    sizes = [beam_size] if device.type == "cpu" else [beam_size] * 4 + [beam_size + 2] * 4 + [beam_size] * 2
    for size in sizes:
        decoder = decoders.begin(by_steps, src, max(LIMITS), size)
        assert decoder is not None
        assert type(decoder.arena.greedy) is KernelGreedyRows
        expected = search(ModelDecoder(model, src), LIMITS, size, device)
        for ours, theirs in zip(search(decoder, LIMITS, size, device), expected, strict=True):
            assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in theirs]
            assert [h.log_prob for h in ours] == pytest.approx([h.log_prob for h in theirs], abs=2e-3, rel=1e-4)
    assert not decoders.has_failed
    assert decoders.num_captured > 0 or device.type == "cpu"


@pytest.mark.parametrize(("name", "for_graphs"), [("lstm without feeding", True), ("sinusoidal, post-norm", False)])
def test_what_becomes_no_graph_goes_without_kernels(name: str, for_graphs: bool, by_kernels: None) -> None:
    model = packed(model_of(name), "fp16", for_graphs)
    assert not any(isinstance(module, StepPostNorm | LowLinear) for module in model.modules())


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_sixteen_bits_round_and_a_step_computes_what_a_whole_pass_does(
    name: str, device: torch.device, by_kernels: None
) -> None:
    model = model_of(name).to(device)
    src = sources(model.output.out_features, LENGTHS, 3).to(device)
    tgt_in = src.flip(0).masked_fill(src.flip(0) == 0, 5)
    low = packed(model, "fp16", for_graphs=True)
    exact = model(src, tgt_in)
    found = low(src, tgt_in)
    assert found.dtype == torch.float32
    assert (found - exact).norm() <= 3e-3 * exact.norm()
    assert not torch.equal(found, exact)
    cache = low.start(src)
    assert isinstance(cache, DecoderCache)
    kept = [cache.layers[0].memory_k, cache.layers[0].memory_v]
    assert {heads.dtype for heads in kept if heads is not None} <= {torch.float16}
    steps = torch.stack([low.decode_step(tgt_in[:, at], cache) for at in range(tgt_in.size(1))], dim=1)
    assert (steps - exact).norm() <= 3e-3 * exact.norm()
    assert cache.layers[0].k is not None
    assert cache.layers[0].k.dtype == torch.float16
