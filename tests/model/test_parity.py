"""Our stacks against torch's own, with copied weights: outputs and gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.layers import RESIDUALS, DecoderLayer, EncoderLayer
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward, make_dense
from transformer_mt.model.stack import positions_of
from transformer_mt.model.transformer import Transformer

D_MODEL, D_FF, NUM_HEADS, VOCAB = 16, 32, 4, 50
BATCH, SRC_LEN, TGT_LEN = 3, 7, 6
OF_TORCH = {"relu": F.relu, "gelu": F.gelu}


def make_config(**changes) -> ModelConfig:
    values = {
        "d_model": D_MODEL, "d_ff": D_FF, "num_heads": NUM_HEADS, "num_encoder_layers": 2, "num_decoder_layers": 3,
        "dropout": 0.0, "max_len": 20,
    }  # fmt: skip
    return ModelConfig(**{**values, **changes})


UNGATED = [name for name in ACTIVATIONS if not isinstance(make_dense(make_config(activation=name)), GatedFeedForward)]


def randomise(module: nn.Module) -> None:
    """Biases and norms start at 0 and 1, where a mistake can hide."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)


def copy_linear(ours: nn.Linear | nn.LayerNorm, weight: Tensor, bias: Tensor | None) -> None:
    with torch.no_grad():
        ours.weight.copy_(weight)
        if bias is not None:
            assert ours.bias is not None
            ours.bias.copy_(bias)


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    biases = theirs.in_proj_bias.chunk(3) if theirs.in_proj_bias is not None else (None, None, None)
    for linear, weight, bias in zip(
        (ours.q_proj, ours.k_proj, ours.v_proj), theirs.in_proj_weight.chunk(3), biases, strict=True
    ):
        copy_linear(linear, weight, bias)
    copy_linear(ours.out_proj, theirs.out_proj.weight, theirs.out_proj.bias)


def copy_layer(ours: EncoderLayer | DecoderLayer, theirs) -> None:
    copy_attention(ours.self_attn, theirs.self_attn)
    residuals = [ours.self_attn_residual]
    if isinstance(ours, DecoderLayer):
        copy_attention(ours.cross_attn, theirs.multihead_attn)
        residuals.append(ours.cross_attn_residual)
    residuals.append(ours.feed_forward_residual)
    assert isinstance(ours.feed_forward, FeedForward)
    copy_linear(ours.feed_forward.in_proj, theirs.linear1.weight, theirs.linear1.bias)
    copy_linear(ours.feed_forward.out_proj, theirs.linear2.weight, theirs.linear2.bias)
    for i, residual in enumerate(residuals, start=1):
        norm = getattr(theirs, f"norm{i}")
        assert isinstance(residual.norm, nn.LayerNorm)
        copy_linear(residual.norm, norm.weight, norm.bias)


def make_pair(config: ModelConfig) -> tuple[Transformer, nn.TransformerEncoder, nn.TransformerDecoder]:
    """Our model and torch's two stacks with the same weights. torch keeps final norms under post-norm unless told."""
    torch.manual_seed(0)
    options = {
        "dropout": 0.0, "activation": OF_TORCH[config.activation], "batch_first": True, "bias": config.bias,
        "norm_first": config.norm_position == "pre",
    }  # fmt: skip
    norms = [nn.LayerNorm(D_MODEL, bias=config.bias) if config.norm_position == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(D_MODEL, NUM_HEADS, D_FF, **options),
        config.num_encoder_layers, norms[0], enable_nested_tensor=False,
    )  # fmt: skip
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(D_MODEL, NUM_HEADS, D_FF, **options), config.num_decoder_layers, norms[1]
    )
    randomise(encoder)
    randomise(decoder)
    model = Transformer(config, VOCAB, VOCAB)
    for stack, theirs, norm in ((model.encoder, encoder, norms[0]), (model.decoder, decoder, norms[1])):
        for our_layer, their_layer in zip(stack.layers, theirs.layers, strict=True):
            assert isinstance(our_layer, EncoderLayer | DecoderLayer)
            copy_layer(our_layer, their_layer)
        if norm is not None:
            assert isinstance(stack.norm, nn.LayerNorm)
            assert isinstance(theirs.norm, nn.LayerNorm)
            copy_linear(stack.norm, theirs.norm.weight, theirs.norm.bias)
    return model, encoder, decoder


def make_ids() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    src = torch.randint(4, VOCAB, (BATCH, SRC_LEN), generator=generator)
    tgt = torch.randint(4, VOCAB, (BATCH, TGT_LEN), generator=generator)
    src[1, 4:] = src[2, 5:] = tgt[0, 5:] = tgt[2, 3:] = PAD_ID
    return src, tgt


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", UNGATED)
@pytest.mark.parametrize("norm_position", RESIDUALS)
def test_stacks_equal_torch(norm_position: str, activation: str, bias: bool) -> None:
    config = make_config(norm_position=norm_position, activation=activation, bias=bias)
    model, encoder, decoder = make_pair(config)
    src, tgt = make_ids()
    real = tgt != PAD_ID

    ours = model.hidden_states(src, tgt)
    src_vectors, tgt_vectors = (
        stack.embedder(ids, positions_of(ids)) for stack, ids in ((model.encoder, src), (model.decoder, tgt))
    )
    padding = src == PAD_ID  # torch's masks: True = may not attend
    memory = encoder(src_vectors, src_key_padding_mask=padding)
    causal = torch.ones(TGT_LEN, TGT_LEN, dtype=torch.bool).triu(1)
    theirs = decoder(tgt_vectors, memory, tgt_mask=causal, memory_key_padding_mask=padding)
    torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=1e-5)

    direction = torch.randn(int(real.sum()), D_MODEL, generator=torch.Generator().manual_seed(2))
    embeddings = [model.encoder.embedder.table, model.decoder.embedder.embedding.weight]
    our_gradients = torch.autograd.grad((ours[real] * direction).sum(), embeddings, retain_graph=True)
    their_gradients = torch.autograd.grad((theirs[real] * direction).sum(), embeddings, retain_graph=True)
    for our_gradient, their_gradient in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(our_gradient, their_gradient, atol=1e-4, rtol=1e-4)

    (ours[real] * direction).sum().backward(retain_graph=True)
    (theirs[real] * direction).sum().backward()
    for stack, their_stack in ((model.encoder, encoder), (model.decoder, decoder)):
        for our_layer, their_layer in zip(stack.layers, their_stack.layers, strict=True):
            compare_layer_gradients(our_layer, their_layer)


def compare_layer_gradients(ours, theirs) -> None:
    attentions = [(ours.self_attn, theirs.self_attn)]
    if isinstance(ours, DecoderLayer):
        attentions.append((ours.cross_attn, theirs.multihead_attn))
    for our_attention, their_attention in attentions:
        packed = torch.cat([getattr(our_attention, f"{name}_proj").weight.grad for name in "qkv"])
        torch.testing.assert_close(packed, their_attention.in_proj_weight.grad, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(
            our_attention.out_proj.weight.grad, their_attention.out_proj.weight.grad, atol=1e-4, rtol=1e-4
        )
    assert isinstance(ours.feed_forward, FeedForward)
    for our_linear, their_linear in (
        (ours.feed_forward.in_proj, theirs.linear1),
        (ours.feed_forward.out_proj, theirs.linear2),
        (ours.self_attn_residual.norm, theirs.norm1),
    ):
        torch.testing.assert_close(our_linear.weight.grad, their_linear.weight.grad, atol=1e-4, rtol=1e-4)
