"""A model as CTranslate2's own specification. It computes the same function; other options are refused by name."""

from collections.abc import Sequence
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

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, SPECIAL_TOKENS, UNK_ID
from transformer_mt.errors import UserError
from transformer_mt.export.expressible import Engine, all_refusals, refuse_architecture, refuse_pictures
from transformer_mt.export.heads import repeat_heads
from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import DecoderLayer, EncoderLayer
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.feed_forward import FeedForward, GatedFeedForward
from transformer_mt.model.parts.positions import LARGEST_DISTANCE, POSITIONS, RelativeBias
from transformer_mt.model.stack import Stack
from transformer_mt.model.transformer import Transformer

# The settings of those positions that CTranslate2 counts rightly after the prompt of a decoder_only model.
RIGHT_IN_ONE_STREAM = {"rotary_dim", "rotary_interleave", "rotary_base"}
STACKED = ("encoder_decoder", "decoder_only")
ENGINE = Engine("CTranslate2", lambda option: option.ctranslate2)


def refuse_inexpressible(
    config: ModelConfig, architectures: Sequence[str] = STACKED, what: str = "CTranslate2 runs Transformers"
) -> None:
    """UserError, with all keys, unless CTranslate2 is known to compute the model. Whoever uses it may know fewer
    `architectures`; `what` says why.
    """
    all_refusals(
        lambda: refuse_architecture(config, architectures, what),
        lambda: refuse_pictures(config, ENGINE.name),
        lambda: ENGINE.refuse_unknown(config),
        lambda: ENGINE.refuse_window(config),
        lambda: _refuse_positions(config, architectures),
    )


def _refuse_positions(config: ModelConfig, architectures: Sequence[str]) -> None:
    told = POSITIONS[config.positions].ctranslate2 or {}
    if config.architecture not in architectures:
        return  # the architecture is refused, and in another one these positions may be right
    if config.architecture == "decoder_only" and not told.keys() <= RIGHT_IN_ONE_STREAM:
        raise UserError(
            f"model.positions is {config.positions}, which CTranslate2 counts wrongly after the prompt of a "
            "decoder_only model. Train one with model.positions: rotary to export it, or translate with "
            "`tmt translate`."
        )


def make_spec(model: TranslationModel, src_vocab: list[str], tgt_vocab: list[str]) -> Any:
    """The specification, filled with copies of the model's weights; the vocabularies in the order of their ids.

    `ctranslate2.Translator` runs an encoder-decoder: it adds EOS to the source and begins the target with BOS.
    `ctranslate2.Generator` runs a decoder-only model; its prompt is x EOS BOS.
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
        spec.encoder.embeddings[0].weight = _copy(model.encoder.embedder.table)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        SPECIAL_TOKENS[i] for i in (UNK_ID, BOS_ID, EOS_ID)
    )
    _fill_stack(spec.decoder, model.decoder, config)
    spec.decoder.embeddings.weight = _copy(model.decoder.embedder.table)
    _fill_linear(spec.decoder.projection, model.output)
    first = model.decoder.layers[0]
    assert isinstance(first, EncoderLayer | DecoderLayer)
    spec.config.layer_norm_epsilon = first.self_attn_residual.norm.eps
    return spec


def _stack_options(config: ModelConfig) -> dict[str, Any]:
    """The settings for the specification of either stack."""
    told = ENGINE.settings(config)
    return {"num_heads": config.num_heads, **told, "activation": Activation[told["activation"]]}


def _fill_stack(spec: Any, stack: Stack, config: ModelConfig) -> None:
    """Fill layers, positions and final norm. The embedding is multiplied by sqrt(d_model), as in our model."""
    spec.scale_embeddings = True
    positions = stack.embedder.positions
    if not POSITIONS[config.positions].ctranslate2:
        # The vectors that the positions add to an embedding, zeros where they add none. Without a table CTranslate2
        # would add sinusoids by a formula of its own.
        num = config.max_len * (2 if config.architecture == "decoder_only" else 1)
        added = positions(torch.zeros(1, num, config.d_model), torch.arange(num)[None])
        spec.position_encodings.encodings = _copy(added[0])
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, EncoderLayer | DecoderLayer)
        _fill_layer(layer_spec, layer)
        if isinstance(positions, RelativeBias):
            layer_spec.self_attention.relative_attention_bias = _copy(positions.embedding.weight)
            layer_spec.self_attention.relative_attention_max_distance = _int32(LARGEST_DISTANCE)
    if not isinstance(stack.norm, nn.Identity):
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
    """Fill an attention. `joined` says which projections each matrix of the specification holds, apart from out_proj.

    A key head that several query heads share is written once for each of them, because CTranslate2 knows shared heads
    in self-attention only.
    """
    parts = {
        "q": (attention.q_proj, 1),
        "k": (attention.k_proj, attention.num_heads // attention.num_kv_heads),
        "v": (attention.v_proj, attention.num_heads // attention.num_kv_heads),
    }
    for linear, names in zip(spec.linear, joined, strict=False):
        chosen = [parts[name] for name in names]
        linear.weight = _copy(torch.cat([repeat_heads(p.weight, n, attention.head_dim) for p, n in chosen]))
        if attention.q_proj.bias is not None:
            linear.bias = _copy(torch.cat([repeat_heads(p.bias, n, attention.head_dim) for p, n in chosen]))
    _fill_linear(spec.linear[-1], attention.out_proj)
    _fill_norm(spec.layer_norm, norm)
    spec.queries_scale = attention.scale


def _fill_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _copy(linear.weight)
    if linear.bias is not None:
        spec.bias = _copy(linear.bias)


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    """Fill a norm. A layer norm without bias gets zeros, or else CTranslate2 would take it for an RMSNorm."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = _copy(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _copy(torch.zeros_like(norm.weight) if norm.bias is None else norm.bias)


def _copy(tensor: Tensor) -> Any:
    """A copy as numpy, because CTranslate2 scales weights in place when it quantizes them."""
    return tensor.detach().float().clone().numpy()


def _int32(number: int) -> Any:
    return torch.tensor(number, dtype=torch.int32).numpy()
