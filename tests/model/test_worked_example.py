"""The notes' running example: the errata that are sentences, through the project's own functions.

Figures are held by `tests/test_worked_example_page.py`, which runs the same functions as `docs/worked_example.md` does.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import RESIDUALS
from transformer_mt.model.masks import causal_mask
from transformer_mt.model.parts.attention import MultiHeadAttention, attention_weights
from transformer_mt.model.parts.norms import make_norm
from transformer_mt.model.transformer import Transformer

EXAMPLE: dict[str, Any] = json.loads((Path(__file__).parent.parent / "fixtures" / "worked_example.json").read_text())
TINY = ModelConfig(d_model=4, d_ff=8, num_heads=1, dropout=0.0, max_len=8)


def tensor(values: list) -> Tensor:
    return torch.tensor([[float(x) for x in row] if isinstance(row, list) else float(row) for row in values])


def assert_close(actual: Tensor, expected: list, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(actual, tensor(expected), atol=tolerance, rtol=0)


def erratum(beginning: str) -> dict[str, Any]:
    (found,) = [entry for entry in EXAMPLE["errata"] if entry["what"].startswith(beginning)]
    return found


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def build(vocab_size: int = 10, **values: Any) -> TranslationModel:
    """A model of this shape without memory for its weights."""
    config = ModelConfig(**values)
    with torch.device("meta"):
        return ARCHITECTURES[config.architecture](config, vocab_size, vocab_size)


def test_the_model_scales_the_embedding_first() -> None:
    """As the example's note says; the example itself adds the position to the unscaled embedding."""
    expected = EXAMPLE["embedding_plus_position"]
    embedder = Transformer(TINY, 3, 3).encoder.embedder.eval()
    with torch.no_grad():
        embedder.table.copy_(tensor(expected["embedding"]))
    doubled = tensor(expected["value"]) + tensor(expected["embedding"])  # sqrt(4) is 2
    assert_close(embedder(torch.arange(3)[None], torch.arange(3)[None])[0], doubled.tolist())


def test_erratum_heads_of_t5_11b() -> None:
    """Heads here are d_model / num_heads wide: right for the notes' figures, and not what was released."""
    notes, released = erratum("T5-11B")["what"], erratum("T5-11B")["value"]
    d_model, num_heads, *_, head_dim = (int(x) for x in numbers(notes.split("give ")[1]))
    with torch.device("meta"):
        assert MultiHeadAttention(d_model, num_heads, 0.0, False).head_dim == head_dim
        d_model, num_heads, head_dim, inner = (int(x) for x in numbers(released))
        assert MultiHeadAttention(inner, num_heads, 0.0, False).head_dim == head_dim
        assert MultiHeadAttention(d_model, num_heads, 0.0, False).head_dim != head_dim


