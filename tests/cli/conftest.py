"""One small trained run for all tests of the command line."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import call_tmt, run_tmt
from toy import toy_mapping, write_toy_corpus
from trainings import trained_once

from transformer_mt.machine.workers import Workers

Tmt = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs/toy, trained until it knows the toy language well."""
    return trained_once(tmp_path_factory, "trained", train)


def train(folder: Path) -> None:
    write_toy_corpus(folder / "data", 6000)
    training = {
        "max_tokens": 512, "max_steps": 1200, "schedule": "cosine", "lr": 0.004, "warmup_steps": 100,
        "checkpoint_every_steps": 1200, "log_every_steps": 50,
    }  # fmt: skip
    mapping = toy_mapping(
        Path("data"),
        model={"d_model": 64, "d_ff": 128, "num_heads": 4, "dropout": 0.0, "max_len": 24},
        training=training,
        validation={"every_steps": 1200, "num_translated": 20, "metric": "bleu"},
        data={"test": [{"src": "valid.en", "tgt": "valid.es"}]},
    )
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping))
    result = run_tmt(folder, "train", "--config", "toy.yaml")
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="session")
def tmt(trained: Path) -> Tmt:
    """`tmt(...)` as a process in the folder of the trained run."""

    def run(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
        return run_tmt(trained, *arguments, stdin=stdin)

    return run


@pytest.fixture(scope="session")
def call(trained: Path) -> Tmt:
    """`call(...)` is the same in this process, for what is not about processes or their terminal."""

    def run(*arguments: str, stdin: bytes = b"", threads: int = 1) -> subprocess.CompletedProcess[str]:
        return call_tmt(trained, *arguments, stdin=stdin, threads=threads)

    return run


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Workers]:
    """Grows by one with each process that begins to search: where none may begin, threads would search unseen."""
    if sys.platform != "linux":
        pytest.skip("elsewhere it is threads")
    begin, begun = Workers._begin, []

    def noted(workers: Workers, work: Callable[[Any], object]) -> None:
        begin(workers, work)
        begun.append(workers)

    monkeypatch.setattr(Workers, "_begin", noted)
    return begun
