"""The config of trainings that are stopped and go on."""

from pathlib import Path

import yaml
from toy import toy_mapping

# Dropout, accumulation, checkpoints that do not fall on lines of metrics or validations, and epochs that end between.
SECTIONS = {
    "model": {"dropout": 0.2},
    "training": {"grad_accum": 2, "max_steps": 40, "checkpoint_every_steps": 5, "max_tokens": 48, "log_every_steps": 3},
}


def write_config(folder: Path, name: str, **more: dict) -> None:
    sections = {key: {**SECTIONS.get(key, {}), **more.get(key, {})} for key in SECTIONS.keys() | more.keys()}
    (folder / name).write_text(yaml.safe_dump(toy_mapping(folder / "data", **sections)))
