"""The processes that search for the server: one for each core, each with all models, fed one job at a time."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from transformer_mt.errors import UserError
from transformer_mt.serving.search_process import Job, Outcome, Setup, live

# What a process imports, once for all of them where they are copies of one that has it.
LIBRARIES = ["torch", "numpy", "tokenizers", "pydantic", "regex", "safetensors.torch", "numba"]
MOST_TRIES = 3  # to begin a process anew, one after the other, before nobody waits for it
PAUSE = 1.0  # in seconds, after the first try that failed; each further pause is twice as long
LONGEST_PAUSE = 60.0
END_SECONDS = 2.0
NOBODY_KNOWS = 255  # the exit status of all processes, those that live included, once the one that began them has died


class DiedError(Exception):
    """The process ended before it had done its job."""


class _Place:
    """One of the processes, or its successor."""

    def __init__(self) -> None:
        self.process: Any = None
        self.setup: Setup | None = None  # with which the process was begun
        self.killed: Any = None  # the process that was killed last
        self.told: Any = None  # the process of which it was said that it has died
        self.end: Connection | None = None
        self.doing: asyncio.Future[Any] | None = None
        self.failed_starts = 0

    def leave(self, seconds: float) -> None:
        """Wait so long for the process to end by itself, then kill it."""
        self.process.join(seconds)
        self.kill()
        self.process.join()

    def kill(self) -> None:
        """Kill the process, if it lives, and once: its number may be another's by the next time."""
        if self.process.exitcode in (None, NOBODY_KNOWS) and self.killed is not self.process:
            self.killed = self.process
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)


