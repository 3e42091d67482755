import math

import pytest

from transformer_mt.config.schema import TrainingConfig
from transformer_mt.training.schedule import make_schedule


def rate(step: int, d_model: int = 512, **values) -> float:
    return make_schedule(TrainingConfig(**{"max_steps": 1000, **values}), d_model)(step)


def test_noam_by_hand() -> None:
    """d_model 512, warmup 4000: the peak is 512^-0.5 * 4000^-0.5 = 0.00069877 at step 4000."""
    assert rate(4000) == pytest.approx(0.000698771, abs=1e-9)
    assert rate(1) == pytest.approx(1.74693e-7, rel=1e-4)
    assert rate(2000) == pytest.approx(rate(4000) / 2)
    assert rate(16000) == pytest.approx(rate(4000) / 2)
    assert rate(2000, factor=2.0) == pytest.approx(rate(4000))


def test_inverse_sqrt_is_noam_with_a_stated_peak() -> None:
    peak = rate(100, warmup_steps=100)
    for step in (1, 50, 100, 400, 1000):
        ours = rate(step, schedule="inverse_sqrt", lr=peak, warmup_steps=100)
        assert ours == pytest.approx(rate(step, warmup_steps=100))
    without = [rate(step, schedule="inverse_sqrt", lr=1e-3, warmup_steps=0) for step in (1, 4, 100)]
    assert without == pytest.approx([1e-3, 5e-4, 1e-4])


def test_cosine_by_hand() -> None:
    values = {"schedule": "cosine", "lr": 1e-3, "warmup_steps": 100, "max_steps": 1100}
    assert rate(50, **values) == pytest.approx(5e-4)
    assert rate(100, **values) == pytest.approx(1e-3)
    assert rate(600, **values) == pytest.approx(5e-4)
    assert rate(350, **values) == pytest.approx(1e-3 * (1 + math.sqrt(0.5)) / 2)
    assert rate(1100, **values) == pytest.approx(0, abs=1e-12)


def test_constant_warms_up_and_stays() -> None:
    values = {"schedule": "constant", "lr": 1e-3, "warmup_steps": 10}
    assert [rate(step, **values) for step in (1, 5, 10, 500)] == pytest.approx([1e-4, 5e-4, 1e-3, 1e-3])
    assert rate(1, schedule="constant", lr=1e-3, warmup_steps=0) == pytest.approx(1e-3)
