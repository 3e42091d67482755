"""Batches made ahead of the step are those that would be made on the spot, whatever goes wrong and whoever asks."""

import gc
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from toy import toy_config
from trainings import assert_same_run

from transformer_mt.data.batches.batching import Batch, Rows, make_batch, plan_batches
from transformer_mt.data.batches.plan import WholePlan
from transformer_mt.data.preparation import PreparedData, Split
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import batch_feed as feed_module
from transformer_mt.training.batch_feed import DEPTH, Feed, moved
from transformer_mt.training.memory.memory_parts import Part
from transformer_mt.training.run import start_or_resume


def planner(split: Split) -> Callable[[int], WholePlan]:
    return lambda epoch: WholePlan(plan_batches(split.src_lengths, split.tgt_lengths, 64, 3, epoch))


def assert_same(batch: Batch, expected: Batch) -> None:
    for name in ("src", "tgt_in", "tgt_out", "real"):
        assert torch.equal(getattr(batch, name), getattr(expected, name)), name
    assert (batch.num_tokens, batch.num_padding) == (expected.num_tokens, expected.num_padding)


def threads() -> list[str]:
    """Those of a feed that live: other tests of the process may have left threads of other kinds."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("tmt_plan", "tmt_feed"))]


@pytest.mark.parametrize(("rank", "size", "per_update"), [(0, 1, 1), (0, 1, 3), (1, 2, 4), (2, 3, 3)])
def test_every_batch_of_three_epochs_is_the_one_made_on_the_spot(
    data: PreparedData, rank: int, size: int, per_update: int
) -> None:
    split, plan = data.train, planner(data.train)
    with Feed(plan, split.batch, rank, size, num_epochs=3) as feed:
        for epoch in range(3):
            batches = feed.plan(epoch).known()
            assert all(np.array_equal(a, b) for a, b in zip(batches, plan(epoch).known(), strict=True))
            for first in range(0, len(batches), per_update):
                update = batches[first : first + per_update]
                for index in range(rank, len(update), size):
                    assert_same(feed.batch(epoch, first, Part(index, update[index])), split.batch(update[index]))
    assert threads() == []


def test_what_is_split_or_asked_for_again_is_made_on_the_spot(data: PreparedData) -> None:
    split = data.train
    with Feed(planner(split), split.batch) as feed:
        plan = feed.plan(0).known()
        for number in (0, 1, 0, 1, 5, 4, 6):  # an update begun again; micro-batches 2 and 3 in parts; again
            assert_same(feed.batch(0, 0, Part(number, plan[number])), split.batch(plan[number]))
        for half in Part(7, plan[7]).halves():
            assert_same(feed.batch(0, 0, half), split.batch(half.rows))
        assert_same(feed.batch(1, 0, Part(0, feed.plan(1).known()[0])), split.batch(feed.plan(1).known()[0]))


def test_no_more_than_a_few_are_ahead_and_none_after_the_last_epoch(data: PreparedData) -> None:
    split, made = data.train, []

    def make(rows: Rows) -> Batch:
        made.append(rows)
        return split.batch(rows)

    with Feed(planner(split), make, num_epochs=1) as feed:
        plan = feed.plan(0).known()
        for number, rows in enumerate(plan):
            feed.batch(0, 0, Part(number, rows))
            assert len(made) <= number + 1 + DEPTH
    assert len(made) == len(plan)


def test_a_plan_is_made_once_and_forgotten_in_the_epochs_after_it(data: PreparedData) -> None:
    made: list[weakref.ref[WholePlan]] = []

    def plan(epoch: int) -> WholePlan:
        found = planner(data.train)(epoch)
        made.append(weakref.ref(found))
        return found

    with Feed(plan, data.train.batch) as feed:
        for epoch in (0, 0, 1, 2, 2):
            feed.plan(epoch)
        gc.collect()
        assert [reference() is not None for reference in made] == [False, False, True]


def test_an_error_of_the_thread_is_raised_where_its_batch_is_asked_for(data: PreparedData) -> None:
    split = data.train
    plan = planner(split)(0).known()

    def make(rows: Rows) -> Batch:
        if np.array_equal(rows, plan[2]):
            raise UserError("The file is damaged. Restore it.")
        return split.batch(rows)

    def plan_but_two(epoch: int) -> WholePlan:
        if epoch == 2:
            raise MemoryError("Unable to allocate 8.00 GiB")
        return WholePlan(plan)

    with Feed(plan_but_two, make) as feed:
        for number in (0, 1):
            assert_same(feed.batch(0, 0, Part(number, plan[number])), split.batch(plan[number]))
        with pytest.raises(UserError, match="damaged"):
            feed.batch(0, 0, Part(2, plan[2]))
        assert_same(feed.batch(0, 0, Part(3, plan[3])), split.batch(plan[3]))
        with pytest.raises(MemoryError):
            feed.plan(2)
    assert threads() == []


def test_waiting_is_measured(data: PreparedData) -> None:
    split = data.train
    held = threading.Event()

    def make(rows: Rows) -> Batch:
        held.wait()
        return split.batch(rows)

    with Feed(planner(split), make) as feed:
        plan = feed.plan(0).known()
        threading.Timer(0.2, held.set).start()
        began = time.perf_counter()
        feed.batch(0, 0, Part(0, plan[0]))
        took = time.perf_counter() - began
        waited = feed.take_waited()
        assert 0.19 < waited <= took  # the clock of the timer is not ours
        assert feed.take_waited() == 0.0


def test_training_is_the_same_bit_for_bit_with_nothing_made_ahead(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across epochs. That a resumed run is the same, too, is for `test_resume.py`."""
    config = toy_config(corpus, model={"dropout": 0.2}, training={"grad_accum": 2, "max_steps": 16})
    start_or_resume(config, RunFolder(tmp_path / "ahead"), resume=False)
    monkeypatch.setattr(feed_module.Feed, "batch", lambda self, epoch, first, part: self._make(part.rows))
    start_or_resume(config, RunFolder(tmp_path / "on_the_spot"), resume=False)
    assert_same_run(tmp_path / "ahead", tmp_path / "on_the_spot", 16)
    assert threads() == []


