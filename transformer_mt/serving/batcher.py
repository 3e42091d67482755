"""Sentences of all requests, gathered for a moment and searched together, in groups of like length."""

import asyncio
import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated
from transformer_mt.errors import UserError
from transformer_mt.serving.pool import DiedError, Pool
from transformer_mt.serving.refusal import Refusal
from transformer_mt.serving.search_process import Job

MOST_WAIT = 0.02  # seconds that a sentence waits for others while a process is idle
# It waits no longer where none has come and no answer gone out for so long: QUIET, or QUIET_AFTER_ANSWERS while fewer
# have come than were just answered. Who has had an answer asks again, and that should be searched with what stands in
# line.
QUIET = 0.002
QUIET_AFTER_ANSWERS = 0.008
# Sentence i of a request stands in line as if it had come so many seconds later than the first. So the first sentences
# of a short request need not wait for all of a long one.
BEHIND = 0.002
# A process that works longer on a job, and longer than anybody waits twice, is killed: it may never end.
LONGEST_JOB = 30.0


@dataclass(frozen=True, eq=False)
class Kind:
    """Sentences that can be searched together: those of one run, with the same options."""

    run: int
    options: SearchOptions


@dataclass(eq=False)
class _Order:
    """The sentences of one request: their results as they come, and the future that has all of them."""

    results: list[Translated | None]
    left: int
    future: "asyncio.Future[list[Translated]]"


