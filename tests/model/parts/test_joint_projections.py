"""When the projections of an attention are one product, and that the compiler goes along with it.

Tensors without data take the way of a GPU here. What it computes is compared in `test_gpu_kernels.py`.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental import _config as fx_config

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.gpu import attention as gpu
from transformer_mt.model.layers import DecoderLayer
from transformer_mt.model.parts import attention
from transformer_mt.model.parts.attention import MultiHeadAttention, unrotated
from transformer_mt.model.parts.layer_context import LayerContext
from transformer_mt.model.unpadded import BlockDiagonal
from transformer_mt.training.proofs.forward_order import forward_order

OF_ALL, OF_SOME, SEPARATE = [8], [4, 4], [4, 2, 2]  # heads in each tensor, of four queries, two keys and two values


@pytest.fixture(autouse=True)
def on_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "lowered", lambda x: x)  # there is no autocast of tensors without data


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The number of heads in each tensor that a GPU's attention was given, a list for every call."""
    seen: list[list[int]] = []
    attend = gpu.joint_attention

    def spied(heads: list[Tensor], *rest) -> Tensor:
        seen.append([x.size(1) for x in heads])
        return attend(heads, *rest)

    monkeypatch.setattr(gpu, "joint_attention", spied)
    return seen


def mask_of(num_sentences: int = 3) -> BlockDiagonal:
    lengths = torch.empty(num_sentences, dtype=torch.int64, device="meta")
    return BlockDiagonal.of(lengths, lengths, most=(9, 9))


def made() -> MultiHeadAttention:
    with torch.device("meta"):
        return MultiHeadAttention(32, 4, 0.1, bias=True, num_kv_heads=2)


def rows(number: int) -> Tensor:
    return torch.randn(1, number, 32, device="meta", requires_grad=True)


def test_self_attention_is_one_product_and_cross_attention_two(taken: list[list[int]]) -> None:
    module, x = made(), rows(24)
    for source in (x, rows(40)):
        out = module(x, source, mask_of())
        assert out.shape == x.shape
        out.sum().backward()
        assert all(p.grad is not None and p.grad.shape == p.shape for p in module.parameters())
    assert taken == [OF_ALL, OF_SOME]


class Wrapped(nn.Linear):
    """As a part that is put in the place of a projection, to learn something more."""


def wrap(module: MultiHeadAttention) -> None:
    module.k_proj = Wrapped(32, 16, device="meta")


def ignore(*_: object) -> None: ...


@pytest.mark.parametrize(
    "change",
    [
        wrap,
        lambda module: module.q_proj.register_forward_hook(ignore),
        lambda module: module.k_proj.register_forward_pre_hook(ignore),
        lambda module: module.v_proj.register_full_backward_hook(ignore),
        lambda module: module.v_proj.register_full_backward_pre_hook(ignore),
    ],
)
def test_projections_that_are_more_than_products_are_called(
    change: Callable[[MultiHeadAttention], object], taken: list[list[int]]
) -> None:
    module, x = made(), rows(24)
    change(module)
    module(x, x, mask_of())
    assert taken == [SEPARATE]


def test_rotated_heads_are_apart(taken: list[list[int]]) -> None:
    x = rows(24)
    made()(x, x, mask_of(), lambda heads: -heads)
    assert taken == [SEPARATE]


def test_other_masks_and_other_uses_than_training_know_nothing_of_it(taken: list[list[int]]) -> None:
    module, x = made(), rows(24)
    module(x, x)
    module(x, x, torch.ones(1, 1, 24, 24, dtype=torch.bool, device="meta"))
    assert not taken
    module.eval()(x, x, mask_of())
    assert taken == [SEPARATE]


def test_the_proofs_of_gradients_see_the_way_that_training_takes(taken: list[list[int]]) -> None:
    module, x = made(), rows(24)
    with forward_order(nn.ModuleDict({"self_attn": module})) as order:
        module(x, x, mask_of())
    assert taken == [OF_ALL]
    assert order.of("self_attn.q_proj.weight") == order.returned["self_attn"]


@pytest.fixture
def nothing_compiled() -> Iterator[None]:
    """Neither before nor after; and meanwhile sizes that are equal are not taken for one, as `CompiledStep` has it."""
    torch._dynamo.reset()
    with fx_config.patch(use_duck_shape=False):  # pyright: ignore[reportAttributeAccessIssue]
        yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_compiled")
def test_layers_are_compiled_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(gpu, "unpadded_attention")  # the other way
    counted = torch._dynamo.utils.counters["stats"]
    before = counted["unique_graphs"]
    config = ModelConfig(d_model=32, d_ff=64, num_heads=4, num_kv_heads=2, dropout=0.0)
    with torch.device("meta"):
        layers = [DecoderLayer(config) for _ in range(2)]
    for layer in layers:
        layer.compile(dynamic=True, fullgraph=True, backend="aot_eager")
    for num_src, num_tgt, num_sentences in ((24, 40, 3), (56, 32, 5)):
        memory, x, mask = rows(num_src), rows(num_tgt), mask_of(num_sentences)
        for layer in layers:
            x = layer(x, LayerContext(mask, unrotated), memory, mask)
        x.sum().backward()
    assert all(p.grad is not None for layer in layers for p in layer.parameters())
    assert counted["unique_graphs"] - before == 1