# Batches


def test_ids_gathered_together_are_those_read_one_by_one(data: PreparedData) -> None:
    split = data.train
    rows = np.random.default_rng(0).permutation(len(split))[:40]
    for column in (split.ids.src, split.ids.tgt):
        ids, lengths = column.gather(split.rows[rows])
        expected = [column[row].tolist() for row in split.rows[rows]]
        assert [found[:length].tolist() for found, length in zip(ids, lengths, strict=True)] == expected
    one_by_one = make_batch(*([side[row] for row in split.rows[rows]] for side in (split.ids.src, split.ids.tgt)))
    assert_same(split.batch(rows), one_by_one)


def test_what_a_batch_says_of_itself_is_in_its_tensors() -> None:
    generator = np.random.default_rng(1)
    for _ in range(50):
        src, tgt = (
            [generator.integers(4, 90, generator.integers(0, 9)).astype(np.int32) for _ in range(7)] for _ in range(2)
        )
        batch = make_batch(src, tgt)
        assert_same(batch, Batch.of(batch.src, batch.tgt_in, batch.tgt_out))
        for row, (x, y) in enumerate(zip(src, tgt, strict=True)):
            assert batch.src[row].tolist() == [*x, 3] + [0] * (batch.src.size(1) - len(x) - 1)
            assert batch.tgt_out[row].tolist() == [*y, 3] + [0] * (batch.tgt_out.size(1) - len(y) - 1)
            assert batch.tgt_in[row].tolist() == [2, *y] + [0] * (batch.tgt_in.size(1) - len(y) - 1)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no room"), RuntimeError("CUDA error: out of memory")])
def test_a_batch_that_finds_no_room_ahead_of_its_step_stays_here(
    error: Exception, data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran out belongs to the step that runs meanwhile, not to this batch, which would be split for it."""

    def fail(batch: Batch, device: torch.device) -> Batch:
        raise error

    batch = data.train.batch(np.arange(3))
    assert moved(batch, torch.device("meta")).src.is_meta
    monkeypatch.setattr(Batch, "to", fail)
    assert moved(batch, torch.device("meta")) is batch
    error.args = ("the device is gone",)
    if not isinstance(error, torch.OutOfMemoryError):
        with pytest.raises(RuntimeError, match="gone"):
            moved(batch, torch.device("meta"))


def test_no_other_thread_moves_a_batch_to_apples_gpu(data: PreparedData) -> None:
    """Two threads at once end the process there. The step itself moves its batch."""
    batch = data.train.batch(np.arange(3))
    assert moved(batch, torch.device("mps")) is batch
