"""An encoder alone: torch's stack and a head written out, the laws of every model, and the loss of what is told."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from plain_model import PLAIN, VOCAB, random_ids
from test_parity import copy_layer, randomise
from torch import Tensor, nn

from transformer_mt.config.sections.consistency import ConsistencyConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.errors import UserError
from transformer_mt.model.consistency import consistent_batch_loss
from transformer_mt.model.encoder_only import EncoderOnly
from transformer_mt.model.layers import RESIDUALS, EncoderLayer
from transformer_mt.model.loss import batch_loss
from transformer_mt.model.parts.norms import NORMS
from transformer_mt.model.unpadded import BlockDiagonal


def make_model(**options: Any) -> EncoderOnly:
    """Away from the point where it starts: there biases are 0 and norms 1, where a mistake can hide."""
    config = ModelConfig(**{**PLAIN, "architecture": "encoder_only", "num_decoder_layers": 0, **options})
    torch.manual_seed(0)
    model = EncoderOnly(config, VOCAB, VOCAB)
    randomise(model)
    return model.eval()


def make_batch(*lengths: int, width: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """src, its targets in place, about a third of them told, and the places that are told."""
    src, tgt = torch.full((len(lengths), width), PAD_ID), torch.full((len(lengths), width), PAD_ID)
    for row, length in enumerate(lengths):
        src[row, :length] = random_ids(length, seed=row)
        tgt[row, :length:3] = random_ids(-(-length // 3), seed=row + 50)
    return src, tgt, (tgt.flatten() != PAD_ID).nonzero().flatten()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm_position", RESIDUALS)
def test_it_is_torchs_stack_and_a_head_written_out(norm_position: str, bias: bool) -> None:
    """Logits, and the gradient of the embeddings: through the stack, and through the output that is tied to them."""
    model = make_model(norm_position=norm_position, bias=bias, dropout=0.0)
    layer = nn.TransformerEncoderLayer(
        PLAIN["d_model"], PLAIN["num_heads"], PLAIN["d_ff"], 0.0, F.gelu, batch_first=True, bias=bias,
        norm_first=norm_position == "pre",
    )  # fmt: skip
    final = nn.LayerNorm(PLAIN["d_model"], bias=bias) if norm_position == "pre" else None
    theirs = nn.TransformerEncoder(layer, PLAIN["num_encoder_layers"], final, enable_nested_tensor=False)
    randomise(theirs)
    for ours, other in zip(model.encoder.layers, theirs.layers, strict=True):
        assert isinstance(ours, EncoderLayer)
        copy_layer(ours, other)
    if final is not None:
        model.encoder.norm.load_state_dict(final.state_dict())
    src, _, _ = make_batch(12, 5, 8)
    weight, at = model.encoder.embedder.table, torch.arange(12)[None]
    x = weight[src] * math.sqrt(PLAIN["d_model"])
    x = theirs(model.encoder.embedder.positions(x, at), src_key_padding_mask=src == PAD_ID)
    dense, norm = model.head.dense, model.head.norm
    assert isinstance(norm, nn.LayerNorm)
    y = x @ dense.weight.T + (dense.bias if bias else 0)
    y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))  # gelu
    y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, correction=0, keepdim=True) + 1e-5).sqrt() * norm.weight
    y = y + norm.bias if bias else y
    expected = y @ weight.T + (model.output.bias if bias else 0)
    found, real = model(src, src), src != PAD_ID
    assert model.output.weight is weight
    torch.testing.assert_close(found[real], expected[real], atol=2e-5, rtol=1e-5)
    direction = torch.randn(found[real].shape, generator=torch.Generator().manual_seed(2))
    gradients = [torch.autograd.grad((logits[real] * direction).sum(), weight)[0] for logits in (found, expected)]
    torch.testing.assert_close(*gradients, atol=1e-3, rtol=1e-4)


def test_the_loss_is_that_of_the_told_places_alone() -> None:
    model = make_model(dropout=0.0)
    src, tgt, real = make_batch(12, 5, 8)
    logits = model(src, src)
    expected = -sum(
        logits[row, place].log_softmax(-1)[int(tgt[row, place])] for row, place in (tgt != PAD_ID).nonzero().tolist()
    )
    found = batch_loss(model, src, src, tgt, 0.0, real)
    torch.testing.assert_close(found.nll, torch.as_tensor(expected))
    assert batch_loss(model, src, src, tgt, 0.0).nll == found.nll
    assert len(real) == 4 + 2 + 3


@pytest.mark.parametrize("window", [None, 3])
def test_every_position_sees_all_others_within_its_window(window: int | None) -> None:
    model = make_model(attention_window=window)
    vectors = {}

    def keep(_module, _inputs, output):
        vectors["x"] = output.detach().requires_grad_()
        return vectors["x"]

    model.encoder.embedder.register_forward_hook(keep)
    src = random_ids(1, 9)
    logits = model(src, src)
    for t in range(9):
        (gradient,) = torch.autograd.grad(logits[0, t].square().sum(), vectors["x"], retain_graph=True)
        reached = (gradient[0].abs().sum(dim=-1) > 0).tolist()
        assert reached == [window is None or abs(t - place) <= 2 * (window - 1) for place in range(9)]  # of two layers


@pytest.mark.parametrize(
    "options", [{}, {"norm_position": "post", "positions": "learned"}, {"num_experts": 4}], ids=str
)
def test_without_padding_it_has_the_loss_and_the_gradients_of_the_padded_batch(
    options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(**{"d_model": 64, "dropout": 0.0, **options}).train()  # heads that are wide enough
    src, tgt, real = make_batch(12, 1, 8, width=15)
    masks, found = [], []
    model.encoder.register_forward_pre_hook(lambda _module, inputs: masks.append(inputs[1]))
    for unpadded in (True, False):
        if not unpadded:
            monkeypatch.setattr(EncoderOnly, "goes_unpadded", lambda self: False)
        model.zero_grad()
        sums = batch_loss(model, src, src, tgt, 0.1, real)
        sums.loss.backward()
        found.append([sums.loss, sums.nll, *(parameter.grad for parameter in model.parameters())])
    assert [isinstance(mask, BlockDiagonal) for mask in masks] == [True, False]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.detach().abs().max()) + 1e-6)


@pytest.mark.parametrize("kind", ["simcut", "rdrop"])
def test_two_passes_that_differ_in_nothing_are_one(kind: str) -> None:
    cut = {"cut": 0.0} if kind == "simcut" else {}
    model = make_model(dropout=0.0).train()
    src, tgt, real = make_batch(12, 5)
    twice = consistent_batch_loss(
        model, src, src, tgt, 0.1, ConsistencyConfig.model_validate({"kind": kind, **cut}), real
    )
    assert twice.divergence is not None
    assert abs(float(twice.divergence)) < 1e-4
    torch.testing.assert_close(twice.loss, batch_loss(model, src, src, tgt, 0.1, real).loss)


@pytest.mark.parametrize("norm", NORMS)
def test_in_bf16_the_norm_of_the_head_has_all_digits(norm: str, recwarn: pytest.WarningsRecorder) -> None:
    """As those of the layers have. Of fewer torch warned on standard error, under rmsnorm."""
    head = make_model(norm=norm).head
    with torch.autocast("cpu", torch.bfloat16):
        assert head(torch.randn(3, PLAIN["d_model"])).dtype == torch.float32
    assert not recwarn.list


def test_it_writes_nothing() -> None:
    model = make_model()
    with pytest.raises(UserError, match="encoder_only, which fills in hidden words and writes no translation"):
        model.start(random_ids(1, 5))
