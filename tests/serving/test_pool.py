"""The processes of the search on an event loop that makes what it listens to return at once, as uvloop does."""

import asyncio
import multiprocessing
import os
import shutil
import signal
import sys
from functools import partial
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess, SpawnProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from waiting import wait_until

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.search.options import search_options
from transformer_mt.errors import UserError
from transformer_mt.serving import begin, search_process
from transformer_mt.serving import pool as module
from transformer_mt.serving.chosen import Chosen
from transformer_mt.serving.pool import MOST_TRIES, NOBODY_KNOWS, DiedError, Pool
from transformer_mt.serving.refusal import Limits
from transformer_mt.serving.search_process import Job, Setup
from transformer_mt.storage.run_folder import RunFolder

BLANKS = " " * 3_000_000  # more than the system holds between two processes, in both directions


def setup_of(run: Path) -> Setup:
    return Setup([Chosen.of(RunFolder(run))])


class HastyLoop(asyncio.SelectorEventLoop):
    """A loop after whose `add_reader` no file makes its reader wait."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        super().add_reader(fd, callback, *args)
        os.set_blocking(fd, False)


async def killed_in_its_work(pool: Pool) -> None:
    """The only process of the pool is killed in a job; returns when one has come in its place, or none will."""
    pool.attach()
    doing = pool.start(Job("search", 0, ([SourceLine("one two.")], search_options(DecodingConfig()))))
    pool.kill(doing)
    with pytest.raises(DiedError):
        await doing
    while not pool.is_lost and not pool.num_idle:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(("platform", "kind"), [("linux", ForkServerProcess), ("darwin", SpawnProcess)])
def test_a_message_that_comes_in_parts_is_whole_on_any_event_loop(
    run: Path, platform: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whether or not the process is a copy: on a Mac none is."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", platform)
        pool = Pool(setup_of(run), 1)

    async def ask() -> Any:
        pool.attach()
        lines = [SourceLine(BLANKS), SourceLine("one two.")]
        return await asyncio.wait_for(pool.start(Job("search", 0, (lines, search_options(DecodingConfig())))), 60)

    try:
        pool.begin()
        assert kind in map(type, multiprocessing.active_children())
        pool.wait_until_ready()
        with asyncio.Runner(loop_factory=HastyLoop) as runner:
            found = runner.run(ask())
    finally:
        pool.end()
    assert [translated.source for translated in found] == [BLANKS, "one two."]
    assert pool.num_begun_again == 0


async def lost_and_back(pool: Pool) -> bool:
    """As `killed_in_its_work`, until one has come. Whether the pool was lost before."""
    await killed_in_its_work(pool)
    was_lost = pool.is_lost
    while not pool.num_idle:
        await asyncio.sleep(0.01)
    return was_lost


@pytest.mark.parametrize("num_failures", [1, MOST_TRIES + 1])
def test_a_process_that_cannot_be_begun_again_is_told_and_tried_until_it_can(
    run: Path, num_failures: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody waits for it after some tries, and all are answered again when it is there."""
    monkeypatch.setattr(module, "PAUSE", 0.1)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.2)
    pool = Pool(setup_of(run), 1)
    left = [OSError("no more processes")] * num_failures
    start = ForkServerProcess.start

    def failing(process: ForkServerProcess) -> None:
        if left:
            raise left.pop()
        start(process)

    try:
        pool.begin()
        pool.wait_until_ready()
        monkeypatch.setattr(ForkServerProcess, "start", failing)
        was_lost = asyncio.run(asyncio.wait_for(lost_and_back(pool), 60))
    finally:
        pool.end()
    assert was_lost == (num_failures >= MOST_TRIES)
    assert not pool.is_lost
    assert pool.num_begun_again == 1
    said = capfd.readouterr().err
    assert said.count("cannot be begun: no more processes") == num_failures
    assert said.count("ended with exit status -9. Another is begun in its place.") == 1


