"""Several batches at once on the cores of a CPU.

A step of a search is a hundred small operations, each too short to be shared out among cores without losing most of the
gain in waiting. So each core has a batch of its own, in a process where that is safe, otherwise in a thread.
"""

import atexit
import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch
from tqdm import TMonitor

from transformer_mt.errors import UserError

# Python itself runs one thread at a time: a tenth to a fifth of a search, and more waiting for it the more there are.
MAX_THREADS = 4
READER = "tmt_lines"  # the name of a thread that waits for input and computes nothing
Result = TypeVar("Result")


def in_parallel(tasks: Sequence[Callable[[], Result]], device: torch.device) -> Generator[Result]:
    """The results of tasks that compute on this device, in their order.

    On a CPU as many are at work as torch has threads. What a task changes outside its result may be lost, and a result
    must be one that can be pickled. Raises what a task raises; closing the iterator ends those at work.
    """
    num_workers = min(torch.get_num_threads(), len(tasks)) if device.type == "cpu" else 1
    if num_workers <= 1:
        return (task() for task in tasks)
    return in_processes(tasks, num_workers) if may_fork() else in_threads(tasks, min(MAX_THREADS, num_workers))


def may_fork() -> bool:
    """Whether processes that begin as copies of this one are safe: on Linux, while no other thread of Python computes.

    A lock that another thread holds in that moment is never given back in the copy. A daemonic process, such as one of
    a pool, may have none of its own.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    waiting = all(thread.name == READER or isinstance(thread, TMonitor) for thread in others)
    is_first = threading.current_thread() is threading.main_thread() and not multiprocessing.current_process().daemon
    return sys.platform == "linux" and is_first and waiting


def in_processes(tasks: Sequence[Callable[[], Result]], num_workers: int) -> Generator[Result]:
    """`in_parallel` in processes of one thread each, which share this one's memory as long as nobody writes to it."""
    workers: dict[Connection, Any] = {}
    at_work: dict[Connection, int] = {}
    done: dict[int, tuple[Any, Exception | None]] = {}
    end_all = partial(_end, workers, os.getpid())
    atexit.register(end_all)  # a generator that nobody closed is closed too late
    try:
        for place in range(num_workers):
            at_work[_begin(tasks, workers, place)] = place
        num_begun = num_workers
        for i in range(len(tasks)):
            while i not in done:
                for end in wait(list(at_work)):
                    assert isinstance(end, Connection)
                    done[at_work.pop(end)] = _received(end, workers[end])
                    if num_begun < len(tasks):
                        with contextlib.suppress(ConnectionError):  # asking for the result will tell why
                            end.send(num_begun)
                        at_work[end] = num_begun
                        num_begun += 1
            result, error = done.pop(i)
            if error is not None:
                raise error
            yield result
    finally:
        atexit.unregister(end_all)
        end_all()


def _begin(tasks: Sequence[Callable[[], object]], workers: dict[Connection, Any], first: int) -> Connection:
    """One more process, at work on the task of this number."""
    context = multiprocessing.get_context("fork")
    try:
        ours, theirs = context.Pipe()
        worker = context.Process(target=_work, args=(tasks, theirs, [*workers, ours]), daemon=True)
        with _ctrl_c_waits(), warnings.catch_warnings():
            # Python 3.12 warns of the threads of libraries, which wait for work that a copy does not give them.
            warnings.simplefilter("ignore", DeprecationWarning)
            worker.start()
            workers[ours] = worker
    except OSError as error:
        raise UserError(
            f"No process can be begun for the search: {error.strerror or error}. Take fewer, with OMP_NUM_THREADS=1."
        ) from error
    theirs.close()
    ours.send(first)
    return ours


def _end(workers: dict[Connection, Any], first: int) -> None:
    """No process is left, or in a copy of the first process no connection to them. A second call does nothing."""
    if not workers:
        return
    if os.getpid() == first:
        for worker in workers.values():
            worker.kill()  # it holds nothing that anybody else needs
        for worker in workers.values():
            worker.join()
    for end in workers:
        end.close()
    workers.clear()


@contextlib.contextmanager
def _ctrl_c_waits() -> Generator[None]:
    """Meanwhile: a process that begins has not yet said that it does not listen to it, and is not yet on the list."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        if came:
            signal.raise_signal(signal.SIGINT)


def _work(tasks: Sequence[Callable[[], object]], end: Connection, other_ends: list[Connection]) -> None:
    """What a process does: tasks, by the number that comes, until nobody is there to send one."""
    for other in other_ends:
        other.close()  # else this process would keep open what tells its neighbours that the first one is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all, and the first process ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            end.send_bytes(_outcome(tasks[end.recv()]))


def _outcome(task: Callable[[], object]) -> bytes:
    """A result, or the error in its place, pickled."""
    try:
        return pickle.dumps((task(), None))
    except Exception as error:
        trace = traceback.format_exc()  # what a traceback loses on its way
        error.add_note(trace)
        try:
            pickled = pickle.dumps((None, error))
            pickle.loads(pickled)
        except Exception:
            return pickle.dumps((None, RuntimeError(trace)))
        return pickled


def _received(end: Connection, worker: Any) -> tuple[Any, Exception | None]:
    """What a process sent of its task."""
    try:
        return end.recv()
    except (EOFError, ConnectionError):
        worker.join()
    killed = ", killed perhaps for want of memory" if worker.exitcode == -signal.SIGKILL else ""
    raise UserError(
        f"A process of the search ended with exit status {worker.exitcode}{killed}. "
        "Take a smaller --batch-size, or fewer processes with OMP_NUM_THREADS=1."
    )


def in_threads(tasks: Sequence[Callable[[], Result]], num_workers: int) -> Generator[Result]:
    """`in_parallel` in threads that share out torch's; few results wait to be fetched."""
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(num_workers, "search", torch.set_num_threads, (max(1, threads // num_workers),))
    try:
        running: deque[Future[Result]] = deque()
        for task in tasks:
            running.append(pool.submit(task))
            if len(running) > 2 * num_workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # the setting is not the workers' alone
