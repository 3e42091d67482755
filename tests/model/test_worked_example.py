"""The notes' running example ("The cat sat", d_model 4), every figure, through the project's own functions.

`errata` lists figures that the notes print and their own formula does not give: held here to the formula's value.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_mt.config.schema import ModelConfig
from transformer_mt.model.attention import MultiHeadAttention, attention_weights
from transformer_mt.model.feed_forward import KINDS
from transformer_mt.model.layers import PostNormResidual, PreNormResidual, Residual
from transformer_mt.model.masks import causal_mask
from transformer_mt.model.norms import make_norm
from transformer_mt.model.positions import SinusoidalPositions, sinusoidal_table
from transformer_mt.model.transformer import Transformer

EXAMPLE: dict[str, Any] = json.loads((Path(__file__).parent.parent / "fixtures" / "worked_example.json").read_text())
TINY = ModelConfig(d_model=4, d_ff=8, num_heads=1, dropout=0.0, max_len=8)


def tensor(values: list) -> Tensor:
    return torch.tensor([[float(x) for x in row] if isinstance(row, list) else float(row) for row in values])


def check_close(actual: Tensor, expected: list, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(actual, tensor(expected), atol=tolerance, rtol=0)


def erratum(beginning: str) -> dict[str, Any]:
    (found,) = [entry for entry in EXAMPLE["errata"] if entry["what"].startswith(beginning)]
    return found


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


def test_positional_encoding() -> None:
    expected = EXAMPLE["positional_encoding"]
    check_close(sinusoidal_table(3, expected["d_model"]), expected["value"])


def test_embedding_plus_position() -> None:
    expected = EXAMPLE["embedding_plus_position"]
    positions = SinusoidalPositions(TINY, max_len=3, causal=False)
    check_close(positions(tensor(expected["embedding"])[None], torch.arange(3)[None])[0], expected["value"])


def test_attention_scores() -> None:
    expected = EXAMPLE["attention_scores"]
    raw = tensor(expected["raw"])
    check_close(raw / expected["d_k"] ** 0.5, expected["scaled"])
    check_close(attention_weights(*scores_to_qk(raw))[0, 0], expected["softmax"])


def test_attention_output_of_cat() -> None:
    expected, scores = EXAMPLE["attention_output_cat"], EXAMPLE["attention_scores"]
    q, k = scores_to_qk(tensor(scores["raw"]))
    out = identity_attention().attend(q, k, tensor(expected["values"])[None, None], None)
    check_close(out[0, 1], expected["value"])


@pytest.mark.parametrize(("name", "addend"), [("residual_cat", "attention"), ("second_residual_cat", "feed_forward")])
def test_residual_connections(name: str, addend: str) -> None:
    expected = EXAMPLE[name]
    residual = PreNormResidual(TINY).eval()
    check_close(residual(tensor(expected["x"]), lambda _: tensor(expected[addend])), expected["value"])


def test_causal_softmax_of_el() -> None:
    """The example's second row sees two of three positions, its scores being scaled already."""
    expected = EXAMPLE["causal_softmax_el"]
    visible = [0.0 if score == "-inf" else float(score) for score in expected["scores"]]
    q, k = scores_to_qk(torch.tensor([[0.0] * 3, visible, [0.0] * 3]) * 2.0)
    check_close(attention_weights(q, k, causal_mask(3))[0, 0, 1], expected["value"])


def test_residual_census() -> None:
    expected = EXAMPLE["residual_census"]
    config = TINY.model_copy(
        update={"num_encoder_layers": expected["encoder_layers"], "num_decoder_layers": expected["decoder_layers"]}
    )
    model = Transformer(config, 10, 10)
    count = [sum(isinstance(m, Residual) for m in stack.modules()) for stack in (model.encoder, model.decoder)]
    assert [*count, sum(count)] == [expected["encoder"], expected["decoder"], expected["total"]]


def test_base_shapes() -> None:
    expected = EXAMPLE["base_shapes"]
    config = ModelConfig()
    assert (config.d_model, config.d_ff, config.num_heads) == (
        expected["d_model"], expected["d_ff"], expected["num_heads"],
    )  # fmt: skip
    assert config.num_encoder_layers == config.num_decoder_layers == expected["layers"]
    attention = MultiHeadAttention(config.d_model, config.num_heads, 0.0, True)
    assert attention.project_query(torch.zeros(1, 1, config.d_model)).shape[-1] == expected["head_dim"]


def test_erratum_query_projection() -> None:
    expected = erratum("query projection")
    attention = MultiHeadAttention(4, 1, 0.0, bias=False)
    with torch.no_grad():
        attention.q_proj.weight.copy_(tensor(expected["w_q"]).T)
    check_close(
        attention.project_query(tensor(expected["x"])[None])[0, 0], expected["value"], 6e-4
    )  # printed to 3 places


@pytest.mark.parametrize("beginning", ["layer norm of [2.14", "layer norm of [2.59"])
def test_erratum_layer_norm(beginning: str) -> None:
    expected = erratum(beginning)
    vector = [float(x) for x in expected["what"].split("[")[1].split("]")[0].split(",")]
    check_close(make_norm(TINY)(torch.tensor(vector)), expected["value"])
    check_close(PostNormResidual(TINY).eval()(torch.tensor(vector), torch.zeros_like), expected["value"])


def test_erratum_gelu() -> None:
    expected = erratum("exact GELU")
    inputs = [float(x) for x in expected["what"].split("[")[1].split("]")[0].split(",")]
    check_close(KINDS["gelu"][1]()(torch.tensor(inputs)), expected["value"])


def test_erratum_cross_attention() -> None:
    expected = erratum("cross-attention dot products")
    q = torch.tensor([[0.82, -0.15, 0.93, 0.44]])
    k = torch.tensor([[0.31, 0.72, 0.18, 0.55], [0.88, 0.41, -0.20, 0.93], [-0.15, 0.66, 0.71, -0.28]])
    check_close((q @ k.T)[0], expected["value"])
    check_close(attention_weights(q[None, None], k[None, None])[0, 0, 0], expected["softmax_after_scaling_by_2"])


def test_erratum_output_softmax() -> None:
    expected = erratum("output softmax")
    check_close(torch.tensor([0.3, -1.2, 3.8, 1.1, -0.5]).softmax(-1), expected["value"])


def test_erratum_each_layer_has_its_own_weights() -> None:
    layers = list(Transformer(TINY, 10, 10).encoder.layers)
    assert len({id(p) for layer in layers for p in layer.parameters()}) == sum(
        len(list(x.parameters())) for x in layers
    )


def test_erratum_masking_gives_no_nan_in_half_precision() -> None:
    """-1e11 would overflow float16; -inf with one key left to attend to does not."""
    q = k = torch.ones(1, 1, 3, 4, dtype=torch.float16)
    weights = attention_weights(q, k, causal_mask(3))
    check_close(weights[0, 0].float(), [[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]], 1e-3)
