"""A model of one stream against torch's causal stack, and its loss on the target alone."""

import torch
from plain_model import VOCAB, random_ids
from small_models import make_config
from torch import nn

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.layers import EncoderLayer
from transformer_mt.model.loss import batch_loss, cross_entropy_sums
from transformer_mt.model.stack import positions_of


def test_a_decoder_only_model_equals_torchs_causal_stack_over_the_joined_stream() -> None:
    torch.manual_seed(0)
    config = make_config(architecture="decoder_only", num_encoder_layers=0, positions="learned", activation="gelu")
    model = DecoderOnly(config, VOCAB, VOCAB).eval()
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 24, 0.0, "gelu", batch_first=True, norm_first=True), 2, nn.LayerNorm(16),
        enable_nested_tensor=False,
    )  # fmt: skip
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for ours, layer in zip(model.decoder.layers, theirs.layers, strict=True):
            copy_layer(ours, layer)
        assert theirs.norm is not None
        model.decoder.norm.load_state_dict(theirs.norm.state_dict())
    src, tgt = random_ids(2, 7), random_ids(2, 5, seed=2)
    src[1, 4:] = PAD_ID
    ours = model.hidden_states(src, tgt)
    for row, src_len in enumerate((7, 4)):
        stream = torch.cat((src[row, :src_len], tgt[row]))[None]
        x = model.decoder.embedder(stream, positions_of(stream))
        causal = torch.ones(stream.size(1), stream.size(1), dtype=torch.bool).triu(1)
        torch.testing.assert_close(ours[row], theirs(x, causal)[0, src_len:], atol=1e-5, rtol=1e-5)


def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    assert isinstance(ours, EncoderLayer)
    assert isinstance(theirs, nn.TransformerEncoderLayer)
    weights, biases = theirs.self_attn.in_proj_weight.chunk(3), theirs.self_attn.in_proj_bias.chunk(3)
    for name, weight, bias in zip("qkv", weights, biases, strict=True):
        ours.self_attn.get_submodule(f"{name}_proj").load_state_dict({"weight": weight, "bias": bias})
    ours.self_attn.out_proj.load_state_dict(theirs.self_attn.out_proj.state_dict())
    ours.feed_forward.get_submodule("in_proj").load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.get_submodule("out_proj").load_state_dict(theirs.linear2.state_dict())
    ours.self_attn_residual.norm.load_state_dict(theirs.norm1.state_dict())
    ours.feed_forward_residual.norm.load_state_dict(theirs.norm2.state_dict())


def test_the_loss_of_a_decoder_only_model_is_on_the_target_alone() -> None:
    torch.manual_seed(0)
    config = make_config(architecture="decoder_only", num_encoder_layers=0)
    model = DecoderOnly(config, VOCAB, VOCAB).eval()
    src, tgt_in, tgt_out = random_ids(2, 7), random_ids(2, 5, seed=2), random_ids(2, 5, seed=3)
    tgt_out[1, 3:] = tgt_in[1, 3:] = PAD_ID
    loss = batch_loss(model, src, tgt_in, tgt_out, 0.1)
    real = tgt_out != PAD_ID
    expected = cross_entropy_sums(model(src, tgt_in)[real], tgt_out[real], 0.1)
    torch.testing.assert_close(loss.loss, expected.loss)
    assert int(real.sum()) == 8
