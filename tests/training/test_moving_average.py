"""The moving average of the weights: the weighted sum that its decay says, after every update."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from toy import toy_config
from trainings import assert_same_run, metrics
from updating import CPU, make_updater

from transformer_mt.data.preparation import PreparedData, prepare_data
from transformer_mt.decoding.load_model import build_model, load_run
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import unique_weights
from transformer_mt.training.moving_average import decay_at
from transformer_mt.training.resuming.resume_rules import allowed_changes
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.updates import Updater
from transformer_mt.training.validation import Validator

NUM_STEPS = 12


def trained(corpus: Path, data: PreparedData, decay: float) -> tuple[Updater, list[dict]]:
    """An updater after some updates, and its weights before and after each."""
    updater = make_updater(toy_config(corpus, training={"ema_decay": decay}), data)
    weights = [{name: weight.clone() for name, weight in unique_weights(updater.model).items()}]
    for step in range(1, NUM_STEPS + 1):
        updater.update(data.train, [np.arange(step, step + 8), np.arange(step + 8, step + 12)], step, "").result()
        weights.append({name: weight.clone() for name, weight in unique_weights(updater.model).items()})
    return updater, weights


def averages(updater: Updater) -> dict[str, Tensor]:
    assert updater.averages is not None
    return updater.averages


@pytest.mark.parametrize("decay", [0.4, 0.9, 0.9999])
def test_it_is_the_weighted_sum_of_the_weights_after_each_update(
    corpus: Path, data: PreparedData, decay: float
) -> None:
    """sum over s of (1 - d_s) d_(s+1) ... d_n weights_s, and d_1 ... d_n of the weights at the start, in float64."""
    updater, weights = trained(corpus, data, decay)
    decays = [min(decay, (1 + step) / (10 + step)) for step in range(1, NUM_STEPS + 1)]
    shares = [(1 - d) * np.prod(decays[s + 1 :]) for s, d in enumerate(decays)]
    shares = [float(np.prod(decays)), *shares]
    assert sum(shares) == pytest.approx(1)
    assert max(shares) < 0.7
    for name, average in averages(updater).items():
        expected = sum(share * found[name].double() for share, found in zip(shares, weights, strict=True))
        torch.testing.assert_close(average.double(), expected, rtol=0, atol=1e-6, msg=name)
        assert average.dtype == torch.float32


def test_with_decay_0_it_is_the_weights(corpus: Path, data: PreparedData) -> None:
    updater, weights = trained(corpus, data, 0.0)
    assert all(torch.equal(average, weights[-1][name]) for name, average in averages(updater).items())


def test_the_weights_at_the_start_are_soon_forgotten() -> None:
    left = np.cumprod([decay_at(0.9999, step) for step in range(1, 31)])
    assert left[18] < 1e-6 < left[17]
    assert decay_at(0.999, 10**6) == 0.999


def test_training_is_the_same_with_it(corpus: Path, data: PreparedData) -> None:
    plain = make_updater(toy_config(corpus), data)
    plain.update(data.train, [np.arange(8)], 1, "").result()
    averaged = make_updater(toy_config(corpus, training={"ema_decay": 0.9}), data)
    averaged.update(data.train, [np.arange(8)], 1, "").result()
    for one, two in zip(plain.model.parameters(), averaged.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_an_update_that_fp16_skips_does_not_count(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus, training={"ema_decay": 0.9})
    torch.manual_seed(0)
    updater = Updater(
        build_model(config, data.src_tokenizer, data.tgt_tokenizer), config.training, config.seed, "fp16", CPU
    )
    updater.scaler = torch.GradScaler("cpu", init_scale=2.0**120)
    before = {name: weight.clone() for name, weight in averages(updater).items()}
    assert updater.update(data.train, [np.arange(8)], 1, "").result().skipped
    assert all(torch.equal(weight, before[name]) for name, weight in averages(updater).items())


def test_a_copy_for_validation_has_the_average_and_keeps_ties(corpus: Path) -> None:
    config = toy_config(corpus, tokenizer={"joint": True}, model={"tie_embeddings": "all"}, training={"ema_decay": 0.5})
    updater, weights = trained(corpus, prepare_data(config), 0.5)
    with updater.whole_model(updater.averages) as model:
        shown = unique_weights(model)
        assert model is not updater.model
    assert shown.keys() == weights[-1].keys()
    assert all(torch.equal(weight, averages(updater)[name]) for name, weight in shown.items())
    assert not all(torch.equal(weight, weights[-1][name]) for name, weight in shown.items())


def test_a_checkpoint_holds_both_and_goes_on_exactly(corpus: Path, tmp_path: Path) -> None:
    """The average is what is validated and translates, the trained weights lie by the optimizer."""

    def train(name: str, max_steps: int, resume: bool = False) -> RunFolder:
        training = {"ema_decay": 0.9, "max_steps": max_steps, "checkpoint_every_steps": 10}
        config = toy_config(corpus, training=training, validation={"every_steps": 10})
        return start_or_resume(config, RunFolder(tmp_path / name), resume).run

    straight = train("straight", 20)
    train("resumed", 10)
    assert_same_run(straight.path, train("resumed", 20, resume=True).path, 20)
    weights, moments = (load_file(straight.step(20) / f"{name}.safetensors") for name in ("model", "optimizer"))
    raw = {name.removesuffix(".trained"): moments[name] for name in moments if name.endswith(".trained")}
    assert raw.keys() == weights.keys()
    assert not any(torch.equal(raw[name], weights[name]) for name in raw)
    config, model, *_ = load_run(straight, "last")
    result = Validator(config, prepare_data(config), "fp32").validate(model, lambda: None)
    assert result.metrics["nll"] == pytest.approx(metrics(straight.path)[-1]["nll"], abs=1e-6)


def test_resuming_with_another_decay_is_refused(corpus: Path) -> None:
    before = toy_config(corpus)
    with pytest.raises(UserError, match=r"training\.ema_decay: was None, is 0\.9"):
        allowed_changes(before, toy_config(corpus, training={"ema_decay": 0.9}), change_lr=False)
