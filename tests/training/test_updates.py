"""One update: accumulation equals the big batch, the loss is a mean over target tokens, a bad loss moves nothing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from toy import toy_config
from updating import REGULARISERS, gradients, make_updater

from transformer_mt.data.preparation import PreparedData
from transformer_mt.errors import UserError
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.micro_batch import dropout_seed


@pytest.mark.parametrize("cut", [[8], [4, 4], [1, 2, 5], [1] * 8])
def test_accumulation_equals_the_big_batch(corpus: Path, data: PreparedData, cut: list[int]) -> None:
    config = toy_config(corpus, model={"dropout": 0.0}, training={"clip_norm": None})
    rows = np.arange(8)
    assert len(set(data.train.tgt_lengths[rows].tolist())) > 2, "the sentences should differ in length"
    whole, parts = make_updater(config, data), make_updater(config, data)
    first = whole.update(data.train, [rows], 1, "").result()
    second = parts.update(data.train, np.split(rows, np.cumsum(cut)[:-1]), 1, "").result()
    for a, b in zip(gradients(whole), gradients(parts), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    assert first.num_tokens == second.num_tokens == int(data.train.tgt_lengths[rows].sum())
    assert first.loss == pytest.approx(second.loss, rel=1e-5)


def test_clipping_and_rate_are_those_of_the_config(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus, model={"dropout": 0.0}, training={"clip_norm": 0.05})
    updater = make_updater(config, data)
    result = updater.update(data.train, [np.arange(8)], 5, "").result()
    norm = torch.stack([g.norm() for g in gradients(updater)]).norm().item()
    assert result.grad_norm > 0.05
    assert norm == pytest.approx(0.05, rel=1e-4)
    assert result.lr == pytest.approx(16**-0.5 * 5 * 10**-1.5)
    assert updater.optimizer.param_groups[0]["lr"] == result.lr


def test_steps_are_those_of_adam_as_the_config_has_it(corpus: Path, data: PreparedData) -> None:
    """Kingma and Ba 2015, algorithm 1, in float64 on the clipped gradients."""
    training = {"clip_norm": 0.5, "adam_betas": [0.5, 0.7], "adam_eps": 1e-3}
    config = toy_config(corpus, model={"dropout": 0.0}, training=training)
    updater = make_updater(config, data)
    weights = [p.detach().double() for p in updater.model.parameters()]
    m, v = [[torch.zeros_like(w) for w in weights] for _ in range(2)]
    for step in (1, 2, 3):
        assert updater.update(data.train, [np.arange(8 * step, 8 * step + 8)], step, "").result().grad_norm > 0.5
        lr = 16**-0.5 * step * 10**-1.5
        for i, gradient in enumerate(gradients(updater)):
            m[i] = 0.5 * m[i] + 0.5 * gradient.double()
            v[i] = 0.7 * v[i] + 0.3 * gradient.double() ** 2
            weights[i] -= lr * (m[i] / (1 - 0.5**step)) / ((v[i] / (1 - 0.7**step)).sqrt() + 1e-3)
        for ours, expected in zip(updater.model.parameters(), weights, strict=True):
            torch.testing.assert_close(ours.detach().double(), expected, atol=1e-6, rtol=0)


def test_dropout_is_a_function_of_seed_and_step(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus, model={"dropout": 0.3})
    losses = {}
    for name, step in (("a", 1), ("b", 1), ("c", 2)):
        updater = make_updater(config, data)
        torch.rand(len(losses))  # whatever else draws random numbers makes no difference
        losses[name] = updater.update(data.train, [np.arange(8)], step, "").result().loss
    assert losses["a"] == losses["b"] != losses["c"]


def test_micro_batches_of_an_update_draw_different_dropout() -> None:
    seeds = {dropout_seed(seed, step, index) for seed in (1, 2) for step in (1, 2) for index in (0, 1, 2)}
    assert len(seeds) == 12


def test_fp16_stops_where_gradients_are_not_finite_at_any_scale(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus)
    updater = make_updater(config, data, "fp16")
    output = updater.model.output.weight
    output.register_hook(lambda gradient: gradient * torch.nan)
    before = output.clone()

    def forty_updates() -> None:
        for step in range(1, 41):
            updater.update(data.train, [np.arange(8)], step, "")

    with pytest.raises(UserError, match="The gradient norm is nan at step"):
        forty_updates()
    assert torch.equal(before, output), "every step was skipped"


def test_a_scale_of_the_loss_that_grows_skips_nothing(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus)
    updater = make_updater(config, data, "fp16")
    updater.scaler = torch.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    found = []
    for step in range(1, 5):
        skipped = updater.update(data.train, [np.arange(8)], step, "").result().skipped
        found.append((skipped, updater.scaler.get_scale()))
    assert found == [(False, 1024), (False, 2048), (False, 2048), (False, 4096)]


@pytest.mark.parametrize("regularisers", [{}, REGULARISERS], ids=["plain", "regularised"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_reduced_precision_learns_what_fp32_learns(
    corpus: Path, data: PreparedData, precision: str, regularisers: dict
) -> None:
    config = toy_config(corpus, model={"dropout": 0.0}, training={**regularisers, "factor": 0.1})
    losses = {}
    for name in ("fp32", precision):
        updater = make_updater(config, data, name)
        losses[name] = [updater.update(data.train, [np.arange(16)], step, "").result().loss for step in range(1, 16)]
    assert all(p.dtype == torch.float32 for p in updater.model.parameters())
    np.testing.assert_allclose(losses[precision], losses["fp32"], rtol=0.03)
    assert losses[precision] != losses["fp32"]


def test_a_loss_that_is_not_finite_moves_nothing(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus)
    updater = make_updater(config, data)
    updater.update(data.train, [np.arange(8)], 1, "")
    with torch.no_grad():
        assert isinstance(updater.model, Transformer)
        updater.model.encoder.embedder.table[5] = torch.nan
    before = [p.clone() for p in updater.model.parameters()]
    with pytest.raises(UserError, match=r"loss is nan at step 2 \(epoch 1, micro-batch 4; .*train.en / .*line 1\)"):
        updater.update(data.train, [np.arange(120)], 2, "epoch 1, micro-batch 4")
    for a, b in zip(before, updater.model.parameters(), strict=True):
        assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
