import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_config, toy_pairs, write_toy_corpus

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches import mixing
from transformer_mt.data.batches.batching import plan_batches
from transformer_mt.data.batches.mixing import dealt_together, draw, pairs_an_epoch, plan_mixed
from transformer_mt.data.mixture import weights_by_temperature
from transformer_mt.data.preparation import prepare_data, report_lines
from transformer_mt.errors import UserError

pair = st.tuples(st.integers(1, 40), st.integers(1, 40))
sources = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 1.0, 3.0]), st.lists(pair, min_size=1, max_size=60)),
                   min_size=1, max_size=4).filter(lambda found: any(weight for weight, _ in found))  # fmt: skip
budget = st.integers(40, 400)
seed = st.integers(0, 2**62)
epoch = st.integers(0, 50)

Sources = list[tuple[float, list[tuple[int, int]]]]


def plan_of(found: Sources, budget: int, seed: int, epoch: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The plan of these sources, the longer side of each row, and its source."""
    src, tgt = (np.array([one[side] for _, pairs in found for one in pairs], np.int32) for side in (0, 1))
    sizes = [len(pairs) for _, pairs in found]
    plan = plan_mixed(src, tgt, sizes, [weight for weight, _ in found], budget, seed, epoch)
    return plan, np.maximum(src, tgt), np.repeat(np.arange(len(found)), sizes)


@given(st.lists(st.sampled_from([0.0, 1e-300, 0.1, 0.3, 1.0, 7.0, 1e300]), min_size=1, max_size=6).filter(any),
       st.integers(1, 10**7))  # fmt: skip
def test_an_epoch_has_each_share_to_the_nearest_pair(weights: list[float], num_pairs: int) -> None:
    numbers = pairs_an_epoch(weights, num_pairs)
    total = sum(map(Fraction, weights))
    assert sum(numbers) == num_pairs
    for weight, number in zip(weights, numbers, strict=True):
        assert abs(number - Fraction(weight) / total * num_pairs) < 1 + Fraction(1, 10**6)
        assert weight or not number


def test_shares_by_hand() -> None:
    assert pairs_an_epoch([1, 1], 5) == [3, 2]
    assert pairs_an_epoch([1, 3], 8) == [2, 6]
    assert pairs_an_epoch([0.5, 0.3, 0.2], 9) == [4, 3, 2]  # 4.5, 2.7, 1.8: two are left, for the largest remainders
    assert pairs_an_epoch([0, 2], 3) == [0, 3]


@given(sources, budget, seed, epoch)
def test_every_batch_has_the_shares_within_the_budget(found: Sources, budget: int, seed: int, epoch: int) -> None:
    plan, longest, source_of_row = plan_of(found, budget, seed, epoch)
    again = plan_of(found, budget, seed, epoch)[0]
    assert [rows.tolist() for rows in plan] == [rows.tolist() for rows in again]
    weights = [weight for weight, _ in found]
    numbers = pairs_an_epoch(weights, len(longest))
    assert np.bincount(source_of_row[np.concatenate(plan)], minlength=len(found)).tolist() == numbers
    num_shares = sum(number > 0 for number in numbers)
    for rows in plan:
        assert len(rows) * longest[rows].max() <= budget
        counts = np.bincount(source_of_row[rows], minlength=len(found))
        off = np.abs(counts - len(rows) * np.array(numbers) / len(longest))
        assert off.max() < max(1, num_shares - 1) + 1e-9


@given(sources, seed, st.integers(1, 6))
def test_passes_take_each_pair_once(found: Sources, seed: int, num_epochs: int) -> None:
    """The oracle: what came up to any epoch is whole passes, and of the pass that is begun no pair twice."""
    counts = Counter[int]()
    for number in range(num_epochs):
        plan, longest, source_of_row = plan_of(found, 200, seed, number)
        counts.update(np.concatenate(plan).tolist())
        for source, taken in enumerate(pairs_an_epoch([weight for weight, _ in found], len(longest))):
            rows = np.flatnonzero(source_of_row == source).tolist()
            passes, begun = divmod(taken * (number + 1), len(rows))
            assert Counter(counts[row] - passes for row in rows) == Counter({1: begun, 0: len(rows) - begun})


@given(seed, st.integers(1, 30), st.integers(0, 200), st.integers(0, 100), st.integers(1, 64))
def test_a_draw_is_a_piece_of_one_row(seed: int, size: int, first: int, number: int, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "DRAWN_AT_ONCE", at_once)
        row = draw(seed, 1, size, 0, first + number).tolist()
        assert draw(seed, 1, size, first, number).tolist() == row[first:]
    for start in range(0, len(row) - size + 1, size):
        assert sorted(row[start : start + size]) == list(range(size))


def test_permutations_differ_by_seed_source_and_pass() -> None:
    size = 50
    rows = {tuple(draw(seed, source, size, size * number, size).tolist())
            for seed in (1, 2) for source in (0, 1) for number in (0, 1, 2)}  # fmt: skip
    assert len(rows) == 12


def test_dealt_together_by_hand() -> None:
    assert dealt_together([np.arange(3), np.array([10])]).tolist() == [0, 1, 10, 2]
    assert dealt_together([np.arange(2), 10 + np.arange(4)]).tolist() == [10, 0, 11, 12, 1, 13]


def test_batches_are_of_like_length() -> None:
    """Of equal sources mixing pads as little as no mixing does; of others as little as equal ranks can."""
    generator = np.random.default_rng(3)
    src, tgt = (generator.integers(3, 60, 6000).astype(np.int32) for _ in range(2))
    longest = np.maximum(src, tgt)

    def padding(plan: list[np.ndarray]) -> float:
        cells = sum(len(rows) * longest[rows].max() for rows in plan)
        return cells / longest[np.concatenate(plan)].sum() - 1

    mixed = padding(plan_mixed(src, tgt, [3000, 3000], [1, 1], 1000, 1, 0))
    assert mixed < padding(plan_batches(src, tgt, 1000, 1, 0)) + 0.02
    by_chance = np.split(generator.permutation(6000), 300)
    assert mixed < 0.2 * padding(by_chance)


def test_copies_of_a_pair_seldom_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch passes ten times over the small source, whose pairs would all meet their copies, being of one length."""
    lengths = np.random.default_rng(0).integers(3, 30, 2200).astype(np.int32)

    def copies(smallest_part: int) -> float:
        monkeypatch.setattr(mixing, "SMALLEST_PART", smallest_part)
        plan = plan_mixed(lengths, lengths, [200, 2000], [10, 1], 500, 1, 0)
        return sum(len(rows) - len(set(rows.tolist())) for rows in plan) / 2200

    assert copies(10**6) > 0.3
    assert copies(100) < 0.05


def test_weights_in_a_config(tmp_path: Path) -> None:
    """The plan of a prepared split is that of its sources; the report says what an epoch takes of each."""
    (tmp_path / "more.tsv").write_text("un\tone\ndeux\ttwo\n\tblank\n", encoding="utf-8")
    config = mixed_config(tmp_path, 3, 1)
    data = prepare_data(config)
    number = len(data.train)
    rows = np.concatenate(data.train.plan(64, 3, 1).known())
    more = [row for row in rows if "more.tsv" in data.train.where(int(row))]
    assert len(more) == pairs_an_epoch([3, 1], number)[1]
    assert Counter(more).keys() == {number - 2, number - 1}
    lines = [line for line in report_lines(data) if line.startswith("  weight")]
    assert lines[1] == f"  weight 1: {len(more)} pairs an epoch of {tmp_path}/more.tsv, {len(more) / 2:.2f} times its 2"
    assert math.isclose(float(lines[0].split(", ")[1].split()[0]), (number - len(more)) / (number - 2), abs_tol=0.005)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=5).filter(any), st.sampled_from([1, 1.5, 2, 5, 10**6]))
