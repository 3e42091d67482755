"""A model as CTranslate2's own specification. Every option becomes the same function, or is refused by its name."""

from typing import Any

import torch
from ctranslate2.specs import (
    TransformerDecoderModelSpec,
    TransformerDecoderSpec,
    TransformerEncoderSpec,
    TransformerSpec,
)
from ctranslate2.specs.common_spec import Activation
from torch import Tensor, nn

from transformer_mt.config.schema import ModelConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, SPECIAL_TOKENS, UNK_ID
from transformer_mt.errors import UserError
from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.feed_forward import FeedForward, GatedFeedForward
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import DecoderLayer, EncoderLayer
from transformer_mt.model.positions import LARGEST_DISTANCE, ROTARY_BASE, RelativeBias
from transformer_mt.model.stack import Stack
from transformer_mt.model.transformer import Transformer

# Of CTranslate2's three kinds of GELU, GELU is the exact one.
ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "swiglu": Activation.SWISH,
    "geglu": Activation.GELU,
}


def refuse_inexpressible(config: ModelConfig) -> None:
    """UserError, naming the key, for a model that CTranslate2 cannot compute."""
    if config.num_experts > 1:
        raise UserError(
            f"model.num_experts is {config.num_experts}, and CTranslate2 has no mixture of experts. "
            "Train a model with model.num_experts: 1 to export it, or translate with `tmt translate`."
        )
    longest = config.max_len * (2 if config.architecture == "decoder_only" else 1)  # source and target in one stream
    if config.attention_window is not None and config.attention_window < longest:
        raise UserError(
            f"model.attention_window is {config.attention_window}, and CTranslate2 has no window over a sequence that "
            "is read at once. Train a model with model.attention_window: null to export it, or translate with "
            "`tmt translate`."
        )
    if config.positions == "relative_bias" and config.architecture == "decoder_only":
        raise UserError(
            "model.positions is relative_bias, which CTranslate2 counts wrongly after the prompt of a decoder_only "
            "model. Train one with model.positions: rotary to export it, or translate with `tmt translate`."
        )


def make_spec(model: TranslationModel, src_vocab: list[str], tgt_vocab: list[str]) -> Any:
    """The specification, filled with copies of the model's weights; the vocabularies in the order of their ids.

    An encoder-decoder is a model for `ctranslate2.Translator` that adds EOS to the source itself and begins the target
    with BOS; a decoder-only model one for `ctranslate2.Generator`, whose prompt is x EOS BOS.
    """
    config = model.config
    refuse_inexpressible(config)
    options = _stack_options(config)
    if isinstance(model, DecoderOnly):
        # Without num_heads_kv the specification would announce shared heads.
        decoder = TransformerDecoderSpec(
            config.num_decoder_layers, with_encoder_attention=False, num_heads_kv=config.num_heads, **options
        )
        spec: Any = TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(tgt_vocab)
    else:
        assert isinstance(model, Transformer)
        encoder = TransformerEncoderSpec(config.num_encoder_layers, **options)
        spec = TransformerSpec(encoder, TransformerDecoderSpec(config.num_decoder_layers, **options))
        spec.register_source_vocabulary(src_vocab)
        spec.register_target_vocabulary(tgt_vocab)
        spec.config.add_source_eos = True
        spec.config.decoder_start_token = SPECIAL_TOKENS[BOS_ID]
        _fill_stack(spec.encoder, model.encoder, config)
        spec.encoder.embeddings[0].weight = _copy(model.encoder.embedder.embedding.weight)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        SPECIAL_TOKENS[i] for i in (UNK_ID, BOS_ID, EOS_ID)
    )
    _fill_stack(spec.decoder, model.decoder, config)
    spec.decoder.embeddings.weight = _copy(model.decoder.embedder.embedding.weight)
    _fill_linear(spec.decoder.projection, model.output)
    first = model.decoder.layers[0]
    assert isinstance(first, EncoderLayer | DecoderLayer)
    spec.config.layer_norm_epsilon = first.self_attn_residual.norm.eps
    return spec


