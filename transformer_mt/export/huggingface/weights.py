"""A model's weights under the names of `transformers`, and the settings by which it computes the same function.

The residual stream changes its order. `transformers` puts all sines of a position before all cosines, and here they
take turns. Norms and linear maps do not care about the order of the coordinates, as long as all of them agree: so one
fixed permutation of embeddings, norms, inputs and outputs of every layer gives the same logits.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID
from transformer_mt.errors import UserError
from transformer_mt.export.expressible import (
    INSTEAD,
    OPTIONS,
    Engine,
    all_refusals,
    refuse_architecture,
    refuse_pictures,
)
from transformer_mt.export.heads import repeat_heads
from transformer_mt.model.layers import DecoderLayer, EncoderLayer
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.feed_forward import FeedForward
from transformer_mt.model.parts.positions import sinusoidal_table
from transformer_mt.model.transformer import Transformer

ENGINE = Engine("transformers", lambda option: option.huggingface)
# The class of each model type, and which embeddings it may tie. PegasusForConditionalGeneration has one matrix for all.
CLASSES: dict[str, tuple[str, set[str]]] = {
    "pegasus": ("PegasusForConditionalGeneration", {"all"}),
    "marian": ("MarianMTModel", {"none", "decoder", "all"}),
}


def refuse_inexpressible(config: ModelConfig) -> None:
    """UserError, with all keys, unless `transformers` is known to compute the model."""
    all_refusals(
        lambda: refuse_architecture(config, ["encoder_decoder"], "transformers has no such translation model"),
        lambda: refuse_pictures(config, ENGINE.name),
        lambda: ENGINE.refuse_unknown(config),
        lambda: ENGINE.refuse_window(config),
        lambda: _refuse_ties(config),
    )


def _refuse_ties(config: ModelConfig) -> None:
    told = OPTIONS["norm_position"][config.norm_position].huggingface
    if told is None:
        return
    name, ties = CLASSES[told["model_type"]]
    if config.tie_embeddings not in ties:
        other = next(
            value
            for value, option in OPTIONS["norm_position"].items()
            if option.huggingface and config.tie_embeddings in CLASSES[option.huggingface["model_type"]][1]
        )
        raise UserError(
            f"model.tie_embeddings is {config.tie_embeddings} and model.norm_position {config.norm_position}, for "
            f"which transformers has {name}, with one matrix for all embeddings. Train a model with "
            f"model.tie_embeddings: {' or '.join(sorted(ties))}, or model.norm_position: {other}, {INSTEAD}"
        )


def model_settings(config: RunConfig, vocab_size: int) -> dict[str, Any]:
    """The content of config.json. Both sides have one vocabulary, and so one size."""
    model = config.model
    told = ENGINE.settings(model)
    return {
        "architectures": [CLASSES[told["model_type"]][0]],
        **told,
        "vocab_size": vocab_size,
        "decoder_vocab_size": vocab_size,
        "d_model": model.d_model,
        "encoder_layers": model.num_encoder_layers,
        "decoder_layers": model.num_decoder_layers,
        "encoder_attention_heads": model.num_heads,
        "decoder_attention_heads": model.num_heads,
        "encoder_ffn_dim": model.d_ff,
        "decoder_ffn_dim": model.d_ff,
        "max_position_embeddings": model.max_len,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": model.tie_embeddings == "all",
        "tie_word_embeddings": model.tie_embeddings != "none",
        "dropout": model.dropout,
        "attention_dropout": model.dropout if model.attention_dropout is None else model.attention_dropout,
        "activation_dropout": model.dropout if model.activation_dropout is None else model.activation_dropout,
        "is_encoder_decoder": True,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,  # by default both kinds of model would force one
        "torch_dtype": "float32",
    }


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """All weights in fp32, under the names of MarianMTModel and PegasusForConditionalGeneration, which agree."""
    return _Weights(model.config).of(model)


class _Weights:
    """Weights by their names. `order` says which of our coordinates stands at each place of the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.order = torch.cat((torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)))
        self.found: dict[str, Tensor] = {}

    def of(self, model: Transformer) -> dict[str, Tensor]:
        """All weights of the model under the names that `transformers` has for them."""
        src, tgt = (stack.embedder.table[:, self.order] for stack in (model.encoder, model.decoder))
        if self.config.tie_embeddings == "all":
            self.found["model.shared.weight"] = src
        else:
            self.found |= {"model.encoder.embed_tokens.weight": src, "model.decoder.embed_tokens.weight": tgt}
        if self.config.tie_embeddings == "none":
            self.found["lm_head.weight"] = model.output.weight[:, self.order]
        bias = model.output.bias
        self.found["final_logits_bias"] = (torch.zeros(len(tgt)) if bias is None else bias)[None]
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            # They can be worked out again. But PegasusForConditionalGeneration warns where a file lacks them.
            table = sinusoidal_table(self.config.max_len, self.config.d_model)
            self.found[f"model.{name}.embed_positions.weight"] = table[:, self.order]
            for i, layer in enumerate(stack.layers):
                assert isinstance(layer, EncoderLayer | DecoderLayer)
                self._add_layer(f"model.{name}.layers.{i}", layer)
            if not isinstance(stack.norm, nn.Identity):
                self._add_norm(f"model.{name}.layer_norm", stack.norm)
        return {name: weight.detach().float().clone().contiguous() for name, weight in self.found.items()}

    def _add_layer(self, name: str, layer: EncoderLayer | DecoderLayer) -> None:
        self._add_attention(f"{name}.self_attn", layer.self_attn, layer.self_attn_residual.norm)
        if isinstance(layer, DecoderLayer):
            self._add_attention(f"{name}.encoder_attn", layer.cross_attn, layer.cross_attn_residual.norm)
        dense = layer.feed_forward
        assert isinstance(dense, FeedForward)
        self._add(f"{name}.fc1", dense.in_proj.weight[:, self.order], dense.in_proj.bias)
        self._add_output(f"{name}.fc2", dense.out_proj)
        self._add_norm(f"{name}.final_layer_norm", layer.feed_forward_residual.norm)

    def _add_attention(self, name: str, attention: MultiHeadAttention, norm: nn.Module) -> None:
        """An attention whose scores are always divided by the root of a head's size, and whose heads are never shared:
        the query of one that is not scaled is multiplied by that root, and a shared key head is written once a head.
        """
        group = attention.num_heads // attention.num_kv_heads
        for part, times in (("q_proj", 1), ("k_proj", group), ("v_proj", group)):
            linear: nn.Linear = getattr(attention, part)
            scaled = part != "q_proj" or self.config.scale_attention
            factor = 1.0 if scaled else math.sqrt(attention.head_dim)
            weight = repeat_heads(linear.weight, times, attention.head_dim)[:, self.order] * factor
            bias = None if linear.bias is None else repeat_heads(linear.bias, times, attention.head_dim) * factor
            self._add(f"{name}.{part}", weight, bias)
        self._add_output(f"{name}.out_proj", attention.out_proj)
        self._add_norm(f"{name}_layer_norm", norm)

    def _add_output(self, name: str, linear: nn.Linear) -> None:
        """A linear map back into the residual stream."""
        bias = None if linear.bias is None else linear.bias[self.order]
        self._add(name, linear.weight[self.order], bias)

    def _add_norm(self, name: str, norm: nn.Module) -> None:
        assert isinstance(norm, nn.LayerNorm)
        self._add(name, norm.weight[self.order], None if norm.bias is None else norm.bias[self.order])

    def _add(self, name: str, weight: Tensor, bias: Tensor | None) -> None:
        """`transformers` has a bias everywhere; zeros where this model has none."""
        self.found[f"{name}.weight"] = weight
        self.found[f"{name}.bias"] = torch.zeros(len(weight)) if bias is None else bias
