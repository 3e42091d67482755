"""An error that every process runs into is told by one of them, and one that is a process' own is not lost."""

import time

import pytest

from transformer_mt.errors import ToldElsewhereError, UserError
from transformer_mt.machine import launch

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited, at once."""
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def be(monkeypatch: pytest.MonkeyPatch, rank: int, size: int, **others: str) -> None:
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), **others}.items():
        monkeypatch.setenv(name, value)


def test_the_first_one_tells_at_once(monkeypatch: pytest.MonkeyPatch, waited: list[float]) -> None:
    error = UserError("No.")
    be(monkeypatch, 0, 1)
    assert launch.told_once(error) is error
    be(monkeypatch, 0, 2, **TORCHRUN)
    assert launch.told_once(error) is error
    assert waited == []


def test_another_one_lets_the_first_end_it_and_else_tells(monkeypatch: pytest.MonkeyPatch, waited: list[float]) -> None:
    """torchrun ends the others with the first that ends: it must not be a silent one."""
    error = UserError("No.")
    be(monkeypatch, 1, 2, **TORCHRUN)
    assert launch.told_once(error) is error
    assert waited == [launch.PATIENCE]


def test_where_nobody_ends_the_others_they_end_in_silence(monkeypatch: pytest.MonkeyPatch, waited: list[float]) -> None:
    be(monkeypatch, 1, 2, MASTER_ADDR="localhost", MASTER_PORT="1")
    assert isinstance(launch.told_once(UserError("No.")), ToldElsewhereError)
    assert waited == []


def test_a_rank_beyond_the_number_of_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    be(monkeypatch, 2, 2, MASTER_ADDR="localhost", MASTER_PORT="1")
    with pytest.raises(UserError, match="RANK is 2 of a WORLD_SIZE of 2"):
        launch.num_processes()
