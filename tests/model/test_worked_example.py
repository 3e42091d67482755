"""The notes' running example ("The cat sat", d_model 4), every figure, through the project's own functions.

`errata` lists what the notes print and their own formula does not give: held here to the formula's value, and shown
to differ from the printed one. `docs/worked_example.md` tells the same to a reader.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.decoding.search.top_tokens import Totals, best_extensions
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import RESIDUALS, PostNormResidual, PreNormResidual, Residual
from transformer_mt.model.loss import cross_entropy_sums
from transformer_mt.model.masks import causal_mask
from transformer_mt.model.parts.attention import MultiHeadAttention, attention_scores, attention_weights
from transformer_mt.model.parts.feed_forward import make_dense
from transformer_mt.model.parts.norms import make_norm
from transformer_mt.model.parts.positions import SinusoidalPositions, sinusoidal_table
from transformer_mt.model.transformer import Transformer

EXAMPLE: dict[str, Any] = json.loads((Path(__file__).parent.parent / "fixtures" / "worked_example.json").read_text())
TINY = ModelConfig(d_model=4, d_ff=8, num_heads=1, dropout=0.0, max_len=8)


def tensor(values: list) -> Tensor:
    return torch.tensor([[float(x) for x in row] if isinstance(row, list) else float(row) for row in values])


def assert_close(actual: Tensor, expected: list, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(actual, tensor(expected), atol=tolerance, rtol=0)


def assert_erratum(actual: Tensor, value: list, printed: list) -> None:
    """The formula's value, and not what the notes print: rounding to two places would explain 0.005."""
    assert_close(actual, value)
    assert (actual - tensor(printed)).abs().max() > 0.006


def erratum(beginning: str) -> dict[str, Any]:
    (found,) = [entry for entry in EXAMPLE["errata"] if entry["what"].startswith(beginning)]
    return found


def vectors(text: str) -> list[Tensor]:
    """The bracketed vectors of a sentence, in order."""
    return [torch.tensor([float(x) for x in inside.split(",")]) for inside in re.findall(r"\[([^\[\]]+)\]", text)]


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def build(vocab_size: int = 10, **values: Any) -> TranslationModel:
    """A model of this shape without memory for its weights."""
    config = ModelConfig(**values)
    with torch.device("meta"):
        return ARCHITECTURES[config.architecture](config, vocab_size, vocab_size)


def identity_attention() -> MultiHeadAttention:
    """One head whose projections change nothing."""
    attention = MultiHeadAttention(4, 1, 0.0, bias=False)
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
        nn.init.eye_(linear.weight)
    return attention.eval()


