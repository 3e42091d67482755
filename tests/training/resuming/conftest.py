"""The toy corpus as files, a run that nothing happened to, and a copy of it."""

import shutil
from pathlib import Path

import pytest
from saved_runs import train
from toy import write_toy_corpus

from transformer_mt.storage.run_folder import RunFolder


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    return write_toy_corpus(tmp_path_factory.mktemp("saving"))


@pytest.fixture(scope="session")
def straight(data: Path, tmp_path_factory) -> RunFolder:
    """A run that nothing happened to."""
    run = RunFolder(tmp_path_factory.mktemp("runs") / "straight")
    assert train(data, run).exit_status == 0
    return run


@pytest.fixture
def run(straight: RunFolder, tmp_path: Path) -> RunFolder:
    """The same run in a folder of the test's own."""
    shutil.copytree(straight.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")
