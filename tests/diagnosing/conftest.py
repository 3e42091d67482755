"""Trainings that provoke diagnoses, and a healthy one; each is made once, when a test asks for it."""

from functools import cache

import pytest
from provoking import PROVOKED, Run, prepare, trained

from transformer_mt.storage.run_folder import RunFolder


@pytest.fixture(scope="session")
def provoked(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`provoked(NAME)`: the run of a training of `PROVOKED`."""
    folder = tmp_path_factory.mktemp("provoked")

    @cache
    def train(name: str) -> RunFolder:
        prepared = prepare(folder / f"data_{name}", PROVOKED[name])
        return trained(prepared, folder / name)

    return train