def test_erratum_parameters_of_gpt2_small() -> None:
    expected = erratum("GPT-2 small")
    millions, vocab_size, positions = numbers(expected["value"])
    values = {**MODELS["gpt2-small"], "max_len": int(positions) // 2}  # a source's and a target's
    model = build(int(vocab_size), **values)
    count = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    assert round(count, 1) == millions
    (printed,) = numbers(expected["what"].split("give ")[1])
    assert abs(count - printed) > 1


def test_erratum_gpt3_has_decoder_layers() -> None:
    (num_layers,) = (int(x) for x in numbers(erratum("GPT-3")["value"]))
    shape = {"architecture": "decoder_only", "d_model": 8, "d_ff": 8, "num_heads": 2, "tie_embeddings": "all"}
    model = build(**shape, num_encoder_layers=0, num_decoder_layers=num_layers)
    assert isinstance(model, DecoderOnly)
    assert len(model.decoder.layers) == num_layers
    assert not hasattr(model, "encoder")
    with pytest.raises(ValidationError, match="has no encoder"):
        ModelConfig(**shape, num_encoder_layers=num_layers, num_decoder_layers=num_layers)


@pytest.mark.parametrize("name", ["post", "pre"])
def test_erratum_post_norm_and_pre_norm_exist_by_name(name: str) -> None:
    """The formula norms the sum, the code what the sublayer reads; in figures of the example."""
    assert erratum("a sublayer connection")["value"].startswith("the formula is post-norm, the code pre-norm")
    example = EXAMPLE["residual_cat"]
    x, normed_sum = tensor(example["x"]), erratum("layer norm of [2.14")["value"]
    read = []
    result = RESIDUALS[name].make(TINY).eval()(x, lambda h: (read.append(h), tensor(example["attention"]))[1])
    assert_close(result, {"post": normed_sum, "pre": example["value"]}[name])
    assert_close(read[0], {"post": x, "pre": make_norm(TINY)(x)}[name].tolist())


def test_erratum_heads_of_t5_small() -> None:
    self_heads, cross_heads = (int(x) for x in re.findall(r"(\d+)(?: heads|$)", erratum("T5-small")["value"]))
    count = {"self_attn": 0, "cross_attn": 0}
    for name, module in build(**MODELS["t5-small"]).named_modules():
        if isinstance(module, MultiHeadAttention):
            count[name.split(".")[-1]] += module.num_heads
    assert count == {"self_attn": self_heads, "cross_attn": cross_heads}


def test_erratum_each_layer_has_its_own_weights() -> None:
    """Not `ModuleList([layer for _ in range(N)])`, which holds one layer's weights N times."""
    assert erratum("a stack built as ModuleList")["value"].endswith("each layer must be its own module")
    model = Transformer(TINY, 10, 10)
    stream = build(**MODELS["gpt2-small"])
    assert isinstance(stream, DecoderOnly)
    for layers in (model.encoder.layers, model.decoder.layers, stream.decoder.layers):
        held = [list(layer.parameters()) for layer in layers]
        assert len({id(parameter) for layer in held for parameter in layer}) == len(held) * len(held[0])


def test_erratum_masking_gives_no_nan_in_half_precision() -> None:
    """-1e11 would overflow float16; -inf with one key left to attend to does not."""
    assert erratum("masked scores")["value"].startswith("-1e11 overflows float16")
    q = k = torch.ones(1, 1, 3, 4, dtype=torch.float16)
    assert torch.finfo(q.dtype).min > -1e11
    weights = attention_weights(q, k, causal_mask(3))
    assert_close(weights[0, 0].float(), [[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]], 1e-3)
    nothing_to_attend_to = torch.zeros(1, 1, 3, 3, dtype=torch.bool)
    assert attention_weights(q, k, nothing_to_attend_to).isnan().all()


@pytest.mark.parametrize("window", [None, 1])
def test_erratum_every_row_of_a_model_has_a_key(window: int | None) -> None:
    """Padding, which nothing else may see, sees something itself: no nan, though the mask is -inf."""
    assert "every row must have one key" in erratum("masked scores")["value"]
    model = Transformer(TINY.model_copy(update={"attention_window": window}), 10, 10).eval()
    src, tgt_in = torch.tensor([[5, 3, 0, 0], [6, 7, 8, 3]]), torch.tensor([[2, 5, 0], [2, 6, 7]])
    assert model(src, tgt_in).isfinite().all()


def test_erratum_layer_norm_is_its_formula(capsys: pytest.CaptureFixture[str]) -> None:
    """gamma (x - mean) / sqrt(biased variance + eps) + beta, on a vector so small that eps shows; printing nothing.

    Mean 0, variance 1e-4, sqrt(1e-4 + 1e-5) = 0.0104881, 0.01 / 0.0104881 = 0.9535. With the unbiased variance it
    would be 0.8353, with eps outside the root 0.9990.
    """
    assert erratum("a layer norm that prints")["value"].startswith("biased variance, eps inside the root")
    norm = make_norm(TINY)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, 1.0, 1.0]))
        norm.get_parameter("bias").copy_(torch.tensor([0.0, 0.0, 0.0, 3.0]))
    assert_close(norm(torch.tensor([0.01, 0.01, -0.01, -0.01])), [0.9535, 1.9069, -0.9535, 2.0465])
    assert capsys.readouterr().out == ""
