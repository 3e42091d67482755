"""How sentences are gathered: scripted processes that note what they get."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translation import Translated
from transformer_mt.errors import UserError
from transformer_mt.serving import batcher as batcher_module
from transformer_mt.serving.batcher import MOST_WAIT, Batcher, Kind
from transformer_mt.serving.pool import DiedError, Pool
from transformer_mt.serving.refusal import Refusal
from transformer_mt.serving.search_process import Job

KIND = Kind(0, search_options(DecodingConfig()))


class ScriptedPool:
    """So many processes, each of which does its job when the test says so; `died` names sentences that end one."""

    def __init__(self, num_processes: int) -> None:
        self.num_processes = self.num_idle = num_processes
        self.is_lost = False
        self.on_idle: Callable[[], None] = lambda: None
        self.jobs: list[tuple[Job, asyncio.Future[Any]]] = []
        self.died: set[str] = set()
        self.error: Exception = DiedError()  # of which they do

    @property
    def batches(self) -> list[list[str]]:
        return [[line.text for line in job.arguments[0]] for job, _ in self.jobs]

    def start(self, job: Job) -> "asyncio.Future[Any]":
        assert self.num_idle > 0
        self.num_idle -= 1
        self.jobs.append((job, asyncio.get_running_loop().create_future()))
        return self.jobs[-1][1]

    def finish(self, number: int) -> None:
        job, future = self.jobs[number]
        texts = [line.text for line in job.arguments[0]]
        self.num_idle += 1
        if self.died & set(texts):
            future.set_exception(self.error)
        else:
            future.set_result([Translated(text.upper(), []) for text in texts])
        self.on_idle()

    def kill(self, doing: "asyncio.Future[Any]") -> None:
        doing.set_exception(DiedError())


def lines(*texts: str) -> list[SourceLine]:
    return [SourceLine(text) for text in texts]


def played(
    num_processes: int, script: Callable[[Batcher, ScriptedPool], Coroutine[Any, Any, None]], batch_size: int = 4
) -> None:
    async def play() -> None:
        pool = ScriptedPool(num_processes)
        await script(Batcher(cast(Pool, pool), batch_size, 30.0), pool)

    asyncio.run(play())


async def asked(batcher: Batcher, *texts: str, kind: Kind = KIND) -> "asyncio.Task[list[str]]":
    """A request that is under way."""

    async def search() -> list[str]:
        return [translated.source for translated in await batcher.search(kind, lines(*texts))]

    task = asyncio.create_task(search())
    await asyncio.sleep(0)
    return task


def test_sentences_of_several_requests_are_searched_together() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        tasks = [await asked(batcher, text) for text in "abc"]
        assert pool.jobs == []
        await asyncio.sleep(2 * MOST_WAIT)
        assert pool.batches == [["a", "b", "c"]]
        pool.finish(0)
        assert [await task for task in tasks] == [["A"], ["B"], ["C"]]

    played(1, script)


def test_no_sentence_waits_longer_for_others_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "QUIET", 100.0)  # as if others came without end

    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        task = await asked(batcher, "a")
        while not pool.jobs:
            await asyncio.sleep(0.001)
        assert MOST_WAIT <= loop.time() - begun < 50
        pool.finish(0)
        assert await task == ["A"]

    played(1, script)


def test_a_full_batch_waits_for_nothing() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        await asked(batcher, "a", "b", "c", "d")
        assert pool.batches == [["a", "b", "c", "d"]]

    played(1, script)


def test_batches_are_of_like_length_and_have_the_first_in_line() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        first = await asked(batcher, "b" * 50)
        await asyncio.sleep(2 * MOST_WAIT)
        assert pool.batches == [["b" * 50]]
        texts = ["d" * 40, "c" * 9, "e" * 10, "f" * 11, "g" * 41, "h" * 8, "i" * 42, "j" * 43]
        second = await asked(batcher, *texts)
        pool.finish(0)
        await asyncio.sleep(2 * MOST_WAIT)
        pool.finish(1)
        pool.finish(2)
        assert list(map(len, pool.batches[1])) == [40, 41, 42, 43]
        assert list(map(len, pool.batches[2])) == [8, 9, 10, 11]
        assert (await first, await second) == (["B" * 50], [text.upper() for text in texts])

    played(1, script)


def test_an_idle_process_waits_for_as_many_as_it_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"MOST_WAIT": 100.0, "QUIET_AFTER_ANSWERS": 100.0, "QUIET": 0.001}.items():
        monkeypatch.setattr(batcher_module, name, seconds)

    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        first, second = await asked(batcher, "a"), await asked(batcher, "b")
        await asyncio.sleep(0.02)
        assert pool.batches == [["a", "b"]]
        await asked(batcher, "c")
        pool.finish(0)
        await asyncio.gather(first, second)
        await asked(batcher, "d")
        await asyncio.sleep(0.02)
        assert len(pool.batches) == 1  # one of the two has not asked again
        await asked(batcher, "e")
        await asyncio.sleep(0.02)
        assert pool.batches[1:] == [["c", "d", "e"]]
        pool.finish(1)

    played(1, script)


def test_who_has_had_an_answer_can_ask_again_beside_those_in_line() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        await asked(batcher, "a")
        await asyncio.sleep(2 * MOST_WAIT)
        waiting = await asked(batcher, "b")
        await asyncio.sleep(2 * MOST_WAIT)
        pool.finish(0)
        again = await asked(batcher, "c")
        await asyncio.sleep(2 * MOST_WAIT)
        assert pool.batches == [["a"], ["b", "c"]]
        pool.finish(1)
        assert (await waiting, await again) == (["B"], ["C"])

    played(1, script)


def test_each_process_gets_its_share() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        await asked(batcher, "a", "b", "c")
        await asyncio.sleep(2 * MOST_WAIT)
        assert sorted(map(len, pool.batches)) == [1, 2]

    played(2, script)


def test_a_short_request_need_not_wait_for_all_of_a_long_one() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        await asked(batcher, *["x"] * 400)
        short = await asked(batcher, "y")
        for number in range(20):
            pool.finish(number)
            await asyncio.sleep(0.001)
            if short.done():
                break
        assert short.done(), "it had to wait for all the others"

    played(1, script)


def test_kinds_are_not_mixed() -> None:
    other = Kind(1, KIND.options)

    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        tasks = [await asked(batcher, "a"), await asked(batcher, "b", kind=other), await asked(batcher, "c")]
        await asyncio.sleep(2 * MOST_WAIT)
        pool.finish(0)
        await asyncio.sleep(2 * MOST_WAIT)
        pool.finish(1)
        assert pool.batches == [["a", "c"], ["b"]]
        assert [job.run for job, _ in pool.jobs] == [0, 1]
        await asyncio.gather(*tasks)

    played(1, script)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DiedError(), Refusal),
        (UserError("The model's output is not a number."), Refusal),
        (RuntimeError("out of memory"), RuntimeError),
    ],
)
def test_one_sentence_that_ends_every_process_harms_no_other(
    error: Exception, told: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one that no process can translate."""
    for name in ("MOST_WAIT", "QUIET"):
        monkeypatch.setattr(batcher_module, name, 100.0)  # the batch is begun because it is full

    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        pool.died, pool.error = {"poison"}, error
        tasks = [await asked(batcher, text) for text in ("a", "poison", "b")]
        for number in range(4):
            pool.finish(number)
            await asyncio.sleep(0)
        assert pool.batches == [["a", "b", "poison"], ["a"], ["b"], ["poison"]]
        assert (await tasks[0], await tasks[2]) == (["A"], ["B"])
        with pytest.raises(told) as refusal:
            await tasks[1]
        if isinstance(refusal.value, Refusal):
            assert refusal.value.status == (400 if isinstance(error, UserError) else 503)

    played(1, script, batch_size=3)


