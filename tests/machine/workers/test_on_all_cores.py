"""What is computed on all cores where there may be processes, and by the first one alone where there may not."""

import errno
import functools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tasks import CPU, in_parallel, on_linux

from transformer_mt.errors import UserError
from transformer_mt.machine import workers as module
from transformer_mt.machine.workers import Workers


@on_linux
def test_one_process_of_a_training_has_the_cores_of_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has one by `torchrun`, and a thread that watches the others."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    torch.set_num_threads(1)
    done = threading.Event()
    watch = threading.Thread(target=done.wait, name=module.WATCH)
    watch.start()
    try:
        found = set(module.on_all_cores(lambda _: (time.sleep(0.1), os.getpid())[1], range(9), "the work"))
    finally:
        done.set()
        watch.join()
        torch.set_num_threads(2)
    assert len(found) == 3
    assert os.getpid() not in found


@on_linux
@pytest.mark.parametrize("before", ["true", None])
def test_the_tokenizers_library_has_one_core_in_a_process(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads are not in a copy, which waited for them for good where the variable was true."""
    name = "TOKENIZERS_PARALLELISM"
    monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv(name, before)
    found = list(Workers("the work", "Do less.").map(lambda _: os.environ.get(name), range(4), CPU))
    assert found == ["false"] * 4
    assert os.environ.get(name) == before


def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.get_context("fork").Process, "start", begin)


@on_linux
def test_where_no_process_can_be_begun_the_first_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    no_process(monkeypatch)
    assert list(module.on_all_cores(lambda i: (i, os.getpid()), iter(range(9)), "the work")) == [
        (i, os.getpid()) for i in range(9)
    ]
    (said,) = caplog.messages
    assert said == "No process could be started for the work: Resource temporarily unavailable; this one goes on alone."
    with pytest.raises(UserError, match=r"Take fewer, with OMP_NUM_THREADS=1.$"):
        list(in_parallel([functools.partial(int, 1)] * 3, CPU))


@on_linux
@pytest.mark.parametrize(("processes", "way_out"), [("1", "with OMP_NUM_THREADS=1"), ("2", "a start without torchrun")])
def test_what_to_do_where_one_is_killed_can_be_done(
    processes: str, way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torchrun` has set the variable."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    with pytest.raises(UserError, match=rf"killed perhaps for want of memory. Free some memory, or .*{way_out}.$"):
        list(module.on_all_cores(lambda _: os.kill(os.getpid(), signal.SIGKILL), range(4), "the work"))


@on_linux
def test_a_thread_that_the_arguments_begin_forbids_processes_and_brings_no_others() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)

    def numbers() -> Iterator[int]:
        thread.start()
        yield from range(4)

    try:
        found = list(module.on_all_cores(lambda _: threading.current_thread().name, numbers(), "the work"))
    finally:
        done.set()
        thread.join()
    assert found == [threading.current_thread().name] * 4


@on_linux
def test_what_holds_the_lock_of_python_has_processes_or_nothing() -> None:
    def work(_: int) -> tuple[int, str]:
        return os.getpid(), threading.current_thread().name

    found = list(module.on_all_cores(work, range(4), "the work"))
    assert os.getpid() not in [process for process, _ in found]
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: list(module.on_all_cores(work, range(4), "the work"))).result()
    assert {process for process, _ in found} == {os.getpid()}
    assert len(set(found)) == 1