def _stack_options(config: ModelConfig) -> dict[str, Any]:
    """What the specification of either stack is told."""
    return {
        "num_heads": config.num_heads,
        "pre_norm": config.norm_position == "pre",
        "rms_norm": config.norm == "rmsnorm",
        "activation": ACTIVATIONS[config.activation],
        "ffn_glu": config.activation in ("swiglu", "geglu"),
        "relative_attention_bias": config.positions == "relative_bias",
        "rotary_dim": 0 if config.positions == "rotary" else None,  # 0: the whole head
        "rotary_interleave": False,
        "rotary_base": ROTARY_BASE,
    }


def _fill_stack(spec: Any, stack: Stack, config: ModelConfig) -> None:
    """Layers, positions and final norm; the embedding is multiplied by sqrt(d_model), as it is here."""
    spec.scale_embeddings = True
    positions = stack.embedder.positions
    if config.positions not in ("rotary", "relative_bias"):
        # What they add to an embedding: their own table, and zeros where there are none. Without one CTranslate2 would
        # make sinusoids of its own, by another formula.
        num = config.max_len * (2 if config.architecture == "decoder_only" else 1)
        added = positions(torch.zeros(1, num, config.d_model), torch.arange(num)[None])
        spec.position_encodings.encodings = _copy(added[0])
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, EncoderLayer | DecoderLayer)
        _fill_layer(layer_spec, layer)
        if isinstance(positions, RelativeBias):
            layer_spec.self_attention.relative_attention_bias = _copy(positions.embedding.weight)
            layer_spec.self_attention.relative_attention_max_distance = _int32(LARGEST_DISTANCE)
    if config.norm_position == "pre":
        _fill_norm(spec.layer_norm, stack.norm)


def _fill_layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _fill_attention(spec.self_attention, layer.self_attn, layer.self_attn_residual.norm, "qkv")
    if isinstance(layer, DecoderLayer):
        _fill_attention(spec.attention, layer.cross_attn, layer.cross_attn_residual.norm, "q", "kv")
    dense = layer.feed_forward
    assert isinstance(dense, FeedForward)
    _fill_norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)
    _fill_linear(spec.ffn.linear_1, dense.out_proj)
    if isinstance(dense, GatedFeedForward):
        _fill_linear(spec.ffn.linear_0, dense.gate_proj)
        _fill_linear(spec.ffn.linear_0_noact, dense.in_proj)
    else:
        _fill_linear(spec.ffn.linear_0, dense.in_proj)


def _fill_attention(spec: Any, attention: MultiHeadAttention, norm: nn.Module, *joined: str) -> None:
    """`joined` says which projections stand together in each of the specification's matrices, out_proj apart.

    A key head that several query heads share is written once for each: CTranslate2 knows shared heads in
    self-attention only, and copies them there itself.
    """
    parts = {
        "q": (attention.q_proj, 1),
        "k": (attention.k_proj, attention.num_heads // attention.num_kv_heads),
        "v": (attention.v_proj, attention.num_heads // attention.num_kv_heads),
    }
    for linear, names in zip(spec.linear, joined, strict=False):
        chosen = [parts[name] for name in names]
        linear.weight = _copy(torch.cat([_repeat_heads(p.weight, n, attention.head_dim) for p, n in chosen]))
        if attention.q_proj.bias is not None:
            linear.bias = _copy(torch.cat([_repeat_heads(p.bias, n, attention.head_dim) for p, n in chosen]))
    _fill_linear(spec.linear[-1], attention.out_proj)
    _fill_norm(spec.layer_norm, norm)
    spec.queries_scale = attention.scale


def _repeat_heads(rows: Tensor, times: int, head_dim: int) -> Tensor:
    """(heads * head_dim, ...) -> (heads * times * head_dim, ...), the copies of a head side by side."""
    return rows.unflatten(0, (-1, head_dim)).repeat_interleave(times, dim=0).flatten(0, 1)


def _fill_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _copy(linear.weight)
    if linear.bias is not None:
        spec.bias = _copy(linear.bias)


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    """A layer norm without bias gets one of zeros: without any, CTranslate2 would take it for an RMSNorm."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = _copy(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _copy(torch.zeros_like(norm.weight) if norm.bias is None else norm.bias)


def _copy(tensor: Tensor) -> Any:
    """As numpy. A copy, for CTranslate2 scales what it quantizes in place."""
    return tensor.detach().float().clone().numpy()


def _int32(number: int) -> Any:
    return torch.tensor(number, dtype=torch.int32).numpy()