def scores_to_qk(raw: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys of head_dim 4 whose dot products are these scores: the scores themselves, and unit vectors."""
    padded = nn.functional.pad(raw, (0, 4 - raw.size(-1)))
    return padded[None, None], torch.eye(4)[None, None, : raw.size(-1)]


def test_every_entry_has_its_test() -> None:
    """Each key of the file, and the beginning of each erratum, is named by a test below."""
    tests = [node for node in ast.parse(Path(__file__).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]
    named = {node.value for test in tests for node in ast.walk(test) if isinstance(node, ast.Constant)}
    assert set(EXAMPLE) - {"about", "tolerance", "errata"} <= named
    beginnings = tuple(text for text in named if isinstance(text, str) and len(text) > 4)
    assert [entry["what"] for entry in EXAMPLE["errata"] if not entry["what"].startswith(beginnings)] == []


def test_positional_encoding() -> None:
    expected = EXAMPLE["positional_encoding"]
    assert_close(sinusoidal_table(3, expected["d_model"]), expected["value"], 1e-5)


def test_embedding_plus_position() -> None:
    expected = EXAMPLE["embedding_plus_position"]
    positions = SinusoidalPositions(TINY, max_len=3, causal=False)
    assert_close(positions(tensor(expected["embedding"])[None], torch.arange(3)[None])[0], expected["value"])


def test_the_model_scales_the_embedding_first() -> None:
    """As the example's note says; the example itself adds the position to the unscaled embedding."""
    expected = EXAMPLE["embedding_plus_position"]
    embedder = Transformer(TINY, 3, 3).encoder.embedder.eval()
    with torch.no_grad():
        embedder.table.copy_(tensor(expected["embedding"]))
    doubled = tensor(expected["value"]) + tensor(expected["embedding"])  # sqrt(4) is 2
    assert_close(embedder(torch.arange(3)[None], torch.arange(3)[None])[0], doubled.tolist())


def test_attention_scores() -> None:
    expected = EXAMPLE["attention_scores"]
    q, k = scores_to_qk(tensor(expected["raw"]))
    assert q.size(-1) == expected["d_k"]
    assert_close(attention_scores(q, k, scale=1.0)[0, 0], expected["raw"])
    assert_close(attention_scores(q, k)[0, 0], expected["scaled"])
    assert_close(attention_weights(q, k)[0, 0], expected["softmax"])


def test_attention_output_of_cat() -> None:
    expected, scores = EXAMPLE["attention_output_cat"], EXAMPLE["attention_scores"]
    q, k = scores_to_qk(tensor(scores["raw"]))
    out = identity_attention().attend(q, k, tensor(expected["values"])[None, None], None)
    assert_close(out[0, 1], expected["value"])


@pytest.mark.parametrize(("name", "addend"), [("residual_cat", "attention"), ("second_residual_cat", "feed_forward")])
def test_residual_connections(name: str, addend: str) -> None:
    expected = EXAMPLE[name]
    residual = PreNormResidual(TINY).eval()
    assert_close(residual(tensor(expected["x"]), lambda _: tensor(expected[addend])), expected["value"])


def test_causal_softmax_of_el() -> None:
    """The example's second row sees two of three positions, its scores being scaled already."""
    expected = EXAMPLE["causal_softmax_el"]
    visible = [0.0 if score == "-inf" else float(score) for score in expected["scores"]]
    q, k = scores_to_qk(torch.tensor([[0.0] * 3, visible, [0.0] * 3]) * 2.0)
    assert_close(attention_scores(q, k, causal_mask(3))[0, 0, 1], expected["scores"])
    assert_close(attention_weights(q, k, causal_mask(3))[0, 0, 1], expected["value"])


def test_residual_census() -> None:
    expected = EXAMPLE["residual_census"]
    config = TINY.model_copy(
        update={"num_encoder_layers": expected["encoder_layers"], "num_decoder_layers": expected["decoder_layers"]}
    )
    model = Transformer(config, 10, 10)
    count = [sum(isinstance(m, Residual) for m in stack.modules()) for stack in (model.encoder, model.decoder)]
    assert [*count, sum(count)] == [expected["encoder"], expected["decoder"], expected["total"]]


@pytest.mark.parametrize("values", [{}, MODELS["transformer-base"]], ids=["default", "preset"])
def test_base_shapes(values: dict[str, Any]) -> None:
    expected = EXAMPLE["base_shapes"]
    config = ModelConfig(**values)
    assert (config.d_model, config.d_ff, config.num_heads) == (
        expected["d_model"], expected["d_ff"], expected["num_heads"],
    )  # fmt: skip
    assert config.num_encoder_layers == config.num_decoder_layers == expected["layers"]
    attention = MultiHeadAttention(config.d_model, config.num_heads, 0.0, True)
    assert attention.project_query(torch.zeros(1, 1, config.d_model)).shape[-1] == expected["head_dim"]


# What the notes print and their formula does not give


def test_erratum_query_projection() -> None:
    expected = erratum("query projection")
    attention = MultiHeadAttention(4, 1, 0.0, bias=False)
    with torch.no_grad():
        attention.q_proj.weight.copy_(tensor(expected["w_q"]).T)
    queries = attention.project_query(tensor(expected["x"])[None])[0, 0]
    assert_erratum(queries, expected["value"], expected["printed"])


@pytest.mark.parametrize("beginning", ["layer norm of [2.14", "layer norm of [2.59"])
def test_erratum_layer_norm(beginning: str) -> None:
    expected = erratum(beginning)
    (vector,) = vectors(expected["what"])
    assert_erratum(make_norm(TINY)(vector), expected["value"], expected["printed"])
    assert_close(PostNormResidual(TINY).eval()(vector, torch.zeros_like), expected["value"])


def test_erratum_variance_of_the_layer_norm() -> None:
    """A layer norm divides every difference by sqrt(variance + eps), which gives the variance that it took."""
    expected = erratum("layer norm of [2.14")
    (vector,) = vectors(expected["what"])
    norm = make_norm(TINY)
    assert norm.eps == 1e-5
    shrunk = (vector[0] - vector[2]) / (norm(vector)[0] - norm(vector)[2])
    assert_erratum((shrunk**2 - norm.eps)[None], [expected["variance"]], [expected["printed_variance"]])


def test_erratum_gelu() -> None:
    expected = erratum("exact GELU")
    gelu = make_dense(TINY.model_copy(update={"activation": "gelu"})).activation
    assert_erratum(gelu(*vectors(expected["what"])), expected["value"], expected["printed"])


def test_erratum_cross_attention() -> None:
    expected = erratum("cross-attention dot products")
    query, *keys = vectors(expected["what"])
    q, k = query[None, None, None], torch.stack(keys)[None, None]
    assert_erratum(attention_scores(q, k, scale=1.0)[0, 0, 0], expected["value"], expected["printed"])
    assert_erratum(
        attention_weights(q, k)[0, 0, 0], expected["softmax_after_scaling_by_2"], expected["printed_softmax"]
    )


def test_erratum_output_softmax() -> None:
    """As search sees it and as the loss does. Ids 0 to 3 are the special tokens, which the example has not."""
    expected = erratum("output softmax")
    (words,) = vectors(expected["what"])
    logits = torch.cat((torch.full((4,), -torch.inf), words))[None, None]
    log_probs, _, tokens = best_extensions(logits, len(words), False, None, Totals.of(logits, torch.zeros(1, 1)))
    probabilities = torch.zeros(len(words)).scatter(0, tokens[0] - 4, log_probs[0].exp())
    assert_erratum(probabilities, expected["value"], expected["printed"])
    nll = torch.stack([cross_entropy_sums(words[None], torch.tensor([i]), 0.0).nll for i in range(len(words))])
    assert_close((-nll).exp(), expected["value"])


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