def test_who_waits_when_the_last_process_is_lost_is_told_at_once() -> None:
    """And not that the answer takes too long, when the time is over."""

    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        died = await asked(batcher, *"abcd")
        waiting = await asked(batcher, "e")
        looking = asyncio.create_task(batcher.ask(Job("look", 0, ())))
        await asyncio.sleep(0)
        pool.jobs[0][1].set_exception(DiedError())
        pool.is_lost = True
        pool.on_idle()
        for task in (died, waiting, looking):
            with pytest.raises(Refusal, match="No process is left to translate") as refusal:
                await asyncio.wait_for(task, 10)
            assert refusal.value.status == 503
        assert batcher.num_waiting == 0

    played(1, script)


@pytest.mark.parametrize("longest", [30.0, 0.0])
def test_a_process_has_longer_for_a_batch_than_a_request_for_its_answer(
    longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or no batch would end where requests have less time than it takes: each would be killed, and searched again."""
    monkeypatch.setattr(batcher_module, "LONGEST_JOB", longest)

    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        batcher.seconds = 0.001
        await asked(batcher, *"abcd")
        await asyncio.sleep(0.1)
        assert pool.jobs[0][1].done() == (longest == 0.0)

    played(1, script)


def test_an_error_of_the_search_is_told_to_all_whom_it_concerns() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        pool.died, pool.error = {"a", "b"}, UserError("That will not do. Do another thing.")
        tasks = [await asked(batcher, "a"), await asked(batcher, "b")]
        await asyncio.sleep(2 * MOST_WAIT)
        for number in range(3):  # both, then each by itself
            pool.finish(number)
            await asyncio.sleep(0)
        for task in tasks:
            with pytest.raises(Refusal, match="That will not do"):
                await task

    played(1, script)


def test_what_nobody_waits_for_is_not_searched() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        await asked(batcher, *"abcd")
        gone = await asked(batcher, "e", "f")
        gone.cancel()
        await asyncio.sleep(0)
        pool.finish(0)
        await asyncio.sleep(2 * MOST_WAIT)
        assert pool.batches == [list("abcd")]
        assert batcher.num_waiting == 0

    played(1, script)


def test_what_nobody_waits_for_is_no_company() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        await asked(batcher, *"abcd")
        first, gone, last = [await asked(batcher, *texts) for texts in ("e", "fgh", "i")]
        gone.cancel()
        await asyncio.sleep(0)
        assert batcher.num_waiting == 2
        pool.finish(0)
        await asyncio.sleep(2 * MOST_WAIT)
        assert pool.batches[1:] == [["e", "i"]]
        pool.finish(1)
        assert (await first, await last) == (["E"], ["I"])

    played(1, script)


@given(
    st.lists(st.lists(st.text("ab", min_size=1, max_size=30), min_size=1, max_size=9), max_size=12),
    st.sets(st.integers(0, 11)),
    st.integers(0, 3),
)
def test_requests_that_are_given_up_change_nothing_for_the_others(
    requests: list[list[str]], given_up: set[int], num_finished: int
) -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        tasks = [await asked(batcher, *texts) for texts in requests]
        begun = min(num_finished, len(pool.jobs))
        for number in range(begun):
            pool.finish(number)
        left = {i: task for i, task in enumerate(tasks) if i not in given_up}
        for i in given_up & set(range(len(tasks))):
            tasks[i].cancel()
        number = begun
        while not all(task.done() for task in tasks):
            while number < len(pool.jobs):
                pool.finish(number)
                number += 1
            await asyncio.sleep(0.001)
        assert {i: task.result() for i, task in left.items()} == {
            i: [text.upper() for text in requests[i]] for i in left
        }
        assert batcher.num_waiting == 0

    played(2, script)


def test_nothing_is_left_of_what_is_answered() -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        async def answer(num_requests: int) -> int:
            """The bytes in use after so many requests."""
            for _ in range(num_requests):
                task = await asked(batcher, *"abcd")
                pool.finish(0)
                await task
                pool.jobs.clear()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        before = await answer(500)
        assert await answer(2000) - before < 20_000  # 10 bytes a request, less than any object

    tracemalloc.start()
    try:
        played(1, script)
    finally:
        tracemalloc.stop()


@given(
    st.lists(st.lists(st.text("ab", min_size=1, max_size=30), min_size=1, max_size=9), max_size=12), st.integers(1, 3)
)
def test_every_request_has_its_own_answers_in_order(requests: list[list[str]], num_processes: int) -> None:
    async def script(batcher: Batcher, pool: ScriptedPool) -> None:
        tasks = [await asked(batcher, *texts) for texts in requests]
        number = 0
        while not all(task.done() for task in tasks):
            while number < len(pool.jobs):
                pool.finish(number)
                number += 1
            await asyncio.sleep(0.001)
        assert [task.result() for task in tasks] == [[text.upper() for text in texts] for texts in requests]
        assert sum(map(len, pool.batches)) == sum(map(len, requests))

    played(num_processes, script)