class Pool:
    """Processes that do jobs. One that dies is begun again, and its job ends with DiedError. Where it cannot be begun,
    it is tried again, in the end once in LONGEST_PAUSE: the memory that it wants may be free by then. Where none is
    left, `renewed` says what the next ones load.
    """

    def __init__(
        self, setup: Setup, num_processes: int, renewed: Callable[[Setup], Setup] = lambda setup: setup
    ) -> None:
        self.setup = setup
        self.renewed = renewed
        self.num_begun_again = 0
        self.on_idle: Callable[[], None] = lambda: None
        # Metal, by which torch asks Apple's GPUs, does not work in a process that began as a copy of another.
        self._context = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "forkserver")
        self._context.set_forkserver_preload(LIBRARIES)
        self._places = [_Place() for _ in range(num_processes)]
        self._idle: deque[_Place] = deque()
        self._ended = False

    def begin(self) -> None:
        """Begin the processes. Each loads the models while others do other things; see `wait_until_ready`."""
        for place in self._places:
            place.setup = self.setup
            self._begin(place)

    def wait_until_ready(self) -> list[str]:
        """Wait until all have loaded the models. The note of each run's translator. Raises what loading raised."""
        notes: list[str] = []
        for place in self._places:
            assert place.end is not None
            try:
                outcome: Outcome = place.end.recv()
            except (EOFError, OSError):
                raise UserError(_ended_early(place)) from None
            if outcome.error is not None:
                raise outcome.error
            notes = outcome.result
            self._idle.append(place)
        return notes

    def attach(self) -> None:
        """From now on the running event loop hears what the processes send."""
        for place in self._places:
            self._listen(place)

    @property
    def num_processes(self) -> int:
        """Those that have loaded the models, busy or idle."""
        return len(self._idle) + sum(place.doing is not None for place in self._places)

    @property
    def num_idle(self) -> int:
        """Those that wait for a job."""
        return len(self._idle)

    @property
    def is_lost(self) -> bool:
        """Whether no process is left, and each was tried to be begun MOST_TRIES times in vain."""
        return all(place.failed_starts >= MOST_TRIES for place in self._places)

    def start(self, job: Job) -> "asyncio.Future[Any]":
        """Give an idle process a job. The future has its result, its error, or DiedError; cancelling it changes
        nothing for the process.
        """
        place = self._idle.popleft()
        assert place.end is not None
        place.doing = asyncio.get_running_loop().create_future()
        doing = place.doing
        with contextlib.suppress(OSError):  # its end is heard of in a moment
            place.end.send(job)
        return doing

    def kill(self, doing: "asyncio.Future[Any]") -> None:
        """Kill the process that does a job, if it still does."""
        for place in self._places:
            if place.doing is doing:
                place.kill()

    def end(self) -> None:
        """End all processes. They have nothing that anybody needs."""
        self._ended = True
        for place in self._places:
            if place.end is not None:
                place.end.close()
            if place.process is not None:
                place.leave(END_SECONDS)

    def _begin(self, place: _Place) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=live, args=(theirs, place.setup), daemon=True)
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        place.end, place.process = ours, process

    def _listen(self, place: _Place) -> None:
        assert place.end is not None
        asyncio.get_running_loop().add_reader(place.end.fileno(), self._hear, place)
        os.set_blocking(place.end.fileno(), True)  # uvloop has changed it, and half a message would be an error

    def _hear(self, place: _Place) -> None:
        """Something came from a process, or it has ended."""
        assert place.end is not None
        try:
            outcome: Outcome = place.end.recv()
        except (EOFError, OSError):
            self._bury(place)
            return
        if outcome.is_last:
            if place.doing is None:  # it could not load what others have loaded
                _tell_failed_start(outcome.error)
            self._bury(place, outcome.error)
            return
        if place.doing is None and place.setup is not self.setup:  # what the others load came while this one began
            place.kill()
            self._bury(place)
            return
        doing, place.doing = place.doing, None
        place.failed_starts = 0
        self._idle.append(place)
        if doing is not None and not doing.done():
            if outcome.error is not None:
                doing.set_exception(outcome.error)
            else:
                doing.set_result(outcome.result)
        self.on_idle()

    def _bury(self, place: _Place, error: Exception | None = None) -> None:
        """A process has ended, of this error if it said so. Begin another in its place."""
        assert place.end is not None
        asyncio.get_running_loop().remove_reader(place.end.fileno())
        place.end.close()
        doing, place.doing = place.doing, None
        if place in self._idle:
            self._idle.remove(place)
        elif doing is None:
            place.failed_starts += 1
        if doing is not None and not doing.done():
            doing.set_exception(error or DiedError())
        self._begin_another(place)

    def _begin_another(self, place: _Place) -> None:
        """Begin a process in the place of one that has ended: at once, or after a pause where the last try failed."""
        if not self._ended:
            loop = asyncio.get_running_loop()
            loop.call_later(_pause(place.failed_starts), self._choose_setup, loop, place)
        self.on_idle()

    def _choose_setup(self, loop: asyncio.AbstractEventLoop, place: _Place) -> None:
        """On the loop, so that no process comes between the look and the choice."""
        try:
            if not self.num_processes:
                self.setup = self.renewed(self.setup)
        except UserError as error:
            _tell_failed_start(error)
            self._count_failed_start(place)
            return
        place.setup = self.setup
        loop.run_in_executor(None, self._begin_again, loop, place)

    def _begin_again(self, loop: asyncio.AbstractEventLoop, place: _Place) -> None:
        """In a thread, because beginning a process takes its time."""
        place.leave(END_SECONDS)
        # One that could not load has ended by itself, and has said why. The next try is not told again.
        if place.process.exitcode and place.process is not place.told:
            place.told = place.process
            print(f"{_ended(place.process)}. Another is begun in its place.", file=sys.stderr)
        try:
            self._begin(place)
        except (OSError, EOFError) as error:  # nobody reads what the thread raises
            _tell_failed_start(error)
            loop.call_soon_threadsafe(self._count_failed_start, place)
        else:
            loop.call_soon_threadsafe(self._count_start, place)

    def _count_start(self, place: _Place) -> None:
        self.num_begun_again += 1
        self._listen(place)

    def _count_failed_start(self, place: _Place) -> None:
        place.failed_starts += 1
        self._begin_another(place)


def _pause(failed_starts: int) -> float:
    """The seconds before the next try."""
    return min(LONGEST_PAUSE, PAUSE * 2 ** min(failed_starts - 1, 100)) if failed_starts else 0.0


def _tell_failed_start(error: Exception | None) -> None:
    print(f"A process of the search cannot be begun: {error or type(error).__name__}", file=sys.stderr)


def _ended_early(place: _Place) -> str:
    place.process.join(END_SECONDS)
    return (
        f"{_ended(place.process)} while it loaded the model, killed perhaps for want of memory. Take fewer with "
        "--workers."
    )


def _ended(process: Any) -> str:
    return f"A process of the search ended with exit status {process.exitcode}"
