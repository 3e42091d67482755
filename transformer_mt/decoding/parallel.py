"""Several batches at once on the cores of a CPU.

A step of a search is a hundred small operations, each too short to be shared out among cores without losing most of the
gain in waiting. So each core has a batch of its own, in a process where that is safe, otherwise in a thread.
"""

import contextlib
import multiprocessing
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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

    A lock that another thread holds in that moment is never given back in the copy.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    waiting = all(thread.name == READER or isinstance(thread, TMonitor) for thread in others)
    return sys.platform == "linux" and threading.current_thread() is threading.main_thread() and waiting


def in_processes(tasks: Sequence[Callable[[], Result]], num_workers: int) -> Generator[Result]:
    """`in_parallel` in processes of one thread each, which share this one's memory as long as nobody writes to it."""
    context = multiprocessing.get_context("fork")
    workers: dict[Connection, Any] = {}
    at_work: dict[Connection, int] = {}
    done: dict[int, tuple[Any, Exception | None]] = {}
    try:
        for place in range(num_workers):
            ours, theirs = context.Pipe()
            workers[ours] = context.Process(target=_work, args=(tasks, theirs, [*workers, ours]), daemon=True)
            with _signals_wait(), warnings.catch_warnings():
                # Python 3.12 warns of the threads of libraries, which wait for work that a copy does not give them.
                warnings.simplefilter("ignore", DeprecationWarning)
                workers[ours].start()
            theirs.close()
            ours.send(place)
            at_work[ours] = place
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
        for end, worker in workers.items():
            if worker.pid is not None:
                worker.kill()  # it holds nothing that anybody else needs
                worker.join()
            end.close()


@contextlib.contextmanager
def _signals_wait() -> Generator[None]:
    """Ctrl-C waits meanwhile: a process that begins has not yet said that it does not listen to it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(tasks: Sequence[Callable[[], object]], end: Connection, other_ends: list[Connection]) -> None:
    """What a process does: tasks, by the number that comes, until nobody is there to send one."""
    for other in other_ends:
        other.close()  # else this process would keep open what tells its neighbours that the first one is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all, and the first process ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            task = tasks[end.recv()]
            try:
                end.send((task(), None))
            except ConnectionError:
                raise
            except Exception as error:
                error.add_note(traceback.format_exc())  # what a traceback loses on its way
                end.send((None, error))


def _received(end: Connection, worker: Any) -> tuple[Any, Exception | None]:
    """A result, or the error in its place."""
    try:
        return end.recv()
    except (EOFError, ConnectionError):
        worker.join()
    raise UserError(
        f"A process of the search ended with exit status {worker.exitcode}, perhaps killed for want of memory. "
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
