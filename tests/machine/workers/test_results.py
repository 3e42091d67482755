"""Work on several cores: the same results in the same order, and every failure is the caller's."""

import functools
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from marks import on_linux
from tasks import CPU, Way, both, fail, in_parallel, in_processes, in_threads, logged, slow
from waiting import wait_until

from transformer_mt.errors import UserError
from transformer_mt.machine import workers as module
from transformer_mt.machine.workers import Workers


@both
@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_results_come_in_order_each_of_one_thread(way: Way, num_workers: int, tmp_path: Path) -> None:
    found = list(way([slow(i, tmp_path / "log") for i in range(20)], num_workers))
    assert [i for i, _ in found] == list(range(20))
    assert {threads for _, threads in found} == {2 if (way, num_workers) == (in_threads, 1) else 1}
    assert sorted(logged(tmp_path / "log")) == list(range(20))


@both
def test_arguments_are_asked_for_as_they_are_needed(way: Way) -> None:
    asked: list[int] = []

    def numbers() -> Iterator[Callable[[], int]]:
        for number in itertools.count():
            asked.append(number)
            yield functools.partial(int, number)

    results = way(numbers(), 2)
    for number in range(30):
        assert next(results) == number
        assert len(asked) <= number + 3 + 2 * module.MAX_AHEAD
    results.close()


@on_linux
def test_nobody_runs_far_ahead_of_a_slow_one(tmp_path: Path) -> None:
    """What waits to be fetched takes memory."""

    def work(number: int) -> int:
        if number == 0:
            wait_until(lambda: len(list(tmp_path.iterdir())) == 2 * module.MAX_AHEAD - 1)
            time.sleep(0.1)  # in which the other one could begin what it must not
            assert len(list(tmp_path.iterdir())) == 2 * module.MAX_AHEAD - 1
        else:
            Path(tmp_path, str(number)).touch()
        return number

    assert list(Workers("the work", "Do less.").map(work, iter(range(30)), CPU)) == list(range(30))


@both
def test_a_failure_among_the_arguments_is_the_caller_s(way: Way) -> None:
    def numbers() -> Iterator[Callable[[], int]]:
        for number in range(5):
            yield functools.partial(int, number)
        raise UserError("No sixth. Write one.")

    results = way(numbers(), 2)
    found = []
    with pytest.raises(UserError, match="No sixth"):
        found.extend(results)
    assert found == list(range(len(found)))


@both
def test_what_is_computed_is_the_same(way: Way) -> None:
    torch.manual_seed(0)
    weight = torch.randn(300, 300)
    inputs = [torch.randn(50, 300) for _ in range(6)]
    tasks = [lambda x=x: (x @ weight).softmax(dim=1).tolist() for x in inputs]
    torch.set_num_threads(1)
    expected = [task() for task in tasks]
    torch.set_num_threads(2)
    assert list(way(tasks, 2)) == expected


def test_one_task_has_all_threads(tmp_path: Path) -> None:
    assert list(in_parallel([slow(0, tmp_path / "log")], CPU)) == [(0, 2)]


def test_another_device_has_one_task_at_a_time(tmp_path: Path) -> None:
    found = list(in_parallel([slow(i, tmp_path / "log") for i in range(3)], torch.device("cuda")))
    assert found == [(0, 2), (1, 2), (2, 2)]
    assert logged(tmp_path / "log") == [0, 1, 2]


@both
@pytest.mark.parametrize("error", [ValueError("no"), UserError("No. Say yes.")])
def test_a_failure_is_the_caller_s_and_ends_the_others(way: Way, error: Exception, tmp_path: Path) -> None:
    log = tmp_path / "log"
    results = way([slow(0, log), fail(error), *(slow(i, log) for i in range(2, 50))], 2)
    assert next(results)[0] == 0
    with pytest.raises(type(error), match=str(error)):
        next(results)
    assert len(logged(log)) < 20


@both
def test_a_caller_who_leaves_ends_the_others(way: Way, tmp_path: Path) -> None:
    log = tmp_path / "log"
    results = way([slow(i, log) for i in range(50)], 2)
    next(results)
    results.close()
    assert len(logged(log)) < 20


@on_linux
def test_where_a_failure_was_is_told() -> None:
    def at_this_place() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError) as raised:
        list(in_processes([at_this_place] * 3, 2))
    assert "at_this_place" in "".join(raised.value.__notes__)


@on_linux
def test_a_result_that_cannot_be_sent_is_a_failure() -> None:
    with pytest.raises(Exception, match="pickle"):
        list(in_processes([lambda: threading.Lock()] * 2, 2))


@on_linux
@pytest.mark.parametrize("status", ["-9", "3"])
def test_a_process_that_is_gone_is_said(status: str) -> None:
    def leave() -> None:
        if status == "-9":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(int(status))

    killed = ", killed perhaps for want of memory" if status == "-9" else ""
    with pytest.raises(UserError, match=f"ended with exit status {status}{killed}. Do less.$"):
        list(in_processes([lambda: 1, leave, lambda: 2, lambda: 3], 2))


class TwoPartError(Exception):
    """One that cannot be unpickled, as many of libraries."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


@on_linux
@pytest.mark.parametrize(
    ("error", "comes_as"),
    [(TwoPartError("a", "b"), RuntimeError), (ConnectionError("no"), ConnectionError), (OSError(5, "x"), OSError)],
)
def test_any_error_of_a_task_arrives(error: Exception, comes_as: type[Exception]) -> None:
    with pytest.raises(comes_as, match="TwoPartError" if comes_as is RuntimeError else "no|x"):
        list(in_processes([fail(error)] * 3, 2))
