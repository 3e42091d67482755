"""Work on several arguments at once on the cores of a CPU, in processes where that is safe, otherwise in threads.

For what one core at a time would do, whatever the number of threads: Python's own work, and a step of a search, whose
hundred small operations are each too short to be shared out without losing most of the gain in waiting.
"""

import contextlib
import ctypes
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
from itertools import chain, islice
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch
from tqdm import TMonitor

from transformer_mt.errors import UserError
from transformer_mt.machine.launch import num_local_processes

# Python itself runs one thread at a time: a tenth to a fifth of a search, and more waiting for it the more there are.
MAX_THREADS = 4
MAX_PROCESSES = 16  # of those that hold Python's lock: one can give work to about so many, and each has its memory
MAX_AHEAD = 4  # results for each process that wait to be fetched, at most
# Names of threads that wait, for input or for other processes, and whose locks no copy of this process asks for.
READER, WATCH = "tmt_lines", "tmt_watch"
_PR_SET_PDEATHSIG = 1  # of Linux' prctl: the signal that a process gets when the one that began it is gone
LOGGER = logging.getLogger(__name__)
Argument = TypeVar("Argument")
Result = TypeVar("Result")
Work = Callable[[Argument], Result]


class NoProcessError(UserError):
    """Another process could not be started."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. Take fewer, with OMP_NUM_THREADS=1.")
        self.what = what


@dataclass(frozen=True)
class Worker:
    """A process, and who began it: a copy of that one, which has the object too, leaves the process alone."""

    process: Any
    begun_by: int


class Workers:
    """What works on several arguments at once: processes that begin as copies of this one, elsewhere threads.

    Processes end with the call that they were begun for, but inside `keep`. None outlives this object. What they do is
    called `name` in messages, and `way_out` says what to do where one of them is killed.
    """

    def __init__(self, name: str, way_out: str) -> None:
        self._name = name
        self._way_out = way_out
        self._workers: dict[Connection, Worker] = {}
        self._num_keeping = 0
        self._busy = False
        self._at_rest = True  # nobody is at work on what was never fetched
        weakref.finalize(self, _end, self._workers)

    def __reduce__(self) -> tuple[type["Workers"], tuple[str, str]]:
        return Workers, (self._name, self._way_out)  # a copy has no processes

    @contextlib.contextmanager
    def keep(self) -> Generator[None]:
        """Meanwhile processes stay for the next call, since a copy's first work is slow. They know what `work` depends
        on as it was when they began.
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
        """The results of `work`, which computes on this device, in the order of the arguments, which are asked for as
        they are needed.

        On a CPU as many are at work as torch has threads. What `work` changes outside its result may be lost; arguments
        and results must be such as can be pickled. Raises what `work` raises; closing the iterator ends those at work.
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
        if self._busy:  # whoever asks for more while results come has processes of his own
            yield from Workers(self._name, self._way_out)._in_processes(work, arguments, num_workers)
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
                        del error  # which holds this frame, which holds it: this object would wait for the collector
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
        """As many processes as are wanted, all at rest."""
        alive = all(worker.begun_by == os.getpid() and worker.process.is_alive() for worker in self._workers.values())
        if not (self._at_rest and alive):
            _end(self._workers)
        self._at_rest = False
        while len(self._workers) < num_workers:
            self._begin(work)

    def _begin(self, work: Work[Any, object]) -> None:
        """One more process."""
        context = multiprocessing.get_context("fork")
        try:
            ours, theirs = context.Pipe()
            arguments = work, theirs, [*self._workers, ours], os.getpid()
            process = context.Process(target=_work, args=arguments, daemon=True)
            with _ctrl_c_waits(), _tokenizers_alone(), warnings.catch_warnings():
                # Python 3.12 warns of the threads of libraries, which wait for work that a copy does not give them.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
                self._workers[ours] = Worker(process, os.getpid())
        except OSError as error:
            raise NoProcessError(f"No process could be started for {self._name}: {error.strerror or error}") from error
        theirs.close()

    def _received(self, end: Connection) -> tuple[Any, Exception | None]:
        """What a process sent of its work."""
        process = self._workers[end].process
        try:
            return end.recv()
        except (EOFError, ConnectionError):
            process.join()
        killed = ", killed perhaps for want of memory" if process.exitcode == -signal.SIGKILL else ""
        raise UserError(f"A process of {self._name} ended with exit status {process.exitcode}{killed}. {self._way_out}")


def on_all_cores(work: Work[Argument, Result], arguments: Iterable[Argument], name: str) -> Generator[Result]:
    """`Workers.map` of what holds Python's lock all the time: one after the other where there may be no processes, for
    threads would wait for each other, and, with a warning, where none can be begun.

    Of several processes of a training on a machine one does such things, and the others wait: it has their cores too.
    """
    most = torch.get_num_threads() * num_local_processes()
    all_of_them, num_workers = _counted(arguments, min(most, MAX_PROCESSES))
    if num_workers <= 1 or not may_fork():
        return (work(argument) for argument in all_of_them)
    way_out = "Free some memory, or take fewer processes with OMP_NUM_THREADS=1."
    if num_local_processes() > 1:  # which torchrun has set already
        way_out = "Free some memory, or prepare the corpus first, by OMP_NUM_THREADS=1 and a start without torchrun."
    return Workers(name, way_out)._in_processes(work, all_of_them, num_workers, or_alone=True)


def _counted(arguments: Iterable[Argument], most: int) -> tuple[Iterable[Argument], int]:
    """All of them, and how many there are, or `most`; no more than those are asked for yet."""
    rest = iter(arguments)
    first = list(islice(rest, most))
    return chain(first, rest), len(first)


def may_fork() -> bool:
    """Whether processes that begin as copies of this one are safe: on Linux, while no other thread of Python computes.

    A lock that another thread holds in that moment is never given back in the copy. A daemonic process, such as one of
    a pool, may have none of its own.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    waiting = all(thread.name in (READER, WATCH) or isinstance(thread, TMonitor) for thread in others)
    is_first = threading.current_thread() is threading.main_thread() and not multiprocessing.current_process().daemon
    return sys.platform == "linux" and is_first and waiting


