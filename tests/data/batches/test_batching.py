import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID
from transformer_mt.data.batches import batching
from transformer_mt.data.batches.batching import make_batch, plan_batches, plan_in_order

lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200)


@given(lengths, st.integers(40, 400), st.integers(0, 2**40), st.integers(0, 50))
def test_every_row_once_within_the_budget(pairs: list[tuple[int, int]], budget: int, seed: int, epoch: int) -> None:
    src, tgt = (np.array(side, dtype=np.int32) for side in zip(*pairs, strict=True))
    plan = plan_batches(src, tgt, budget, seed, epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(pairs)))
    again = plan_batches(src, tgt, budget, seed, epoch)
    assert all(np.array_equal(a, b) for a, b in zip(plan, again, strict=True))
    in_order = plan_in_order(src, tgt, budget)
    assert sorted(np.concatenate(in_order).tolist()) == list(range(len(pairs)))
    for rows in [*plan, *in_order]:
        assert len(rows) * max(src[rows].max(), tgt[rows].max()) <= budget


def test_epochs_and_seeds_differ_in_order_and_in_company() -> None:
    generator = np.random.default_rng(0)
    src, tgt = (generator.integers(3, 12, 2000).astype(np.int32) for _ in range(2))
    plans = [plan_batches(src, tgt, 256, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    companies = [{frozenset(rows.tolist()) for rows in plan} for plan in plans]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert len(companies[i] & companies[j]) < 0.2 * len(companies[i])


def test_batches_are_not_in_order_of_length() -> None:
    src = np.arange(1, 201, dtype=np.int32) % 30 + 1
    firsts = [int(src[rows].max()) for rows in plan_batches(src, src, 60, 0, 0)]
    assert firsts != sorted(firsts)


@given(st.lists(st.tuples(st.integers(1, 30) | st.just(70_000), st.integers(1, 30))), st.integers(0, 9))
def test_the_order_is_that_of_one_sort_by_all_keys(pairs: list[tuple[int, int]], seed: int) -> None:
    """The order of as many rows as are planned at once."""
    src, tgt = (np.array([pair[side] for pair in pairs], dtype=np.int32) for side in (0, 1))
    generator = np.random.default_rng([seed, 2])
    side = np.maximum(src, tgt)
    difference = src.astype(np.float64) - tgt + generator.uniform(-1.0, 1.0, len(side))
    order = np.lexsort((np.where(side % 2 == 0, difference, -difference), side))
    plan = plan_batches(src, tgt, 70_000, seed, 2)
    shuffled = generator.permutation(len(plan))
    in_order = [plan[int(np.flatnonzero(shuffled == i)[0])] for i in range(len(plan))]
    assert np.concatenate([np.empty(0, np.int64), *in_order]).tolist() == order.tolist()


@given(lengths, st.integers(40, 400), st.integers(0, 9), st.integers(1, 30))
def test_many_rows_are_sorted_part_by_part(
    pairs: list[tuple[int, int]], budget: int, seed: int, planned_at_once: int
) -> None:
    """Each row in one batch within the budget, the same each time, and as many batches as the sorted parts fill."""
    src, tgt = (np.array(side, dtype=np.int32) for side in zip(*pairs, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "PLANNED_AT_ONCE", planned_at_once)
        plan, again = (plan_batches(src, tgt, budget, seed, 3) for _ in range(2))
        parts = list(batching._dealt_out(len(pairs), np.random.default_rng([seed, 3])))
    assert [rows.tolist() for rows in plan] == [rows.tolist() for rows in again]
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(pairs)))
    assert len(parts) == -(-len(pairs) // planned_at_once)
    in_parts = [set(range(len(pairs)) if part is None else part.tolist()) for part in parts]
    for rows in plan:
        assert len(rows) * max(src[rows].max(), tgt[rows].max()) <= budget
        assert sum(set(rows.tolist()) <= part for part in in_parts) == 1  # a part's batches are its own
    longest = np.maximum(src, tgt)
    expected = sum(
        len(batching.fill(np.arange(len(part)), np.sort(longest[list(part)]).astype(np.int64), budget))
        for part in in_parts
    )
    assert len(plan) == expected


def test_parts_are_dealt_out_by_chance_and_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "PLANNED_AT_ONCE", 1000)
    ones = np.full(3500, 5, np.int32)
    plans = [plan_batches(ones, ones, 100, 1, epoch) for epoch in (0, 1)]
    assert len({frozenset(rows.tolist()) for rows in plans[0]} & {frozenset(rows.tolist()) for rows in plans[1]}) == 0
    for plan in plans:
        # Rows of a batch come from the whole corpus, not from a stretch of it: 20 of 3,500 lie 3,167 apart.
        assert np.mean([rows.max() - rows.min() for rows in plan]) > 3000
        assert 3500 / 20 <= len(plan) <= 3500 / 20 + 4  # but for a part's last, all are full
    parts = [part for part in batching._dealt_out(3500, np.random.default_rng(0)) if part is not None]
    assert len(parts) == 4
    assert all(800 < len(part) < 950 for part in parts)  # 875, deviation 26
    assert all(np.all(np.diff(part) > 0) for part in parts)


@given(st.lists(st.sampled_from([-1.5, 0.0, 0.25, 3.0]) | st.floats(-9, 9), max_size=60))
def test_equal_numbers_stay_in_their_order(numbers: list[float]) -> None:
    order = batching._stable_argsort(np.array(numbers, np.float64))
    assert order.tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)


def test_a_batch_by_hand() -> None:
    batch = make_batch(
        [np.array([5, 6], dtype=np.int32), np.array([7], dtype=np.int32)],
        [np.array([8], dtype=np.int32), np.array([9, 10, 11], dtype=np.int32)],
    )
    assert batch.src.tolist() == [[5, 6, EOS_ID], [7, EOS_ID, PAD_ID]]
    assert batch.tgt_in.tolist() == [[BOS_ID, 8, PAD_ID, PAD_ID], [BOS_ID, 9, 10, 11]]
    assert batch.tgt_out.tolist() == [[8, EOS_ID, PAD_ID, PAD_ID], [9, 10, 11, EOS_ID]]
    assert batch.num_tokens == 6
    assert (batch.num_padding, batch.num_cells) == (3, 14)
    assert batch.src.dtype == torch.int64