@dataclass(eq=False)
class _Item:
    """A sentence that waits, and its place in its order. No other has its number."""

    order: _Order
    index: int
    line: SourceLine
    number: int
    is_taken: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among those of its kind: by length."""
        return len(self.line.text), self.number


@dataclass(eq=False)
class _Line:
    """The sentences of one kind that wait. Numbers stand between, so that no two items are compared."""

    by_length: list[tuple[int, int, _Item]] = field(default_factory=list)
    by_due: list[tuple[float, int, _Item]] = field(default_factory=list)

    def add(self, item: _Item, due: float) -> None:
        insort(self.by_length, (*item.place, item))
        heapq.heappush(self.by_due, (due, item.number, item))

    def drop(self, item: _Item) -> None:
        """Take one out for which nobody waits any more, if it is still there."""
        if not item.is_taken:
            del self.by_length[bisect_left(self.by_length, item.place)]
            item.is_taken = True

    def first_due(self) -> float:
        """When the first sentence in line came, or infinity."""
        while self.by_due and self.by_due[0][2].is_taken:
            heapq.heappop(self.by_due)
        return self.by_due[0][0] if self.by_due else float("inf")

    def take(self, size: int) -> list[_Item]:
        """The first in line, with so many of its likes in length that there are `size` of them, or all."""
        place = bisect_left(self.by_length, self.by_due[0][2].place)
        size = min(size, len(self.by_length))
        starts = range(max(0, place - size + 1), min(place, len(self.by_length) - size) + 1)
        start = min(starts, key=lambda i: self.by_length[i + size - 1][0] - self.by_length[i][0])
        taken = [item for _, _, item in self.by_length[start : start + size]]
        del self.by_length[start : start + size]
        for item in taken:
            item.is_taken = True
        return taken


class Batcher:
    """Gives sentences to the processes of a pool. `seconds` is the longest that anybody waits for an answer."""

    def __init__(self, pool: Pool, batch_size: int, seconds: float) -> None:
        self.pool = pool
        self.batch_size = batch_size
        self.seconds = seconds
        self.num_batches = 0
        self.num_searched = 0
        self._num_in_work = 0
        self._lines: dict[Kind, _Line] = {}
        self._others: deque[tuple[Job, asyncio.Future[Any]]] = deque()
        self._alone: deque[tuple[Kind, _Item]] = deque()  # those that were in a batch whose process died
        self._last_stir = 0.0  # when a sentence came, or an answer went out
        self._last_idle = 0.0
        self._num_awaited = 0  # sentences answered of late, less those that came since
        self._next_number = 0
        self._timer: asyncio.TimerHandle | None = None
        pool.on_idle = self._give_again

    async def search(self, kind: Kind, lines: Sequence[SourceLine]) -> list[Translated]:
        """The translation of each sentence. Raises Refusal where no process is left, or searching refuses one. Where
        it is cancelled, those that no process has yet are not searched.
        """
        loop = asyncio.get_running_loop()
        if not lines:
            return []
        self._refuse_without_processes()
        order = _Order([None] * len(lines), len(lines), loop.create_future())
        now = loop.time()
        waiting = self._lines.setdefault(kind, _Line())
        items = [_Item(order, i, line, self._next_number + i) for i, line in enumerate(lines)]
        self._next_number += len(items)
        for item in items:
            waiting.add(item, now + BEHIND * item.index)
        self._last_stir = now
        self._num_awaited = max(0, self._num_awaited - len(lines))
        self._give()
        try:
            results = await order.future
        finally:
            for item in items:
                waiting.drop(item)
        self._last_stir = loop.time()
        return results

    async def ask(self, job: Job) -> Any:
        """The result of another job, which comes before the sentences that wait."""
        self._refuse_without_processes()
        future = asyncio.get_running_loop().create_future()
        self._others.append((job, future))
        self._give()
        return await future

    @property
    def num_waiting(self) -> int:
        """Sentences that no process has yet."""
        return len(self._alone) + sum(len(line.by_length) for line in self._lines.values())

    def _refuse_without_processes(self) -> None:
        if self.pool.is_lost:
            raise _lost()

    def _refuse_all(self) -> None:
        """Refuse what waits, since no process will come for it."""
        items = [item for line in self._lines.values() for _, _, item in line.by_length]
        items += [item for _, item in self._alone]
        for future in [*(item.order.future for item in items), *(future for _, future in self._others)]:
            if not future.done():
                future.set_exception(_lost())
        self._alone.clear()
        self._others.clear()

    def _give_again(self) -> None:
        now = asyncio.get_running_loop().time()
        if now > self._last_idle + MOST_WAIT:
            self._num_awaited = 0
        self._last_idle = now
        self._give()

    def _give(self) -> None:
        """Give idle processes what is to be done, as far as it has waited long enough."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.pool.is_lost:
            self._refuse_all()
        while self.pool.num_idle and self._others:
            job, future = self._others.popleft()
            if not future.done():
                self._start(job, lambda done, future=future: _hand_on(done, future))
        while self.pool.num_idle and self._alone:
            kind, item = self._alone.popleft()
            if not item.order.future.done():
                self._search(kind, [item], is_alone=True)
        while self.pool.num_idle:
            kind, due = self._first_in_line()
            if kind is None:
                return
            wait = self._seconds_to_wait(due)
            if wait > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._give)
                return
            self._start_batch(kind)

    def _first_in_line(self) -> tuple[Kind | None, float]:
        first = min(self._lines, key=lambda kind: self._lines[kind].first_due(), default=None)
        due = float("inf") if first is None else self._lines[first].first_due()
        return (None, due) if due == float("inf") else (first, due)

    def _seconds_to_wait(self, due: float) -> float:
        """How long to wait for company: not at all where all idle processes can have a full batch."""
        if self.num_waiting >= self.batch_size * self.pool.num_idle:
            return 0.0
        now = asyncio.get_running_loop().time()
        is_awaiting = self._num_awaited and now < self._last_idle + MOST_WAIT
        quiet = QUIET_AFTER_ANSWERS if is_awaiting else QUIET
        return min(max(due, self._last_idle) + MOST_WAIT, max(self._last_stir, self._last_idle) + quiet) - now

    def _start_batch(self, kind: Kind) -> None:
        line = self._lines[kind]
        # A share for each process, since the others will be idle in a moment too.
        num_open = len(line.by_length) + self._num_in_work
        share = -(-num_open // max(1, self.pool.num_processes))
        self._search(kind, line.take(max(1, min(self.batch_size, share))))

    def _search(self, kind: Kind, batch: list[_Item], is_alone: bool = False) -> None:
        self._num_in_work += len(batch)
        self.num_batches += 1
        job = Job("search", kind.run, ([item.line for item in batch], kind.options))
        self._start(job, lambda done: self._finish(kind, batch, is_alone, done))

    def _start(self, job: Job, finish: "Callable[[asyncio.Future[Any]], None]") -> None:
        doing = self.pool.start(job)
        longest = max(LONGEST_JOB, 2 * self.seconds)
        timer = asyncio.get_running_loop().call_later(longest, self.pool.kill, doing)
        doing.add_done_callback(lambda done: (timer.cancel(), finish(done)))

    def _finish(self, kind: Kind, batch: list[_Item], is_alone: bool, done: "asyncio.Future[list[Translated]]") -> None:
        self._num_in_work -= len(batch)
        error = done.exception()
        if error is not None and (len(batch) > 1 or (isinstance(error, DiedError) and not is_alone)):
            # Each by itself: no other sentence is harmed again by one that may have been the cause.
            self._alone.extend((kind, item) for item in batch)
            self._give()
            return
        self._num_awaited += len(batch)
        for i, item in enumerate(batch):
            order = item.order
            if order.future.done():
                continue
            if error is not None:
                order.future.set_exception(_for_client(error))
                continue
            order.results[item.index] = done.result()[i]
            order.left -= 1
            if not order.left:
                self.num_searched += len(order.results)
                order.future.set_result([result for result in order.results if result is not None])


def _hand_on(done: "asyncio.Future[Any]", future: "asyncio.Future[Any]") -> None:
    """The outcome of one future to another, for which somebody may wait no longer."""
    error = done.exception()
    if future.done():
        return
    if error is not None:
        future.set_exception(_for_client(error))
    else:
        future.set_result(done.result())


def _lost() -> Refusal:
    return Refusal(
        503, "No process is left to translate, and none could be begun. Ask again in a minute, or the operator.", 60
    )


def _for_client(error: BaseException) -> BaseException:
    if isinstance(error, DiedError):
        return Refusal(503, "The process that worked on this ended before its time. Send less, or ask the operator.")
    return Refusal(400, str(error)) if isinstance(error, UserError) else error
