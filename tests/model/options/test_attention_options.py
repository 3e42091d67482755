"""Grouped heads, scale, windows and dropout: each acts where its key says; and what the fused kernel is told."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from plain_model import VOCAB, random_ids
from small_models import make_config
from torch import Tensor

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.layers import DecoderLayer
from transformer_mt.model.loss import batch_loss
from transformer_mt.model.masks import causal_mask, itself, window_mask
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.layer_context import LayerContext
from transformer_mt.model.parts.positions import POSITIONS, Positions, RotaryPositions
from transformer_mt.model.transformer import Transformer

# Heads and windows


def test_grouped_queries_with_copied_heads_are_multi_head_attention() -> None:
    torch.manual_seed(0)
    grouped = MultiHeadAttention(16, 4, 0.0, bias=True, num_kv_heads=2)
    full = MultiHeadAttention(16, 4, 0.0, bias=True)
    full.load_state_dict(grouped.state_dict() | {
        f"{name}_proj.{part}": getattr(grouped.get_submodule(f"{name}_proj"), part).unflatten(0, (2, 4))
        .repeat_interleave(2, dim=0).flatten(0, 1)
        for name in "kv" for part in ("weight", "bias")
    })  # fmt: skip
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    mask = torch.rand(2, 1, 5, 7) > 0.3
    mask[..., 0] = True
    per_head = torch.randn(2, 4, 5, 7).masked_fill(~mask, -torch.inf)
    for m in (None, mask, mask[:, :, :1], mask[:1], per_head, per_head[:1]):
        torch.testing.assert_close(grouped(x, memory, m), full(x, memory, m))
        torch.testing.assert_close(grouped.weights(x, memory, m), full.weights(x, memory, m))


@pytest.mark.parametrize("num_kv_heads", [None, 2, 1])
def test_the_weights_are_what_the_values_are_weighed_by(num_kv_heads: int | None) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 4, 0.0, True, num_kv_heads, scaled=False)
    x = torch.randn(2, 5, 16)
    bias = torch.randn(1, 4, 5, 5).masked_fill(~causal_mask(5), -torch.inf)
    turn = RotaryPositions(make_config(), 8, causal=True).rotation(torch.arange(5)[None])
    v = attention.project_key_value(x)[1].repeat_interleave(4 // attention.num_kv_heads, dim=1)
    expected = attention.join_heads(attention.weights(x, x, bias, turn) @ v)
    torch.testing.assert_close(attention(x, x, bias, turn), expected, atol=1e-5, rtol=1e-5)


def test_unscaled_scores_are_larger_by_the_root_of_the_head_size() -> None:
    torch.manual_seed(0)
    scaled, plain = MultiHeadAttention(16, 4, 0.0, False), MultiHeadAttention(16, 4, 0.0, False, scaled=False)
    plain.load_state_dict(scaled.state_dict())
    with torch.no_grad():
        plain.q_proj.weight.div_(math.sqrt(4))
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(plain(x, x), scaled(x, x))


def test_an_unscaled_model_starts_as_the_scaled_one() -> None:
    outputs = []
    for scaled in (True, False):
        torch.manual_seed(0)
        model = Transformer(make_config(scale_attention=scaled), VOCAB, VOCAB).eval()
        outputs.append(model(random_ids(2, 7), random_ids(2, 5, seed=2)))
    torch.testing.assert_close(*outputs)


def test_a_window_by_hand() -> None:
    at = torch.arange(5)[None]
    near = window_mask(at, at, 2)[0, 0].int().tolist()
    assert near == [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]
    assert itself(2)[0, 0].int().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("architecture", [Transformer, DecoderOnly])
def test_a_window_as_long_as_the_stream_is_none(architecture: type[Transformer] | type[DecoderOnly]) -> None:
    stacks = {} if architecture is Transformer else {"architecture": "decoder_only", "num_encoder_layers": 0}
    outputs = []
    for window in (None, 12, 4):
        torch.manual_seed(0)
        model = architecture(make_config(attention_window=window, **stacks), VOCAB, VOCAB).eval()
        outputs.append(model(random_ids(2, 7), random_ids(2, 5, seed=2)))
    torch.testing.assert_close(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2], atol=1e-3)


# Dropout


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dropout": 0.5}, (True, True, True)),
        ({"dropout": 0.5, "attention_dropout": 0.0}, (True, False, True)),
        ({"dropout": 0.5, "activation_dropout": 0.0}, (True, True, False)),
        ({"dropout": 0.0, "attention_dropout": 0.5}, (False, True, False)),
        ({"dropout": 0.0, "activation_dropout": 0.5}, (False, False, True)),
    ],
)
def test_each_dropout_acts_where_its_key_says(
    changes: dict[str, Any], expected: tuple[bool, bool, bool], activation: str
) -> None:
    """Two passes over the same differ where something is dropped, and nowhere else."""
    torch.manual_seed(0)
    model = Transformer(make_config(activation=activation, **changes), VOCAB, VOCAB).train()
    layer, x = model.get_submodule("decoder.layers.1"), torch.randn(2, 5, 16)
    assert isinstance(layer, DecoderLayer)
    passes: list[tuple[Callable[[], Tensor], ...]] = [
        (
            lambda: layer.self_attn_residual.add(x, x),
            lambda: model.encoder.embedder(random_ids(2, 5), torch.arange(5)[None]),
        ),
        (lambda: layer.self_attn(x, x), lambda: layer.cross_attn(x, x, causal_mask(5))),
        (lambda: layer.feed_forward(x),),
    ]
    for group, drops in zip(passes, expected, strict=True):
        assert [not torch.equal(compute(), compute()) for compute in group] == [drops] * len(group)


def test_attention_without_padding_has_its_own_dropout() -> None:
    """With heads wide enough for it, where weights are dropped in another place of the code."""
    src, tgt = random_ids(3, 7), random_ids(3, 6, seed=2)
    for p, differ in ((0.0, False), (0.5, True)):
        torch.manual_seed(0)
        config = make_config(num_heads=1, dropout=0.0, attention_dropout=p)
        model = Transformer(config, VOCAB, VOCAB).train()
        losses = [batch_loss(model, src, tgt, tgt, 0.1).loss for _ in range(2)]
        assert model.goes_unpadded()
        assert (losses[0] != losses[1]) == differ


# What the fused kernel is told


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [
        ({}, True),
        ({"num_kv_heads": 4}, True),
        ({"num_kv_heads": 2}, False),
        ({"attention_window": 3}, False),
        *(({"positions": name}, option.make.bias is Positions.bias) for name, option in POSITIONS.items()),
    ],
)
def test_a_mask_that_is_causal_and_no_more_is_told_and_not_given(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], is_told: bool
) -> None:
    """In the decoder's self-attention alone, and it gives what the mask gives. A GPU has another kernel for it."""
    calls: list[tuple[bool, bool]] = []
    fused = F.scaled_dot_product_attention

    def watched(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, is_causal: bool = False, **more):
        calls.append((mask is None, is_causal))
        return fused(q, k, v, mask, dropout, is_causal, **more)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    torch.manual_seed(0)
    model = Transformer(make_config(**changes), VOCAB, VOCAB).eval()
    src, tgt = random_ids(3, 7), random_ids(3, 6, seed=2)
    tgt[0, 4:] = PAD_ID
    told = model.hidden_states(src, tgt)
    assert calls == [(False, False)] * 2 + [(is_told, is_told), (False, False)] * 2
    monkeypatch.setattr(
        LayerContext, "is_causal", property(lambda self: False, lambda self, value: None), raising=False
    )
    calls.clear()
    torch.testing.assert_close(told, model.hidden_states(src, tgt), atol=1e-6, rtol=0)
    assert calls == [(False, False)] * 6