def test_a_temperature_gives_shares_by_the_formula(sizes: list[int], temperature: float) -> None:
    """p = (n / N)^(1/T) over their sum (Arivazhagan et al. 2019, section 4.2): 1 is proportional, a large T uniform."""
    weights = np.array(weights_by_temperature(sizes, temperature))
    shares = (np.array(sizes) / sum(sizes)) ** (1 / temperature) * (np.array(sizes) > 0)
    np.testing.assert_allclose(weights / weights.sum(), shares / shares.sum(), rtol=1e-9)
    if temperature == 1:
        np.testing.assert_allclose(weights / weights.sum(), np.array(sizes) / sum(sizes))
    if temperature == 10**6:
        np.testing.assert_allclose(weights / weights.sum(), (np.array(sizes) > 0) / np.count_nonzero(sizes), rtol=1e-4)


@pytest.mark.parametrize(("temperature", "wanted"), [(1, 30.0), (2, 50.0), (10**6, 75.0)])
def test_a_temperature_in_a_config(tmp_path: Path, temperature: float, wanted: float) -> None:
    """An epoch of 120 + 30 pairs has so many of the smaller source: 1/5, 1/3 and 1/2 of them."""
    mapping = toy_config(write_toy_corpus(tmp_path)).model_dump()
    mapping["data"]["train"].append({"tsv": "more.tsv"})
    mapping["data"]["temperature"] = temperature
    (tmp_path / "more.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in toy_pairs(30, seed=5)))
    data = prepare_data(RunConfig.model_validate(mapping))
    rows = np.concatenate(data.train.plan(64, 3, 1).known())
    assert len(rows) == 150
    assert sum(row >= 120 for row in rows) == pytest.approx(wanted, abs=1)
    assert data.validation.mixture is None
    (line,) = (line for line in report_lines(data) if "more.tsv, " in line and "an epoch" in line)
    assert line.startswith(f"  {wanted / 150:.1%}: ")


def test_a_source_without_a_pair_that_fits_has_no_share(tmp_path: Path) -> None:
    (tmp_path / "more.tsv").write_text(f"{'long ' * 500}\tlong\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"more\.tsv has weight 1 and not a single pair .* Check the file"):
        prepare_data(mixed_config(tmp_path, 3, 1))
    assert prepare_data(mixed_config(tmp_path, 3, 0)).train.mixture is not None


def mixed_config(folder: Path, *weights: float) -> RunConfig:
    """The toy corpus and `more.tsv`, with these weights."""
    config = toy_config(write_toy_corpus(folder))
    mapping = config.model_dump()
    mapping["data"]["train"].append({"tsv": str(folder / "more.tsv")})
    for source, weight in zip(mapping["data"]["train"], weights, strict=True):
        source["weight"] = weight
    return RunConfig.model_validate(mapping)
