"""Operations counted from matrices: by hand, and as torch counts them while the model runs."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from translators import MODELS_BY_NAME, ONE_STREAM, make_translator, model_names

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.inspect.flops import flops_by_part
from transformer_mt.model import cache as cache_module
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.interface import TranslationModel

TINY = {"d_model": 4, "d_ff": 6, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}


def tiny(**options) -> TranslationModel:
    config = ModelConfig(**{**TINY, **options})
    return ARCHITECTURES[config.architecture](config, 10, 10)


def test_an_encoder_decoder_by_hand() -> None:
    """3 source tokens, 2 steps. A 4 x 4 map of a vector: 16 multiply-adds, 32 operations."""
    assert flops_by_part(tiny(), 3, 2) == {
        # four maps of 3 vectors; 9 pairs, each 4 multiply-adds for its score and 4 for its value, over all heads
        "encoder.self_attn": 4 * 3 * 32 + 9 * 2 * (4 + 4),
        "encoder.feed_forward": 3 * 2 * (4 * 6 + 6 * 4),
        "decoder.self_attn": 4 * 2 * 32 + (1 + 2) * 2 * (4 + 4),
        # queries and results of 2 vectors, keys and values of 3
        "decoder.cross_attn": 2 * 2 * 32 + 2 * 3 * 32 + 6 * 2 * (4 + 4),
        "decoder.feed_forward": 2 * 2 * (4 * 6 + 6 * 4),
        "output": 2 * 2 * 4 * 10,
    }


def test_one_stream_by_hand() -> None:
    """One key head for two, gated; a router over 5 experts, of which a token takes 2. Source 3, then 2 steps."""
    experts = {"num_experts": 5, "experts_per_token": 2, "activation": "swiglu", "num_kv_heads": 1}
    assert flops_by_part(tiny(**ONE_STREAM, **experts), 3, 2) == {
        "decoder.self_attn": 5 * (2 * 32 + 2 * 16) + (9 + 4 + 5) * 2 * (4 + 4),
        "decoder.feed_forward": 5 * 2 * (4 * 5 + 2 * 3 * 4 * 6),
        "output": 2 * 2 * 4 * 10,
    }


@pytest.mark.parametrize("name", model_names())
@torch.no_grad()
def test_torch_counts_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step at a time, over the cache, without the surplus keys that fill up a CPU's lanes.

    The kernel that torch can count into is the one of plain products.
    """
    monkeypatch.setattr(cache_module, "LANES", 1)
    model = make_translator(MODELS_BY_NAME[name]).model
    plain = sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False)  # it has an LSTM of its own
    with FlopCounterMode(display=False) as counter, plain[0], plain[1]:
        cache = model.start(torch.tensor([[5, 6, 7, 8, 3]]))
        for token in (2, 9, 10, 11):
            model.decode_step(torch.tensor([token]), cache)
    assert sum(flops_by_part(model, 5, 4).values()) == counter.get_total_flops()
