"""When a training is over, by hand."""

from pathlib import Path

import pytest
from toy import toy_config

from transformer_mt.errors import UserError
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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"step": 3, "phase": 1, "lane": 2}', r"Another version .*: it holds lane and phase, .* Go on with that"),
        ('{"step": 3', r"is missing or damaged .* Delete .*step_3 to go on from the checkpoint before it"),
        ("[]", r"is missing or damaged .* Delete .*step_3"),
    ],
)
def test_a_state_of_another_version_is_no_damaged_one(text: str, told: str, tmp_path: Path) -> None:
    """Its checkpoint is good, and nobody is advised to delete it."""
    path = tmp_path / "step_3" / "state.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UserError, match=told) as refused:
        TrainingState.read(path)
    assert ("Delete" in str(refused.value)) == ("damaged" in str(refused.value))
