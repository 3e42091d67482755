"""Batches on several threads: the same results in the same order, and nothing left behind."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from transformer_mt.decoding.parallel import in_parallel

CPU = torch.device("cpu")


@pytest.fixture
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def searches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("search")]


def slow(i: int, log: list[int]) -> Callable[[], tuple[int, int]]:
    def task() -> tuple[int, int]:
        time.sleep(0.02 * (i % 2))
        log.append(i)
        return i, torch.get_num_threads()

    return task


@pytest.mark.usefixtures("_two_threads")
def test_results_come_in_order_and_the_threads_are_given_back() -> None:
    log: list[int] = []
    assert list(in_parallel((slow(i, log) for i in range(20)), 20, CPU)) == [(i, 1) for i in range(20)]
    assert sorted(log) == list(range(20))
    assert torch.get_num_threads() == 2
    assert not searches()


@pytest.mark.usefixtures("_two_threads")
def test_one_task_has_all_threads() -> None:
    assert list(in_parallel([slow(0, [])], 1, CPU)) == [(0, 2)]


@pytest.mark.usefixtures("_two_threads")
def test_a_failure_is_the_caller_s_and_ends_the_others() -> None:
    log: list[int] = []

    def fail() -> tuple[int, int]:
        raise ValueError("no")

    results = in_parallel([slow(0, log), fail, *(slow(i, log) for i in range(2, 50))], 50, CPU)
    assert next(results)[0] == 0
    with pytest.raises(ValueError, match="no"):
        next(results)
    assert len(log) < 20
    assert torch.get_num_threads() == 2
    assert not searches()


@pytest.mark.usefixtures("_two_threads")
def test_a_caller_who_leaves_ends_the_others() -> None:
    log: list[int] = []
    results = in_parallel((slow(i, log) for i in range(50)), 50, CPU)
    next(results)
    results.close()
    assert len(log) < 20
    assert torch.get_num_threads() == 2
    assert not searches()
