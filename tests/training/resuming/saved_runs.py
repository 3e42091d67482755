"""Short trainings with dropout, and what they leave in a run folder."""

import json
from pathlib import Path

from toy import toy_config
from trainings import CLOCK

from transformer_mt.config.schema import RunConfig
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.run import Outcome, start_or_resume

TRAINING = {"max_steps": 12, "checkpoint_every_steps": 3, "keep_checkpoints": 3}


def config_of(data: Path, **training: object) -> RunConfig:
    return toy_config(data, training={**TRAINING, **training}, model={"dropout": 0.2})


def train(data: Path, run: RunFolder, resume: bool = False, change_lr: bool = False, **training: object) -> Outcome:
    return start_or_resume(config_of(data, **training), run, resume, change_lr)


def weights(run: RunFolder, step: int = 12) -> bytes:
    return (run.step(step) / "model.safetensors").read_bytes()


def metrics(run: RunFolder) -> list[dict]:
    lines = [json.loads(line) for line in run.metrics.read_text().split("\n")[:-1]]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]
