"""Word dropout and LayerDrop: how much is dropped, where, and that nothing is where nothing is asked for."""

from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import batch_loss
from transformer_mt.model.parts.layer_drop import drawn
from transformer_mt.model.parts.word_dropout import WordFactors, word_factors
from transformer_mt.model.transformer import Transformer

SRC, TGT = torch.tensor([[5, 6, 7, 3], [8, 9, 3, 0]]), torch.tensor([[2, 5, 6], [2, 7, 0]])
ONE_STREAM = {"architecture": "decoder_only", "num_encoder_layers": 0, "tie_embeddings": "all"}

RNN = {"architecture": "rnn", "d_ff": 2048, "num_heads": 8}


def make_model(**changes: Any) -> TranslationModel:
    values = {"d_model": 16, "d_ff": 24, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2}
    torch.manual_seed(0)
    config = ModelConfig(**{**values, "dropout": 0.0, "max_len": 32, **changes})
    return ARCHITECTURES[config.architecture](config, 20, 20).train()


# Words


def test_as_many_words_are_dropped_as_asked_for_and_the_mean_stays() -> None:
    """A factor is 0 with probability p, else 1 / (1 - p): its mean is 1 and its variance p / (1 - p)."""
    config = ModelConfig(src_word_dropout=0.3, tgt_word_dropout=0.1)
    torch.manual_seed(3)
    factors = word_factors(config, torch.ones(400, 500), torch.ones(400, 500))
    assert factors is not None
    for factor, p in zip(factors, (0.3, 0.1), strict=True):
        n = factor.numel()
        assert (factor == 0).double().mean().item() == pytest.approx(p, abs=5 * (p * (1 - p) / n) ** 0.5)
        assert factor.double().mean().item() == pytest.approx(1, abs=5 * (p / (1 - p) / n) ** 0.5)
        assert factor.double().var().item() == pytest.approx(p / (1 - p), rel=0.02)
    assert word_factors(ModelConfig(), SRC, TGT) is None


@pytest.mark.parametrize("changes", [{}, ONE_STREAM, RNN], ids=["encoder_decoder", "decoder_only", "rnn"])
def test_a_word_that_is_dropped_is_any_other_word_at_that_place(changes: dict[str, Any]) -> None:
    """On each side; the position stays, so another place makes a difference."""
    model = make_model(**changes)
    places = [(0, 1), (1, 0)]

    def states(other: int, places: list[tuple[int, int]]) -> Tensor:
        ids, factors = (SRC.clone(), TGT.clone()), WordFactors(torch.ones(SRC.shape), torch.ones(TGT.shape))
        for side, factor in zip(ids, factors, strict=True):
            for place in places:
                side[place], factor[place] = other, 0
        return model.hidden_states(*ids, None, factors)

    torch.testing.assert_close(states(11, places), states(12, places))
    assert not torch.allclose(states(11, places), states(11, [(0, 2), (1, 0)]), atol=1e-3)


def test_words_are_dropped_in_training_alone() -> None:
    model = make_model(src_word_dropout=0.5)
    losses = [batch_loss(model, SRC, TGT, TGT, 0.1).loss for _ in range(2)]
    assert losses[0] != losses[1]
    model.eval()
    assert batch_loss(model, SRC, TGT, TGT, 0.1).loss == batch_loss(model, SRC, TGT, TGT, 0.1).loss


def test_without_padding_the_same_words_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(num_heads=1, src_word_dropout=0.4, tgt_word_dropout=0.4)
    assert model.goes_unpadded()
    torch.manual_seed(4)
    unpadded = batch_loss(model, SRC, TGT, TGT, 0.1).loss
    monkeypatch.setattr(Transformer, "goes_unpadded", lambda self: False)
    torch.manual_seed(4)
    torch.testing.assert_close(batch_loss(model, SRC, TGT, TGT, 0.1).loss, unpadded)


# Layers


def test_as_many_layers_are_skipped_as_asked_for() -> None:
    torch.manual_seed(5)
    share = sum(drawn(0.3) for _ in range(20_000)) / 20_000
    assert share == pytest.approx(0.3, abs=5 * (0.3 * 0.7 / 20_000) ** 0.5)


@pytest.mark.parametrize("changes", [{}, {"num_heads": 1}, ONE_STREAM], ids=["padded", "unpadded", "decoder_only"])
def test_where_all_layers_are_skipped_the_stack_is_the_identity(changes: dict[str, Any]) -> None:
    """Up to the final norm. The layers get a gradient of 0, everything else one of its own."""
    model = make_model(layer_drop=1 - 1e-9, **changes)
    loss = batch_loss(model, SRC, TGT, TGT, 0.1).loss
    stack = model.get_submodule("decoder")
    at = torch.arange(3)[None] + (torch.tensor([[4], [3]]) if changes == ONE_STREAM else 0)
    hidden = stack.get_submodule("norm")(stack.get_submodule("embedder")(TGT, at))
    log_probs = model.output(hidden).log_softmax(-1)[TGT != 0]
    targets = TGT[TGT != 0]
    expected = 0.9 * -log_probs.gather(1, targets[:, None]).sum() - 0.1 * log_probs.mean(-1).sum()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    for name, parameter in model.named_parameters():
        if "layers." in name:
            assert parameter.grad is not None
            assert not parameter.grad.any(), name
    assert model.output.weight.grad is not None
    assert model.output.weight.grad.any()


def test_a_mixture_of_experts_that_is_skipped_balances_nothing() -> None:
    model = make_model(layer_drop=1 - 1e-9, num_experts=3)
    assert batch_loss(model, SRC, TGT, TGT, 0.1).load_balancing is None


def test_layers_are_skipped_in_training_alone_and_by_the_seed() -> None:
    model, plain = make_model(layer_drop=0.5), make_model()
    found = []
    for seed in range(8):
        for _ in range(2):
            torch.manual_seed(seed)
            found.append(batch_loss(model, SRC, TGT, TGT, 0.1).loss.item())
    assert found[::2] == found[1::2]
    assert len(set(found)) > 3
    assert torch.equal(model.eval()(SRC, TGT), plain.eval()(SRC, TGT))