def _send(end: Connection, argument: object) -> None:
    with contextlib.suppress(ConnectionError):  # asking for the result will tell why
        end.send(argument)


def _end(workers: dict[Connection, Worker]) -> None:
    """No process is left, or in a copy of the one that began them no connection to them. A second call does nothing."""
    ours = [worker.process for worker in workers.values() if worker.begun_by == os.getpid()]
    for process in ours:
        process.kill()  # it holds nothing that anybody else needs
    for process in ours:
        process.join()
    for end in workers:
        end.close()  # a second time, in a worker, it does nothing
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


@contextlib.contextmanager
def _tokenizers_alone() -> Generator[None]:
    """A copy made meanwhile has the `tokenizers` library work on one core. Its threads are not in the copy, which would
    wait for them; unless this is set some versions know, and warn of it, and with it set to true none does.
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


def _work(work: Work[Any, object], end: Connection, other_ends: list[Connection], parent: int) -> None:
    """What a process does: to work on the arguments that come, until nobody is there to send one."""
    # A parent that is killed cannot end this process, which would compute to the end of its batch for nobody.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before
        os._exit(1)
    for other in other_ends:
        other.close()  # else this process would keep open what tells its neighbours that the first one is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all, and the first process ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            end.send_bytes(_outcome(work, end.recv()))


def _outcome(work: Work[Argument, object], argument: Argument) -> bytes:
    """A result, or the error in its place, pickled."""
    try:
        return pickle.dumps((work(argument), None))
    except Exception as error:
        trace = traceback.format_exc()  # what a traceback loses on its way
        error.add_note(trace)
        try:
            pickled = pickle.dumps((None, error))
            pickle.loads(pickled)
        except Exception:
            return pickle.dumps((None, RuntimeError(trace)))
        return pickled


def in_threads(work: Work[Argument, Result], arguments: Iterable[Argument], num_workers: int) -> Generator[Result]:
    """`Workers.map` in threads that share out torch's; few results wait to be fetched."""
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
        torch.set_num_threads(threads)  # the setting is not the workers' alone
