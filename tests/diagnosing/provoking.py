"""Trainings of a few steps of a very small model, each with something wrong, and one without."""

import signal
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from toy import ENGLISH, SPANISH, toy_config, toy_pairs

from transformer_mt.config.schema import RunConfig
from transformer_mt.decoding.load_model import build_model
from transformer_mt.diagnosing.diagnoses import Diagnoses, Diagnosis
from transformer_mt.diagnosing.history import read_recorded
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import batch_feed as feed
from transformer_mt.training import run as run_module
from transformer_mt.training.monitoring import meter
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.updates import Updater

Pairs = list[tuple[str, str]]
Run = Callable[[str], RunFolder]
GARBAGE = range(101, 107)  # lines of the training that are none, from 1
GARBAGE_SEED, GARBAGE_STEP = 47, 51  # a seed whose first epoch has them late, and the step of the first
GOOD = {"schedule": "cosine", "lr": 0.004, "warmup_steps": 20}
KNOWN = (" ".join(ENGLISH), " ".join(SPANISH))  # a pair of all words
# Its words are in the vocabulary, and it is left out.
TOO_LONG = (" ".join(f"word{i}" for i in range(60)), " ".join(f"palabra{i}" for i in range(60)))
MODEL = {"d_model": 32, "d_ff": 64, "num_heads": 2, "dropout": 0.0, "max_len": 32}


@dataclass(frozen=True)
class Prepared:
    """A config whose files are there, and what else is changed."""

    config: RunConfig
    provoke: Callable[[pytest.MonkeyPatch], object]


@dataclass(frozen=True)
class Provocation:
    """Pairs to train on and to validate with, settings, and what else is changed about the program."""

    train: Pairs
    valid: Pairs
    training: dict = field(default_factory=dict)
    validation: dict = field(default_factory=dict)
    provoke: Callable[[pytest.MonkeyPatch], object] = lambda patch: None
    seed: int = 3


