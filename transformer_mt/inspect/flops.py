"""The number of floating-point operations of a translation, computed from the sizes of the model's matrices.

A multiply-add counts as 2. Matrix products count: every linear map, attention's scores and its sums of values. A pair
of query and key counts even where the mask hides it. Embedding, norms, softmax, biases, activations and residual sums
do not count. A token costs the router and the experts that it is given.
"""

from collections import Counter

from torch import nn

from transformer_mt.inspect.part_sizes import stacks_of
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import DecoderLayer, EncoderLayer
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.experts import MixtureOfExperts
from transformer_mt.model.recurrent.attention import AdditiveAttention, GeneralAttention
from transformer_mt.model.recurrent.rnn import Rnn


def flops_by_part(model: TranslationModel, src_len: int, tgt_len: int) -> dict[str, int]:
    """The operations of one translation by greedy search over the cache, by the parts of `parameters_by_part`.

    src_len is the length of the source with EOS. tgt_len is the number of steps; they feed BOS and the translation
    without EOS. The source is computed once, each fed token with the tokens before it.
    """
    if isinstance(model, Rnn):
        return _of_recurrent(model, src_len, tgt_len)
    stacks = stacks_of(model)
    prefix = 0 if "encoder" in stacks else src_len  # in one stream the decoder reads the source first
    so_far = tgt_len * (tgt_len + 1) // 2
    counts: Counter[str] = Counter()
    for name, stack in stacks.items():
        num_tokens, pairs = prefix + tgt_len, prefix**2 + prefix * tgt_len + so_far
        if name == "encoder":
            num_tokens, pairs = src_len, src_len**2
        for layer in stack.layers:
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            counts[f"{name}.self_attn"] += _attention(layer.self_attn, num_tokens, num_tokens, pairs)
            if isinstance(layer, DecoderLayer):
                counts[f"{name}.cross_attn"] += _attention(layer.cross_attn, tgt_len, src_len, tgt_len * src_len)
            counts[f"{name}.feed_forward"] += num_tokens * _feed_forward(layer.feed_forward)
    counts["output"] = tgt_len * _linear(model.output)
    return dict(counts)


def _of_recurrent(model: Rnn, src_len: int, tgt_len: int) -> dict[str, int]:
    """The same of a recurrent network: every matrix once a token, the keys and the first states once a sentence."""
    attention, pairs = model.decoder.cross_attn, src_len * tgt_len
    of_query, of_key, of_pair = 0, 0, 2 * model.config.d_model
    if isinstance(attention, AdditiveAttention):
        of_query = _linear(attention.q_proj)
    if isinstance(attention, AdditiveAttention | GeneralAttention):
        of_key = _linear(attention.k_proj)
    d_memory = model.decoder.bridge.in_features * 2
    return {
        "encoder.rnn": src_len * _matrices(model.encoder.rnn),
        "decoder.bridge": _linear(model.decoder.bridge),
        "decoder.cross_attn": src_len * of_key + tgt_len * of_query + pairs * (of_pair + 2 * d_memory),
        "decoder.rnn": tgt_len * _matrices(model.decoder.rnn),
        "decoder.readout": tgt_len * _linear(model.decoder.readout),
        "output": tgt_len * _linear(model.output),
    }


def _matrices(module: nn.Module) -> int:
    """The operations of one token through all matrices of a module."""
    return sum(2 * parameter.numel() for parameter in module.parameters() if parameter.dim() == 2)


def _attention(attention: MultiHeadAttention, num_queries: int, num_keys: int, pairs: int) -> int:
    """Queries and outputs of `num_queries` positions, keys and values of `num_keys`, a score and a value a pair."""
    projections = num_queries * (_linear(attention.q_proj) + _linear(attention.out_proj))
    projections += num_keys * (_linear(attention.k_proj) + _linear(attention.v_proj))
    return projections + 2 * 2 * pairs * attention.num_heads * attention.head_dim


def _feed_forward(module: nn.Module) -> int:
    """The operations of one token."""
    if isinstance(module, MixtureOfExperts):
        return _linear(module.router) + module.experts_per_token * _feed_forward(module.experts[0])
    return sum(_linear(part) for part in module.modules() if isinstance(part, nn.Linear))


def _linear(linear: nn.Linear) -> int:
    """The operations of one token."""
    return 2 * linear.weight.numel()
