"""When a training is over, by hand."""

from pathlib import Path

import pytest
from toy import toy_config

from transformer_mt.training.resuming.training_state import TrainingState

LIMITS = {"max_steps": None, "max_epochs": None, "max_minutes": None}


@pytest.mark.parametrize(
    ("limit", "before", "there", "reason"),
    [
        ({"max_steps": 1200}, {"step": 1199}, {"step": 1200}, "max_steps 1,200 reached"),
        ({"max_epochs": 3}, {"epoch": 2, "micro_batch": 9}, {"epoch": 3}, "max_epochs 3 reached"),
        ({"max_minutes": 2}, {"elapsed_seconds": 119.0}, {"elapsed_seconds": 120.0}, "max_minutes 2 reached"),
        (
            {"max_minutes": 2},
            {"step": 0, "elapsed_seconds": 240.0},
            {"elapsed_seconds": 120.0},
            "max_minutes 2 reached",
        ),
        (
            {"max_steps": 1200, "max_epochs": 3, "max_minutes": 2},
            {"step": 1199, "epoch": 2, "elapsed_seconds": 119.0},
            {"step": 1199, "epoch": 3, "elapsed_seconds": 119.0},
            "max_epochs 3 reached",
        ),
    ],
)
def test_a_training_ends_at_the_first_of_its_limits(limit: dict, before: dict, there: dict, reason: str) -> None:
    config = toy_config(Path("nowhere"), training={**LIMITS, **limit})
    assert TrainingState(**{"step": 1, **before}).reason_to_stop(config) is None
    assert TrainingState(**{"step": 1, **there}).reason_to_stop(config) == reason


def test_a_training_ends_when_its_patience_does() -> None:
    config = toy_config(Path("nowhere"), validation={"patience": 3, "metric": "bleu"})
    assert TrainingState(step=1, num_bad_validations=2).reason_to_stop(config) is None
    reason = TrainingState(step=1, num_bad_validations=3).reason_to_stop(config)
    assert reason == "bleu has not improved in 3 validations"
