"""Work on several arguments at once on the cores of a CPU, in processes where that is safe, otherwise in threads.

This is for work that keeps one core busy, whatever the number of threads: Python's own work, and the steps of a search.
A step has some hundred operations, each too short to be shared out among threads.
"""

import contextlib
import ctypes
import gc
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, islice
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch
from tqdm import TMonitor

from transformer_mt.errors import UserError
from transformer_mt.machine.launch import num_local_processes
from transformer_mt.machine.memory import keep_freed_memory

# Python runs one thread at a time, for a tenth to a fifth of a search. More threads wait longer for their turn.
MAX_THREADS = 4
MAX_PROCESSES = 16  # that hold Python's lock: one process can keep about so many busy, and each takes memory
MAX_AHEAD = 4  # results that wait to be fetched, at most, for each process
# Names of threads that wait for input or for other processes. No copy of this process asks for their locks.
READER, WATCH = "tmt_lines", "tmt_watch"
_PR_SET_PDEATHSIG = 1  # of Linux' prctl: the signal that a process gets when its parent is gone
LOGGER = logging.getLogger(__name__)
Argument = TypeVar("Argument")
Result = TypeVar("Result")
Work = Callable[[Argument], Result]


@cache
def compute_in_copies() -> None:
    """Let copies of this process compute too, such as those of a `multiprocessing.Pool` that somebody makes by fork. A
    copy lacks the threads of torch, and would wait for them for ever.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


class NoProcessError(UserError):
    """Another process could not be started."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. Take fewer, with OMP_NUM_THREADS=1.")
        self.what = what


@dataclass(frozen=True)
class Worker:
    """A process, and the process that began it. A copy of the latter has this object too, and leaves it alone."""

    process: Any
    begun_by: int


class Workers:
    """Works on several arguments at once: in processes that begin as copies of this one, elsewhere in threads.

    The processes of a call end with it, except inside `keep`. None outlives this object. Messages call the work `name`,
    and `way_out` says what to do where a process is killed. Processes that compute with tensors have the same memory
    again for each argument, and so keep what they free.
    """

    def __init__(self, name: str, way_out: str, keep_freed: bool = True) -> None:
        self._name = name
        self._way_out = way_out
        self._keep_freed = keep_freed
        self._workers: dict[Connection, Worker] = {}
        self._num_keeping = 0
        self._busy = False
        self._at_rest = True  # no process is at work on a result that nobody will fetch
        weakref.finalize(self, _end, self._workers)

    def __reduce__(self) -> tuple[type["Workers"], tuple[str, str, bool]]:
        return Workers, (self._name, self._way_out, self._keep_freed)  # a copy has no processes

    @contextlib.contextmanager
    def keep(self) -> Generator[None]:
        """Inside, processes stay for the next call, since a copy's first work is slow. They see everything that `work`
        depends on as it was when they began.
        """
        self._num_keeping += 1
        try:
            yield
        finally:
            self._num_keeping -= 1
            if not self._num_keeping and not self._busy:
                _end(self._workers)

    def map(
        self, work: Work[Argument, Result], arguments: Iterable[Argument], device: torch.device
    ) -> Generator[Result]:
        """The results of `work`, which computes on this device, in the order of the arguments. Arguments are asked for
        as they are needed.

        On a CPU as many processes work as torch has threads. Changes that `work` makes outside its result may be lost.
        Arguments and results must be picklable. Raises what `work` raises; closing the iterator ends the processes.
        """
        all_of_them, num_workers = _counted(arguments, torch.get_num_threads() if device.type == "cpu" else 1)
        if num_workers <= 1:
            return (work(argument) for argument in all_of_them)
        if not may_fork():
            return in_threads(work, all_of_them, min(MAX_THREADS, num_workers))
        return self._in_processes(work, all_of_them, num_workers)

    def _in_processes(
        self, work: Work[Argument, Result], arguments: Iterable[Argument], num_workers: int, or_alone: bool = False
    ) -> Generator[Result]:
        if self._busy:  # a second call while results of the first come has processes of its own
            yield from Workers(self._name, self._way_out, self._keep_freed)._in_processes(work, arguments, num_workers)
            return
        at_work: dict[Connection, int] = {}
        done: dict[int, tuple[Any, Exception | None]] = {}
        self._busy, finished = True, False
        try:
            try:
                self._prepare(work, num_workers)
            except NoProcessError as error:
                if not or_alone:
                    raise
                LOGGER.warning("%s; this one goes on alone.", error.what)
                yield from map(work, arguments)
                return
            idle = deque(list(self._workers)[:num_workers])
            numbered = enumerate(arguments)
            upcoming = next(numbered, None)
            i = 0
            while upcoming or at_work or done:
                while upcoming and idle and upcoming[0] < i + MAX_AHEAD * num_workers:
                    at_work[idle[0]] = upcoming[0]
                    _send(idle.popleft(), upcoming[1])
                    upcoming = next(numbered, None)
                if i not in done:
                    for end in wait(list(at_work)):
                        assert isinstance(end, Connection)
                        done[at_work.pop(end)] = self._received(end)
                        idle.append(end)
                    continue
                result, error = done.pop(i)
                if error is not None:
                    try:
                        raise error
                    finally:
                        # Error and frame hold each other, and would keep this object until the next collection.
                        del error
                finished = not (upcoming or at_work or done)
                i += 1
                yield result
        finally:
            self._busy = False
            if finished and self._num_keeping:
                self._at_rest = True
            else:
                _end(self._workers)

    def _prepare(self, work: Work[Argument, Result], num_workers: int) -> None:
        """Have as many processes as are wanted, all at rest."""
        alive = all(worker.begun_by == os.getpid() and worker.process.is_alive() for worker in self._workers.values())
        if not (self._at_rest and alive):
            _end(self._workers)
        self._at_rest = False
        while len(self._workers) < num_workers:
            self._begin(work)

    def _begin(self, work: Work[Any, object]) -> None:
        """Begin one more process."""
        context = multiprocessing.get_context("fork")
        try:
            ours, theirs = context.Pipe()
            arguments = work, theirs, [*self._workers, ours], os.getpid(), self._keep_freed
            process = context.Process(target=_work, args=arguments, daemon=True)
            with _ctrl_c_waits(), _tokenizers_alone(), warnings.catch_warnings():
                # Python 3.12 warns of the threads of libraries. They wait for work, and a copy gives them none.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
                self._workers[ours] = Worker(process, os.getpid())
        except OSError as error:
            raise NoProcessError(f"No process could be started for {self._name}: {error.strerror or error}") from error
        theirs.close()

    def _received(self, end: Connection) -> tuple[Any, Exception | None]:
        """The result, or the error, that a process sent."""
        process = self._workers[end].process
        try:
            return end.recv()
        except (EOFError, ConnectionError):
            process.join()
        killed = ", killed perhaps for want of memory" if process.exitcode == -signal.SIGKILL else ""
        raise UserError(f"A process of {self._name} ended with exit status {process.exitcode}{killed}. {self._way_out}")


