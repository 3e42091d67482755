"""Parameter counts of the presets against the published ones, without allocating them."""

from typing import Any

import pytest
import torch

from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.architectures import ARCHITECTURES


def count(preset: str, vocab_size: int, **changes: Any) -> int:
    config = ModelConfig(**{**MODELS[preset], **changes})
    with torch.device("meta"):
        model = ARCHITECTURES[config.architecture](config, vocab_size, vocab_size)
    return sum(parameter.numel() for parameter in model.parameters())


def layer(d_model: int, d_ff: int, attentions: int) -> int:
    """With biases and one LayerNorm a sublayer."""
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    return attentions * attention + feed_forward + (attentions + 1) * 2 * d_model


@pytest.mark.parametrize(
    ("preset", "d_model", "d_ff", "millions"),
    [("transformer-base", 512, 2048, 63.1), ("transformer-big", 1024, 4096, 214.2)],
)
def test_the_papers_models(preset: str, d_model: int, d_ff: int, millions: float) -> None:
    """The paper prints 65 M and 213 M, at a vocabulary of about 37,000; this is what its table 3 adds up to."""
    expected = 37_000 * d_model + 6 * layer(d_model, d_ff, 1) + 6 * layer(d_model, d_ff, 2)
    assert count(preset, 37_000) == expected
    assert round(expected / 1e6, 1) == millions


def test_t5_small() -> None:
    """60,506,624, as its checkpoint holds."""
    assert count("t5-small", 32_128) == 60_506_624


def test_bart_base() -> None:
    """Its checkpoint holds 139,420,416. Ours has no norm after each of the two embeddings (2 x 2 x 768), and 1,024
    positions a side where BART's tables have two more (2 x 2 x 768).
    """
    assert count("bart-base", 50_265, max_len=1024) == 139_420_416 - 2 * 2 * 768 - 2 * 2 * 768


def test_gpt2_small() -> None:
    """124,439,808, as its checkpoint holds; 512 positions a side are its 1,024."""
    assert count("gpt2-small", 50_257, max_len=512) == 124_439_808


def test_bert_base() -> None:
    """109,482,240 parameters of its checkpoint, the 110 M of the paper, are an encoder with a pooler. Without that and
    with the head for masked words, a dense map, a norm and a bias of 30,522, they are 109,514,298. Ours has no table of
    two segments and no norm of the embeddings (2 x 768 each).
    """
    pooler = dense = 768 * 768 + 768
    with_head = 109_482_240 - pooler + dense + 2 * 768 + 30_522
    assert with_head == 109_514_298
    assert count("bert-base", 30_522) == with_head - 2 * 768 - 2 * 768
    assert count("bert-base", 30_522) == pytest.approx(110e6, rel=0.01)


def test_vit_base() -> None:
    """ViT-B/16 has 86 million parameters in the paper's table 1. Its checkpoint at 224 x 224 pixels adds up to
    86,567,656: 12 layers, a final norm, 197 positions, the vector of the class, a projection of 16 x 16 x 3 colours,
    and a head of 1,000 classes. Our encoder is that without the head, and of grey patches, and the vector of EOS stands
    for that of the class. A decoder of 6 layers comes on top, of which ViT has none.
    """
    d_model = 768
    encoder = 12 * layer(d_model, 3072, 1) + 2 * d_model + 197 * d_model + d_model + 16 * 16 * d_model + d_model
    head, colours = 1000 * d_model + 1000, 2 * 16 * 16 * d_model
    assert encoder == 86_567_656 - head - colours
    assert encoder == pytest.approx(86e6, rel=0.01)
    decoder = 6 * layer(d_model, 3072, 2) + 2 * d_model + 197 * d_model
    assert count("vit-base", 30_000, max_len=197) == encoder + decoder + 30_000 * d_model


LLAMA_7B = {"d_model": 4096, "num_heads": 32, "num_decoder_layers": 32}


@pytest.mark.parametrize(
    ("preset", "changes", "published"),
    [
        ("llama", {"d_ff": 11_008}, 6_738_415_616),
        ("mistral", {"d_ff": 14_336, "num_kv_heads": 8}, 7_241_732_096),
        ("mixtral", {"d_ff": 14_336, "num_kv_heads": 8}, 46_702_792_704),
    ],
)
def test_the_published_sizes_of_decoder_only_models(preset: str, changes: dict[str, int], published: int) -> None:
    assert count(preset, 32_000, **LLAMA_7B, **changes) == published


@pytest.mark.parametrize("preset", ["llama", "mistral", "modern"])
def test_the_others_have_the_size_of_transformer_base(preset: str) -> None:
    assert count(preset, 37_000) == pytest.approx(count("transformer-base", 37_000), rel=0.05)


def test_a_token_meets_as_many_parameters_in_mixtral_as_in_mistral_with_twice_the_feed_forward() -> None:
    layers, d_model, d_ff = 8, 512, 1792
    expert, router = 3 * d_model * d_ff, 8 * d_model
    assert count("mixtral", 37_000) == count("mistral", 37_000) + layers * (7 * expert + router)
