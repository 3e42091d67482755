"""Every test begins with two threads and leaves two threads, no process and no thread of its own."""

import multiprocessing
import threading
from collections.abc import Iterator

import pytest
import torch
from tasks import Ended, ended_programs
from threads import torch_threads


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    with torch_threads(2):
        yield
        assert torch.get_num_threads() == 2, "given back"
        assert not multiprocessing.active_children()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("workers")]


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """Lets a program run to its end: what it said."""
    with ended_programs(tmp_path_factory.mktemp("programs")) as ended:
        yield ended
