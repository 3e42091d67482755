"""Learning rates: laws of every schedule in the table, values worked out by hand, and what the config asks of each."""

from itertools import pairwise
from typing import Any

import pytest
from pydantic import ValidationError

from transformer_mt.config.schedules import SCHEDULES, Rate, make_schedule
from transformer_mt.config.sections.training import TrainingConfig

VALUES: dict[str, Any] = {"factor": 2.0, "lr": 1e-3, "warmup_steps": 100, "max_steps": 1100, "decay_steps": 200}
OTHERS: dict[str, Any] = {"factor": 3.0, "lr": 2e-3, "warmup_steps": 50, "max_steps": 900, "decay_steps": None}
# Steps and rates at VALUES and d_model 512. noam: 2 * 512^-0.5 = 0.0883883, times step * 100^-1.5 or step^-0.5.
BY_HAND = {
    "noam": {1: 8.83883e-5, 50: 4.41942e-3, 100: 8.83883e-3, 400: 4.41942e-3, 1600: 2.20971e-3},
    "inverse_sqrt": {50: 5e-4, 100: 1e-3, 400: 5e-4, 1600: 2.5e-4},
    "cosine": {50: 5e-4, 100: 1e-3, 350: 1e-3 * (1 + 0.5**0.5) / 2, 600: 5e-4, 1100: 0.0},
    "constant": {1: 1e-5, 50: 5e-4, 100: 1e-3, 5000: 1e-3},
    "wsd": {50: 5e-4, 100: 1e-3, 700: 1e-3, 900: 1e-3, 950: 7.5e-4, 1000: 5e-4, 1100: 0.0, 1200: 0.0},
    "linear": {50: 5e-4, 100: 1e-3, 350: 7.5e-4, 600: 5e-4, 1099: 1e-6, 1100: 0.0, 1200: 0.0},
}


def rate_of(name: str, **changes: Any) -> Rate:
    return make_schedule(name, TrainingConfig.model_construct(**{**VALUES, **changes}), 512)


def config_of(name: str, **changes: Any) -> TrainingConfig:
    """With the keys that the schedule needs, and an end."""
    needed = {key: VALUES[key] for key in SCHEDULES[name].keys}
    return TrainingConfig(**{"schedule": name, "max_steps": 1100, **needed, **changes})


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_by_hand(name: str) -> None:
    rate = rate_of(name)
    assert {step: rate(step) for step in BY_HAND[name]} == pytest.approx(BY_HAND[name], rel=1e-5, abs=1e-12)


def test_the_paper_at_its_own_settings() -> None:
    """d_model 512, warmup 4000: the peak is 512^-0.5 * 4000^-0.5 = 0.00069877 at step 4000."""
    rate = make_schedule("noam", TrainingConfig(max_steps=1000), 512)
    assert rate(4000) == pytest.approx(0.000698771, abs=1e-9)
    assert rate(1) == pytest.approx(1.74693e-7, rel=1e-4)


def test_inverse_sqrt_is_fairseqs() -> None:
    """Its --lr-scheduler inverse_sqrt with --warmup-init-lr 0: equal steps, then lr * sqrt(warmup) / sqrt(updates)."""
    lr, warmup, rate = 1e-3, 100, rate_of("inverse_sqrt")
    decay_factor, lr_step = lr * warmup**0.5, lr / warmup
    for updates in (1, 7, 99, 100, 101, 5000):
        theirs = updates * lr_step if updates < warmup else decay_factor * updates**-0.5
        assert rate(updates) == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_rises_in_a_line_to_its_peak_and_never_again(name: str) -> None:
    rate, warmup = rate_of(name), VALUES["warmup_steps"]
    rates = [rate(step) for step in range(1, 1500)]
    assert rates[:warmup] == pytest.approx([rate(warmup) * step / warmup for step in range(1, warmup + 1)])
    assert all(after <= before for before, after in pairwise(rates[warmup - 1 :]))
    assert min(rates[: VALUES["max_steps"] - 1]) > 0
    assert min(rates) >= 0
    assert (rate(VALUES["max_steps"]) < 1e-15) == SCHEDULES[name].needs_end


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("key", VALUES)
def test_a_rate_depends_on_its_keys_and_on_no_other(name: str, key: str) -> None:
    rate, other = rate_of(name), rate_of(name, **{key: OTHERS[key]})
    differs = any(rate(step) != other(step) for step in range(1, 1500))
    assert differs == (key in SCHEDULES[name].keys)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_a_warm_up_the_first_rates_are_the_peak(name: str) -> None:
    if SCHEDULES[name].needs_warmup:
        with pytest.raises(ValidationError, match=f"warmup_steps is 0; the {name} schedule needs 1 or more"):
            config_of(name, warmup_steps=0)
    else:
        assert rate_of(name, warmup_steps=0)(1) == pytest.approx(VALUES["lr"], rel=2e-3)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_config_asks_for_the_keys_of_a_schedule_and_for_no_other(name: str) -> None:
    keys = SCHEDULES[name].keys
    config_of(name)
    for key in ("lr", "factor", "decay_steps"):
        if key not in keys:
            with pytest.raises(ValidationError, match=f"{key} has no meaning under schedule: {name}"):
                config_of(name, **{key: VALUES[key]})
    if "lr" in keys:
        with pytest.raises(ValidationError, match=f"schedule: {name} needs lr, its peak rate"):
            config_of(name, lr=None)
    for end in ({"max_steps": None, "max_epochs": 1}, {"max_steps": 100}):
        if SCHEDULES[name].needs_end:
            with pytest.raises(ValidationError, match=f"schedule: {name} needs max_steps, and more of them than"):
                config_of(name, **end)
        else:
            config_of(name, **end)


def test_the_decay_of_wsd_is_a_tenth_unless_it_is_told() -> None:
    rate = rate_of("wsd", decay_steps=None)
    assert [rate(step) for step in (990, 1045, 1100)] == pytest.approx([1e-3, 5e-4, 0.0])
    with pytest.raises(ValidationError, match="warmup_steps 100 and decay_steps 1001 are more than max_steps 1100; "):
        config_of("wsd", decay_steps=1001)
    assert config_of("wsd", decay_steps=1000).decay_steps == 1000
    with pytest.raises(ValidationError, match="warmup_steps 991 and decay_steps 110 are more than max_steps 1100; "):
        config_of("wsd", warmup_steps=991, decay_steps=None)
    assert config_of("wsd", warmup_steps=990, decay_steps=None).decay_steps is None


def test_wsd_before_its_decay_is_that_of_a_longer_run() -> None:
    short, long = rate_of("wsd"), rate_of("wsd", max_steps=5000)
    assert [short(step) for step in range(1, 901)] == [long(step) for step in range(1, 901)]
    assert short(901) < long(901)
