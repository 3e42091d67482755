"""Weights recorded in passing: distributions that respect the masks and change nothing."""

import torch

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.inspect.attention import cross_attention, recorded_attention
from transformer_mt.model.transformer import Transformer


def make_model() -> Transformer:
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, max_len=20)
    return Transformer(config, 30, 30).eval()


def test_recorded_weights_are_distributions_that_respect_the_masks_and_change_nothing() -> None:
    model = make_model()
    src, tgt = torch.tensor([[5, 6, 7, 3], [8, 9, 3, 0]]), torch.tensor([[2, 10, 11], [2, 12, 13]])
    plain = model(src, tgt)
    with recorded_attention(model) as recorded:
        traced = model(src, tgt)
    assert torch.equal(plain, traced)
    assert len(recorded) == 2 + 2 * 2
    for weights in recorded.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert (recorded["encoder.layers.0.self_attn"][1, :, :, 3] == 0).all()
    assert (recorded["decoder.layers.1.self_attn"].triu(1) == 0).all()
    before = len(recorded)
    model(src, tgt)
    assert len(recorded) == before, "the hooks are gone"


def test_cross_attention_of_one_pair() -> None:
    weights = cross_attention(make_model(), torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7, 8, 9]]))
    assert weights.shape == (4, 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4))
