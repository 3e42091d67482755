"""A corpus and a config, for trainings that are stopped and go on."""

from pathlib import Path

import pytest
from stopped_runs import write_config
from toy import write_toy_corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A corpus and a config."""
    folder = tmp_path_factory.mktemp("resume")
    write_toy_corpus(folder / "data")
    write_config(folder, "toy.yaml")
    return folder