def test_why_a_process_cannot_load_what_others_have_loaded_is_told(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Such as a checkpoint that its training has deleted since."""
    monkeypatch.setattr(module, "PAUSE", 0.1)
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    pool = Pool(setup_of(folder), 1)

    try:
        pool.begin()
        pool.wait_until_ready()
        shutil.rmtree(folder / "checkpoints")
        asyncio.run(asyncio.wait_for(killed_in_its_work(pool), 60))
    finally:
        pool.end()
    assert pool.is_lost
    assert capfd.readouterr().err.count(f"cannot be begun: {folder} has no checkpoint yet") == MOST_TRIES


def test_the_pauses_between_tries_grow_to_a_minute_and_no_further() -> None:
    assert [module._pause(number) for number in (0, 1, 2, 3, 6, 7, 8, 10**6)] == [0, 1, 2, 4, 32, 60, 60, 60]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_process_whose_gpu_may_do_nothing_more_is_begun_again(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    """After an error that is no user's. Whoever asked has the error; on a CPU the process does its next job."""
    pool = Pool(Setup([], device=device), 1)

    async def fail() -> int | None:
        (before,) = (place.process.pid for place in pool._places)
        with pytest.raises(RuntimeError, match="IndexError"):
            await pool.start(Job("search", 0, ()))  # of a run that it has not
        while not pool.num_idle:
            await asyncio.sleep(0.01)
        (after,) = (place.process.pid for place in pool._places)
        return None if before == after else after

    async def fail_twice() -> list[int | None]:
        pool.attach()
        return [await fail(), await fail()]

    try:
        pool.begin()
        pool.wait_until_ready()
        successors = asyncio.run(asyncio.wait_for(fail_twice(), 60))
    finally:
        pool.end()
    assert (None in successors) == (device == "cpu")
    assert pool.num_begun_again == 2 * (device == "cuda")
    assert "cannot be begun" not in capfd.readouterr().err


@pytest.mark.parametrize("choice", [None, "best", "last"])
def test_all_processes_have_one_checkpoint_while_its_run_is_trained(
    run: Path, choice: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server finds it, by a name that another checkpoint never has."""
    setups: list[Setup] = []

    class StopError(Exception):
        pass

    def stop(setup: Setup, *_: object) -> None:
        setups.append(setup)
        raise StopError

    monkeypatch.setattr(begin, "Pool", stop)
    with pytest.raises(StopError):
        begin.serve([RunFolder(run)], {}, begin.Options("127.0.0.1", 0, Limits(), choice, "cpu"), print)
    assert [chosen.name for chosen in setups[0].runs] == ["step_300"]


def other_checkpoint(folder: Path) -> None:
    """In the place of the only one, as where a run's average is made anew: the same weights, another manifest."""
    with (folder / "checkpoints/step_300/manifest.json").open("a") as manifest:
        manifest.write("\n")


def test_a_checkpoint_that_is_another_one_by_now_is_not_taken_beside_the_first(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two processes, of which one dies: the other goes on alone."""
    monkeypatch.setattr(module, "PAUSE", 0.1)
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    pool = Pool(setup_of(folder), 2, partial(begin.renewed, None, print))

    async def one_dies() -> None:
        pool.attach()
        doing = pool.start(Job("search", 0, ([SourceLine("one two.")], search_options(DecodingConfig()))))
        pool.kill(doing)
        with pytest.raises(DiedError):
            await doing
        while max(place.failed_starts for place in pool._places) < MOST_TRIES:
            await asyncio.sleep(0.01)

    try:
        pool.begin()
        pool.wait_until_ready()
        other_checkpoint(folder)
        asyncio.run(asyncio.wait_for(one_dies(), 60))
    finally:
        pool.end()
    assert pool.num_idle == 1
    assert not pool.is_lost
    assert "step_300 is no longer what it was when the server began." in capfd.readouterr().err


def test_where_no_process_is_left_the_checkpoint_of_the_moment_is_taken_and_named(run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    said: list[str] = []
    pool = Pool(setup_of(folder), 1, partial(begin.renewed, None, said.append))
    before = pool.setup
    try:
        pool.begin()
        pool.wait_until_ready()
        other_checkpoint(folder)
        assert not asyncio.run(asyncio.wait_for(lost_and_back(pool), 60))
    finally:
        pool.end()
    assert pool.setup != before
    assert said == [f"{folder}: step_300 is gone as it was. step_300 is served from now on."]
    assert begin.renewed(None, said.append, pool.setup) is pool.setup


def test_a_process_that_loaded_what_is_served_no_longer_is_begun_again(run: Path) -> None:
    """Both died at once, and the first to come again chose anew while the other loaded what it had found before."""
    pool = Pool(setup_of(run), 1)

    async def until_idle() -> None:
        pool.attach()
        while not pool.num_idle:
            await asyncio.sleep(0.01)

    try:
        pool.begin()
        pool.setup = setup_of(run)
        asyncio.run(asyncio.wait_for(until_idle(), 60))
    finally:
        pool.end()
    assert pool.num_begun_again == 1


def test_a_living_process_is_killed_also_where_the_one_that_began_it_has_died(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python then takes each for one that has ended."""
    pool = Pool(setup_of(run), 1)
    pool.begin()
    pool.wait_until_ready()
    process = pool._places[0].process
    server: Any = forkserver._forkserver
    os.kill(server._forkserver_pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == NOBODY_KNOWS
    os.kill(process.pid, 0)
    process.kill()
    os.kill(process.pid, signal.SIGSTOP)  # it is at work that never ends
    pool.end()
    wait_until(lambda: not os.path.exists(f"/proc/{process.pid}"))
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    pool._places[0].kill()
    assert not killed, "by now the number may be that of another process"


def test_a_gpu_whose_memory_was_full_does_more_for_the_same_process() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    full, other = torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error: an illegal memory access")
    assert [search_process._is_last(error, gpu) for error in (full, other, UserError("Ask for less."))] == [
        False,
        True,
        False,
    ]
    assert not search_process._is_last(other, cpu)