def on_all_cores(work: Work[Argument, Result], arguments: Iterable[Argument], name: str) -> Generator[Result]:
    """`Workers.map` for work that holds Python's lock all the time, for which threads would wait for each other. So it
    is done one by one where processes are not safe, and, with a warning, where none can be begun.

    Where several processes train on a machine, one of them does such work and has the cores of the others too, which
    wait.
    """
    most = torch.get_num_threads() * num_local_processes()
    all_of_them, num_workers = _counted(arguments, min(most, MAX_PROCESSES))
    if num_workers <= 1 or not may_fork():
        return (work(argument) for argument in all_of_them)
    way_out = "Free some memory, or take fewer processes with OMP_NUM_THREADS=1."
    if num_local_processes() > 1:  # torchrun has set OMP_NUM_THREADS already
        way_out = "Free some memory, or prepare the corpus first, by OMP_NUM_THREADS=1 and a start without torchrun."
    return Workers(name, way_out, keep_freed=False)._in_processes(work, all_of_them, num_workers, or_alone=True)


def _counted(arguments: Iterable[Argument], most: int) -> tuple[Iterable[Argument], int]:
    """All arguments, and how many there are, `most` at most. No more than those are asked for yet."""
    rest = iter(arguments)
    first = list(islice(rest, most))
    return chain(first, rest), len(first)


def may_fork() -> bool:
    """Whether processes that begin as copies of this one are safe: on Linux, while no other thread of Python computes.

    A copy never gets a lock back that another thread holds at that moment. A daemonic process, such as one of a pool,
    may not begin processes.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    waiting = all(thread.name in (READER, WATCH) or isinstance(thread, TMonitor) for thread in others)
    is_first = threading.current_thread() is threading.main_thread() and not multiprocessing.current_process().daemon
    return sys.platform == "linux" and is_first and waiting


def _send(end: Connection, argument: object) -> None:
    with contextlib.suppress(ConnectionError):  # asking for the result will tell why
        end.send(argument)


def _end(workers: dict[Connection, Worker]) -> None:
    """End the processes; in a copy of their parent only the connections. A second call does nothing."""
    ours = [worker.process for worker in workers.values() if worker.begun_by == os.getpid()]
    for process in ours:
        process.kill()  # nobody needs anything that it holds
    for process in ours:
        process.join()
    for end in workers:
        end.close()  # a worker has closed it already, and a second time does nothing
    workers.clear()


@contextlib.contextmanager
def _ctrl_c_waits() -> Generator[None]:
    """Put Ctrl-C off: a process that begins does not ignore it yet, and is not on the list yet."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def _tokenizers_alone() -> Generator[None]:
    """In a copy made inside, the `tokenizers` library works on one core. A copy has none of the library's threads and
    would wait for them. Some versions know that and warn, unless this is set; with "true" none does.
    """
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _work(
    work: Work[Any, object], end: Connection, other_ends: list[Connection], parent: int, keep_freed: bool
) -> None:
    """The life of a process: work on the arguments that come, until nobody is left to send one."""
    # A parent that is killed cannot end this process, which would finish its batch for nobody.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent was gone before
        os._exit(1)
    for other in other_ends:
        other.close()  # an open one would hide from the neighbours that the parent is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, and the parent ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    if keep_freed:
        keep_freed_memory()
    gc.freeze()  # what is there stays; a look through all of it takes as long as a batch
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            end.send_bytes(_outcome(work, end.recv()))


def _outcome(work: Work[Argument, object], argument: Argument) -> bytes:
    """The pickled pair of result and error, one of which is None."""
    try:
        return pickle.dumps((work(argument), None))
    except Exception as error:
        trace = traceback.format_exc()  # pickling loses the traceback
        error.add_note(trace)
        try:
            pickled = pickle.dumps((None, error))
            pickle.loads(pickled)
        except Exception:
            return pickle.dumps((None, RuntimeError(trace)))
        return pickled


def in_threads(work: Work[Argument, Result], arguments: Iterable[Argument], num_workers: int) -> Generator[Result]:
    """`Workers.map` in threads, each with its share of torch's threads. Few results wait to be fetched."""
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(num_workers, "workers", torch.set_num_threads, (max(1, threads // num_workers),))
    try:
        running: deque[Future[Result]] = deque()
        for argument in arguments:
            running.append(pool.submit(work, argument))
            if len(running) > 2 * num_workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # the workers' setting reaches this thread too
