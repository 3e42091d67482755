"""Short trainings with dropout, and what they leave in a run folder."""

from pathlib import Path

from toy import toy_config

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
