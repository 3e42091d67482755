"""Processes that another launcher than `torchrun` started: the first one keeps the store by which they meet."""

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch

from transformer_mt.errors import UserError
from transformer_mt.machine import processes
from transformer_mt.machine.processes import joined

CPU = torch.device("cpu")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket that listens at the port of the environment, in which this process is the only one."""
    with socket.create_server(("localhost", 0)) as server:
        where = {"MASTER_ADDR": "localhost", "MASTER_PORT": server.getsockname()[1]}
        for name, value in {**where, "WORLD_SIZE": 1, "RANK": 0, "LOCAL_RANK": 0}.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(processes, "STORE_TIMEOUT", timedelta(seconds=5))
        yield server


def test_the_first_process_keeps_the_store_as_long_as_all_are_joined(taken: socket.socket) -> None:
    """It was dropped once they had met, so that all waited for it in vain."""
    taken.close()
    with joined(CPU, timeout_minutes=1) as world:
        world.store.set("key", "value")
        assert world.store.get("key") == b"value"


@pytest.mark.parametrize(("port", "why"), [(None, "address already in use"), ("99999", "65535"), ("abc", "abc")])
def test_a_port_that_cannot_be_had_is_told(
    taken: socket.socket, monkeypatch: pytest.MonkeyPatch, port: str | None, why: str
) -> None:
    if port is not None:
        monkeypatch.setenv("MASTER_PORT", port)
    told = pytest.raises(UserError, match=f"Process 0 of 1 could not meet the others at localhost, port .*{why}")
    with told, joined(CPU, timeout_minutes=1):
        pass
