"""Processes that stay: for as long as somebody keeps them, and never asked again where they may be at work."""

import contextlib
import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import time

import pytest
import torch
from marks import on_linux, slow
from tasks import CPU, Ended, is_alive, pid_of, pids, started
from waiting import wait_until

from transformer_mt.machine import workers as module
from transformer_mt.machine.workers import Workers


@on_linux
def test_processes_end_with_their_call_or_with_whoever_keeps_them() -> None:
    workers = Workers("the work", "Do less.")
    before = pids(workers)
    assert os.getpid() not in before
    assert not multiprocessing.active_children()
    with workers.keep():
        first = pids(workers)
        assert not first & before
        with workers.keep():
            assert pids(workers) <= first
        assert len(multiprocessing.active_children()) == 2
    assert not multiprocessing.active_children()
    with contextlib.suppress(ValueError), workers.keep():
        assert not pids(workers) & first
        raise ValueError("of the caller")
    assert not multiprocessing.active_children()


@on_linux
def test_none_outlives_the_object_that_they_work_for() -> None:
    workers = Workers("the work", "Do less.")
    keeping = workers.keep()
    keeping.__enter__()
    pids(workers)
    assert len(multiprocessing.active_children()) == 2
    del workers, keeping
    assert not multiprocessing.active_children()


@on_linux
def test_who_is_at_work_when_nobody_keeps_any_more_goes_on_to_the_end() -> None:
    workers = Workers("the work", "Do less.")
    with workers.keep():
        results = workers.map(pid_of, range(20), CPU)
        next(results)
    assert len(list(results)) == 19
    assert not multiprocessing.active_children()


@on_linux
def test_as_many_are_begun_as_have_work() -> None:
    workers = Workers("the work", "Do less.")
    torch.set_num_threads(4)
    with workers.keep():
        assert len(pids(workers, number=2)) <= 2
        assert len(multiprocessing.active_children()) == 2
        pids(workers, number=3)
        assert len(multiprocessing.active_children()) == 3
        torch.set_num_threads(2)
        assert len(pids(workers)) <= 2
        assert pids(workers, number=1) == {os.getpid()}, "one alone is not sent to another"


@on_linux
def test_one_that_died_at_rest_is_replaced() -> None:
    workers = Workers("the work", "Do less.")
    with workers.keep():
        pids(workers)
        killed = multiprocessing.active_children()[0]
        killed.kill()
        killed.join()
        found = pids(workers, number=20)
        assert killed.pid not in found
        assert len(multiprocessing.active_children()) == 2


@on_linux
def test_after_a_failure_and_after_a_caller_who_left_it_goes_on() -> None:
    workers = Workers("the work", "Do less.")

    def fail_at(place: int) -> int:
        if place == 3:
            raise ValueError("no")
        return place

    with workers.keep():
        with pytest.raises(ValueError, match="no"):
            list(workers.map(fail_at, range(6), CPU))
        assert not multiprocessing.active_children()
        results = workers.map(pid_of, range(50), CPU)
        next(results)
        results.close()
        assert not multiprocessing.active_children()
        assert list(workers.map(lambda place: place, range(6), CPU)) == list(range(6))


@on_linux
def test_who_may_still_be_at_work_is_never_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C comes before the processes of a call that was broken off have been ended."""
    workers = Workers("the work", "Do less.")

    def interrupted(_workers: object) -> None:
        raise KeyboardInterrupt

    with workers.keep():
        results = workers.map(lambda place: time.sleep(0.05) or -place, range(1, 50), CPU)
        next(results)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_end", interrupted)
            with pytest.raises(KeyboardInterrupt):
                results.close()
        assert list(workers.map(lambda place: place, range(6), CPU)) == list(range(6))


@on_linux
def test_a_call_within_a_call_has_processes_of_its_own() -> None:
    workers = Workers("the work", "Do less.")
    with workers.keep():
        outer = workers.map(pid_of, range(6), CPU)
        of_outer = {next(outer)}
        of_inner = pids(workers)
        of_outer |= set(outer)
        assert not of_outer & of_inner
        assert pids(workers) <= of_outer, "which are the ones that stay"
        assert len(multiprocessing.active_children()) == 2


def test_a_copy_has_nobody_at_work() -> None:
    workers = Workers("the work", "Do less.")
    with workers.keep():
        pids(workers)
        for copied in (pickle.loads(pickle.dumps(workers)), copy.deepcopy(workers)):
            assert not copied._workers
            assert not copied._num_keeping


@on_linux
def test_a_copy_of_the_first_process_leaves_those_at_rest_alone(ended: Ended) -> None:
    code = """
        workers = Workers("the work", "Do less.")
        find = lambda: set(workers.map(lambda place: os.getpid(), range(6), torch.device("cpu")))
        torch.set_num_threads(2)
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a copy of a process with threads
        with workers.keep():
            first = find()
            if os.fork() == 0:
                of_copy = find()
                os._exit(len(of_copy & first))
            _, status = os.wait()
            print(status, find() <= first)
    """
    out, said = ended(code)
    assert (out, said) == ("0 True\n", "")


# Two processes are at rest when it ends.
AT_REST = """
    workers = Workers("the work", "Do less.")
    torch.set_num_threads(2)
    keeping = workers.keep()
    keeping.__enter__()
    print(*set(workers.map(lambda place: time.sleep(0.05) or os.getpid(), range(6), torch.device("cpu"))))
    sys.stdout.flush()
    sys.argv[1:] and time.sleep(60)
"""


@on_linux
@pytest.mark.parametrize("ending", [signal.SIGKILL, slow(signal.SIGTERM)])
def test_none_at_rest_outlives_the_first_where_a_signal_ends_it(ending: signal.Signals) -> None:
    program = started(AT_REST, "stay", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None
    numbers = program.stdout.readline().split()
    assert len(numbers) == 2
    program.send_signal(ending)
    _, said = program.communicate()
    assert said == ""
    wait_until(lambda: not any(map(is_alive, numbers)))


@on_linux
def test_none_at_rest_outlives_the_first(ended: Ended) -> None:
    out, said = ended(AT_REST)
    assert (len(out.split()), said) == (2, "")
    wait_until(lambda: not any(map(is_alive, out.split())))