def prepare(folder: Path, what: Provocation) -> Prepared:
    """Write the files, and make the config."""
    folder.mkdir()
    for name, pairs in (("train", what.train), ("valid", what.valid)):
        for language, side in zip(("en", "es"), zip(*pairs, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
    training = {
        "max_tokens": 128, "max_steps": 60, "warmup_steps": 20, "log_every_steps": 2, "checkpoint_every_steps": 1000,
    }  # fmt: skip
    config = toy_config(
        folder,
        model=MODEL,
        training={**training, **what.training},
        validation={"every_steps": 20, "num_translated": 8, **what.validation},
        data={"check": "off", "cache_dir": str(folder / "cache")},
    )
    return Prepared(config.model_copy(update={"seed": what.seed}), what.provoke)


def trained(prepared: Prepared, path: Path) -> RunFolder:
    """Train in the folder `path`. What that prints is for `said`."""
    run = RunFolder(path)
    with pytest.MonkeyPatch.context() as patch, _beside(path).open("w") as output, redirect_stdout(output):
        prepared.provoke(patch)
        assert start_or_resume(prepared.config, run, resume=False).exit_status == 0
    return run


def said(run: RunFolder) -> str:
    """What the training of a run printed."""
    return _beside(run.path).read_text()


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.txt")


def found(run: RunFolder) -> dict[str, Diagnosis]:
    """The diagnoses of a run by name."""
    return Diagnoses.of(read_recorded(run).entries).found


def wrong_targets(make: Callable[[str, str], str]) -> Provocation:
    """Eight sources that are learned by heart with wrong targets, and validated with the right ones."""
    right = toy_pairs(8, seed=2)
    wrong = [(src, make(src, tgt)) for src, tgt in right]
    return Provocation([*wrong, KNOWN], right, {"warmup_steps": 40, "log_every_steps": 5}, {"every_steps": 30})


def one_word_targets() -> Pairs:
    """Twenty pairs with a word of a target each. Eight pairs that are learned by heart teach nothing about them, not
    even by chance, which would raise BLEU.
    """
    return [(src, f"{word}.") for (src, _), word in zip(toy_pairs(20, seed=3), 2 * SPANISH, strict=True)]


def with_garbage() -> Provocation:
    """Among good pairs six long ones, side by side, whose targets have words that are nowhere else."""
    pairs = toy_pairs(520, seed=1)
    garbage = [
        (" ".join(ENGLISH[(i * j) % 10] for j in range(1, 15)), " ".join(f"x{(i + j) % 7}" for j in range(14)))
        for i in range(len(GARBAGE))
    ]
    train = [*pairs[: GARBAGE[0] - 1], *garbage, *pairs[GARBAGE[0] - 1 :]]
    training = {**GOOD, "max_tokens": 64, "checkpoint_every_steps": 5}
    return Provocation(train[:500], pairs[500:], training, seed=GARBAGE_SEED)


def kill_a_head(patch: pytest.MonkeyPatch) -> None:
    """Begin with weights under which a head neither gets nor gives a gradient."""

    def dead(*arguments):
        model = build_model(*arguments)
        attention = model.get_submodule("decoder.layers.0.cross_attn")
        assert isinstance(attention, MultiHeadAttention)
        size = attention.head_dim
        with torch.no_grad():
            attention.v_proj.weight[:size] = 0
            attention.out_proj.weight[:, :size] = 0
        return model

    patch.setattr(run_module, "build_model", dead)


def slow_down(patch: pytest.MonkeyPatch) -> None:
    """A clock by which a batch is waited for as long as a step takes, and steps are slower from the 31st on."""
    clock = SimpleNamespace(now=0.0, steps=0)
    for module in (meter, feed):
        patch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    update, in_turn = Updater.update, feed.Feed._in_turn

    def slow_update(self: Updater, *arguments):
        clock.steps += 1
        clock.now += 1.0 if clock.steps <= 30 else 5.0
        return update(self, *arguments)

    def slow_batch(*arguments):
        clock.now += 1.0
        return in_turn(*arguments)

    patch.setattr(Updater, "update", slow_update)
    patch.setattr(feed.Feed, "_in_turn", slow_batch)


def halt(patch: pytest.MonkeyPatch) -> None:
    """A clock by which a step takes a second, and an hour goes by in the 25th, after which the process goes on."""
    clock = SimpleNamespace(now=0.0, steps=0)
    for module in (meter, feed):
        patch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    update = Updater.update

    def halted_update(self: Updater, *arguments):
        clock.steps += 1
        if clock.steps == 25:
            clock.now += 3600.0
            signal.raise_signal(signal.SIGCONT)
        clock.now += 1.0
        return update(self, *arguments)

    patch.setattr(Updater, "update", halted_update)


HEALTHY = Provocation(
    toy_pairs(620)[:600], toy_pairs(620)[600:], {**GOOD, "max_steps": 120, "max_tokens": 256}, {"every_steps": 30}
)
PROVOKED = {
    "healthy": HEALTHY,
    "rate_too_high": Provocation(HEALTHY.train, HEALTHY.valid, {"factor": 100.0, "max_steps": 160}),
    "rate_too_low": Provocation(HEALTHY.train, HEALTHY.valid, {"factor": 0.0001}),
    "few_pairs": Provocation(
        [*toy_pairs(8, seed=2), KNOWN],
        one_word_targets(),
        {"factor": 0.5, "max_steps": 120},
        {"every_steps": 15},
        seed=6,
    ),
    "copies": wrong_targets(lambda src, tgt: src),
    "empty": wrong_targets(lambda src, tgt: "."),
    "repeating": wrong_targets(lambda src, tgt: " ".join(6 * [tgt.split()[0].strip(".")])),
    "short": wrong_targets(lambda src, tgt: tgt.split()[0].strip(".")),
    "garbage": with_garbage(),
    "dead_head": Provocation(HEALTHY.train, HEALTHY.valid, {"max_steps": 20}, provoke=kill_a_head),
    "halted": Provocation(HEALTHY.train, HEALTHY.valid, {**GOOD, "max_steps": 40}, provoke=halt),
    "slow": Provocation(HEALTHY.train, HEALTHY.valid, {**GOOD, "max_steps": 44}, provoke=slow_down),
    "unused_words": Provocation([*HEALTHY.train[:60], KNOWN, TOO_LONG], HEALTHY.valid, {**GOOD, "max_steps": 30}),
}
