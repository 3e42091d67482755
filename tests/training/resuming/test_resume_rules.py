"""What the learning rate of a run is worked out from does not change in silence when the run goes on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from toy import toy_config

from transformer_mt.config.schedules import SCHEDULES
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.sections.training import TrainingConfig
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.resuming.resume_rules import allowed_changes, changed_translations, record_changes

BEFORE: dict[str, Any] = {"factor": 2.0, "lr": 1e-3, "warmup_steps": 10, "max_steps": 100, "decay_steps": 30}
NOW: dict[str, Any] = {"factor": 3.0, "lr": 2e-3, "warmup_steps": 20, "max_steps": 200, "decay_steps": None}


def config_of(schedule: str, **changes: Any) -> RunConfig:
    needed = {key: BEFORE[key] for key in SCHEDULES[schedule].keys}
    training = TrainingConfig(**{"schedule": schedule, "max_steps": 100, **needed, **changes})
    return toy_config(Path("data")).model_copy(update={"training": training})


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_a_rate_is_worked_out_from_changes_by_a_flag_alone(schedule: str) -> None:
    before = config_of(schedule)
    for key in SCHEDULES[schedule].keys:
        now = config_of(schedule, **{key: NOW[key]})
        told = rf"training.{key}: was {BEFORE[key]!r}, is {NOW[key]!r}\n(.|\n)* --change-lr lets the learning rate"
        with pytest.raises(UserError, match=told):
            allowed_changes(before, now, change_lr=False)
        assert allowed_changes(before, now, change_lr=True) == {f"training.{key}": (BEFORE[key], NOW[key])}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_end_moves_freely_where_the_rate_does_not_depend_on_it(schedule: str) -> None:
    before, now = config_of(schedule), config_of(schedule, max_steps=200)
    if SCHEDULES[schedule].needs_end:
        with pytest.raises(UserError, match=re.escape("training.max_steps: was 100, is 200")):
            allowed_changes(before, now, change_lr=False)
    else:
        assert allowed_changes(before, now, change_lr=False) == {"training.max_steps": (100, 200)}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_another_schedule_needs_the_flag(schedule: str) -> None:
    other = next(name for name in SCHEDULES if name != schedule)
    for before, now in ((config_of(schedule), config_of(other)), (config_of(other), config_of(schedule))):
        with pytest.raises(UserError, match=r"training.schedule: was (.|\n)* --change-lr lets the learning rate"):
            allowed_changes(before, now, change_lr=False)
        assert "training.schedule" in allowed_changes(before, now, change_lr=True)


SOURCE = {"src": "train.en", "tgt": "train.es"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({**SOURCE, "weight": 2.0}, ["data.train.1.weight: was 1.0, is 2.0"]),
        ({"tsv": "b.tsv", "weight": 1.0}, [
            "data.train.1.src: was 'train.en', is None", "data.train.1.tgt: was 'train.es', is None",
            "data.train.1.tsv: was None, is 'b.tsv'",
        ]),
        (None, ["data.train: was [{'src': 'train.en', 'tgt': 'train.es', "]),
    ],
)  # fmt: skip
def test_of_a_source_that_changed_the_key_is_named(changed: dict | None, told: list[str]) -> None:
    """And not the whole list, in which nobody finds it."""
    first, second = ({**SOURCE, "weight": 1.0} for _ in range(2))
    before, now = (
        toy_config(Path("data"), data={"train": [source for source in sources if source]})
        for sources in ([first, second], [first, changed])
    )
    with pytest.raises(UserError) as refused:
        allowed_changes(before, now, change_lr=False)
    lines = [line.strip() for line in str(refused.value).split("\n")[1:-1]]
    assert [line[: len(one)] for line, one in zip(lines, told, strict=True)] == told
    assert "None, " not in lines[0].partition(" is ")[0]


GLOSSARY = {"glossary": "terms.tsv"}
OF_THE_BEAM = {"beam_size": 8, "length_penalty": 1.0, "patience": 2.0, "mbr": "chrf", "mbr_candidates": 8}


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        *[
            ({}, change, list(change))
            for change in (
                {"allow_unk": True}, {"max_length_ratio": 3.0}, {"max_length_extra": 5}, {"min_length": 2},
                {"max_length": 20}, {"no_repeat_ngram_size": 3}, {"avoid": "words.txt"}, GLOSSARY, {"to": "es"},
            )
        ],
        ({}, {"temperature": 0.5, "beam_size": 1, "seed": 2, "precision": "int8", "batch_size": 8}, []),
        ({}, OF_THE_BEAM, []),
        (GLOSSARY, {**GLOSSARY, **OF_THE_BEAM}, ["length_penalty", "patience"]),
        (GLOSSARY, OF_THE_BEAM, ["glossary"]),
    ],
)  # fmt: skip
def test_what_a_validation_translates_otherwise_is_named(before: dict, now: dict, changed: list[str]) -> None:
    """A validation searches greedily, and with a beam where a source has terms of a glossary."""
    config = toy_config(Path("data"))
    was, is_now = (config.model_copy(update={"decoding": DecodingConfig(**of_each)}) for of_each in (before, now))
    assert changed_translations(was, is_now) == [f"decoding.{key}" for key in changed]


def test_a_change_that_a_kill_took_back_is_noted_no_more(tmp_path: Path) -> None:
    """It was killed before its first checkpoint, so that the next start goes on from the same step without it."""
    run = RunFolder(tmp_path)
    record_changes({"validation.metric": ("bleu", "nll")}, run, 10)
    record_changes({"validation.metric": ("nll", "chrf"), "training.max_steps": (20, 30)}, run, 20)
    record_changes({"training.max_steps": (20, 40)}, run, 20)
    first, last = map(json.loads, run.changes.read_text().splitlines())
    assert first == {"step": 10, "changes": {"validation.metric": ["bleu", "nll"]}}
    assert last == {"step": 20, "changes": {"training.max_steps": [20, 40]}}
    record_changes({}, run, 20)
    assert run.changes.read_text() == f"{json.dumps(first)}\n"
