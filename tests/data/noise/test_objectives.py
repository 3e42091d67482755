"""What pre-training hides: slow versions written from the papers, and the shares and lengths that they promise."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.config.sections.noise import NoiseConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.data.noise.bpe_dropout import line_seeds
from transformer_mt.data.noise.objectives import OBJECTIVES, Entries, Lines

MASKS = np.arange(4, 24)
WORDS = np.arange(30, 98)
STOP = 99  # the mark behind a sentence


def lines_of(rows: list[list[int]], seed: int = 1, first: int = 0) -> Lines:
    ids = np.array([i for row in rows for i in row], np.int64)
    lengths = np.array([len(row) for row in rows], np.int64)
    return Lines(ids, lengths, line_seeds((seed,), np.arange(first, first + len(rows))))


def noised(rows: list[list[int]], config: NoiseConfig, **place: int) -> tuple[list[list[int]], list[list[int]]]:
    sides = OBJECTIVES[config.kind](lines_of(rows, **place), config, Entries(MASKS, np.array([STOP]), WORDS))
    src, tgt = ([row.tolist() for row in np.split(ids, np.cumsum(lengths))[:-1]] for ids, lengths in sides)
    return src, tgt


def long_rows(number: int, length: int) -> list[list[int]]:
    return [list(range(100, 100 + length))] * number


LINES = st.lists(st.lists(st.integers(100, 10**6), min_size=1, max_size=40), min_size=1, max_size=6)


@given(LINES, st.sampled_from([0.15, 0.5, 0.9]), st.sampled_from([1.0, 3.0, 10.0]))
def test_spans_put_back_are_the_line(rows: list[list[int]], share: float, mean_length: float) -> None:
    """Masks come in their order, each once on either side, and the target ends with the next one."""
    config = NoiseConfig(kind="spans", share=share, mean_length=mean_length)
    for row, src, tgt in zip(rows, *noised(rows, config), strict=True):
        hidden: dict[int, list[int]] = {}
        mask = -1
        for token in tgt:
            if token in MASKS:
                mask = token
                assert mask not in hidden
                hidden[mask] = []
            else:
                hidden[mask].append(token)
        assert list(hidden) == MASKS[: len(hidden)].tolist()
        assert hidden.pop(tgt[-1]) == []
        assert [token for token in src if token in MASKS] == list(hidden)
        assert all(hidden.values())
        assert [x for token in src for x in hidden.get(token, [token])] == row
        assert not any(a in MASKS and b in MASKS for a, b in itertools.pairwise(src)), "two spans are never one"
        num_hidden = sum(map(len, hidden.values()))
        assert num_hidden == max(1, int(share * len(row) + 0.5))
        asked = max(1, int(num_hidden / mean_length + 0.5))
        assert len(hidden) == min(asked, num_hidden, len(row) - num_hidden + 1, len(MASKS) - 1)


def test_every_way_to_hide_spans_is_as_likely() -> None:
    """8 tokens, 4 hidden in 2 spans: 3 ways to part what is hidden, and 10 to part what is shown."""
    config = NoiseConfig(kind="spans", share=0.5, mean_length=2.0)
    number = 30_000
    found = Counter(map(tuple, noised(long_rows(number, 8), config)[0]))
    assert len(found) == 3 * 10
    expected = number / len(found)
    assert sum((count - expected) ** 2 / expected for count in found.values()) < 64  # chi-squared, 29 degrees: p 2e-4


def test_the_papers_share_and_mean_length() -> None:
    src, tgt = noised(long_rows(200, 100), NoiseConfig(kind="spans"))
    assert {len(row) for row in tgt} == {15 + 5 + 1}
    assert {len(row) for row in src} == {85 + 5}
    infilled, _ = noised(long_rows(200, 100), NoiseConfig(kind="infilling"))
    shown = [sum(token != MASKS[0] for token in row) for row in infilled]
    assert set(shown) == {70}


def slow_infilling(row: list[int], lengths: list[int], is_mask: list[bool]) -> list[int]:
    """The source with spans of these lengths hidden, in this order of masks and tokens that stay."""
    rest, sizes, src = list(row), list(lengths), []
    for hides in is_mask:
        if hides:
            del rest[: sizes.pop(0)]
            src.append(MASKS[0])
        else:
            src.append(rest.pop(0))
    assert not rest
    assert not sizes
    return src


@given(LINES, st.sampled_from([0.1, 0.3, 0.8]), st.sampled_from([1.0, 3.0]))
def test_infilling_hides_the_share_and_keeps_the_rest_in_order(rows, share: float, mean_length: float) -> None:
    config = NoiseConfig(kind="infilling", share=share, mean_length=mean_length, permute_sentences=False)
    rows = [[100 + place for place, _ in enumerate(row)] for row in rows]  # so that a token tells its place
    for row, src, tgt in zip(rows, *noised(rows, config), strict=True):
        num_hidden = int(share * len(row) + 0.5)
        assert tgt == row
        assert len(src) <= len(row)
        shown = [token for token in src if token != MASKS[0]]
        assert shown == sorted(shown)
        assert len(set(shown)) == len(shown) == len(row) - num_hidden
        # The masks between two tokens that are shown hide what lies between them.
        sizes, is_mask, before = [], [], 99
        for token in [*src, 100 + len(row)]:
            if token == MASKS[0]:
                is_mask.append(True)
            else:
                pending = len(list(itertools.takewhile(bool, reversed(is_mask))))
                gap = token - before - 1
                assert pending or gap == 0, "nothing vanishes without a mask"
                sizes += [gap, *[0] * (pending - 1)][:pending]
                is_mask.append(False)
                before = token
        assert slow_infilling(row, sizes, is_mask[:-1]) == src
        assert (num_hidden > 0) == (MASKS[0] in src)


def test_lengths_of_spans_are_poisson() -> None:
    """One mask between two tokens that are shown is one span; spans that touch are not told apart, and are rare here.
    The last span of a line is cut, so of these long lines it is one of a hundred.
    """
    config = NoiseConfig(kind="infilling", share=0.02, permute_sentences=False)
    length = 12_000
    counts: Counter[int] = Counter()
    for src in noised(long_rows(60, length), config)[0]:
        before = 99
        for token, after in itertools.pairwise([*src, 100 + length]):
            if token != MASKS[0]:
                before = token
            elif after != MASKS[0]:
                counts[after - before - 1] += 1
    total = sum(counts.values())
    assert total > 4000
    chance = np.exp(-3.0)
    for size in range(9):
        sigma = (total * chance * (1 - chance)) ** 0.5
        assert abs(counts[size] - total * chance) < 4 * sigma + 0.03 * total * chance, size
        chance *= 3.0 / (size + 1)


def test_sentences_change_places_whole() -> None:
    """All orders of three sentences are as likely; a last one without a mark is a sentence too."""
    config = NoiseConfig(kind="infilling", share=1e-9)
    row = [101, 102, STOP, 103, STOP, 104, 105, 106]
    sentences = ([101, 102, STOP], [103, STOP], [104, 105, 106])
    number = 6000
    src, tgt = noised([row] * number, config)
    assert all(one == row for one in tgt)
    found = Counter(map(tuple, src))
    orders = {tuple(itertools.chain(*order)) for order in itertools.permutations(sentences)}
    assert set(found) == orders
    assert all(abs(count - number / 6) < 4 * (number * 5 / 36) ** 0.5 for count in found.values())


def test_causal_gives_an_empty_source() -> None:
    rows = [[100, 101], [102]]
    assert noised(rows, NoiseConfig(kind="causal")) == ([[], []], rows)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_it_is_a_function_of_seed_and_line_alone(kind: str) -> None:
    rows = [[*range(100, 100 + 5 * n), STOP, *range(200, 210)] for n in range(1, 12)]
    config = NoiseConfig.model_validate({"kind": kind})
    whole = noised(rows, config)
    for number, row in enumerate(rows):
        alone = noised([row], config, first=number)
        assert (alone[0][0], alone[1][0]) == (whole[0][number], whole[1][number])
    assert (noised(rows, config, seed=2) == whole) == (kind == "causal")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "causal", "share": 0.1}, "share has no meaning under kind: causal"),
        ({"kind": "spans", "permute_sentences": True}, "permute_sentences has no meaning under kind: spans"),
        ({"kind": "spans", "mask_share": 0.5}, "mask_share has no meaning under kind: spans"),
        ({"kind": "masked", "mean_length": 3.0}, "mean_length has no meaning under kind: masked"),
        ({"kind": "masked", "random_share": 0.3}, "mask_share 0.8 and random_share 0.3 are more than all"),
    ],
)
def test_what_a_kind_does_not_know_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NoiseConfig.model_validate(settings)


def slow_masked(row: list[int], chosen: set[int], dice: list[float], words: list[int]) -> tuple[list[int], list[int]]:
    """The paper's rule for one line: what becomes of each chosen place by its die, and what is told there."""
    src, tgt = list(row), [PAD_ID] * len(row)
    for place in chosen:
        tgt[place] = row[place]
        if dice[place] < 0.8:
            src[place] = MASKS[0]
        elif dice[place] < 0.9:
            src[place] = words[place]
    return src, tgt


@given(LINES, st.sampled_from([0.01, 0.15, 0.9]))
def test_masked_is_the_papers_rule(rows: list[list[int]], share: float) -> None:
    """Places, dice and words as the line's own random numbers give them, by Python's numbers and one at a time."""
    config = NoiseConfig(kind="masked", share=share)
    lines = lines_of(rows)
    keys = [np.split(lines.keys(draw, lines.lengths), np.cumsum(lines.lengths))[:-1] for draw in range(3)]
    for number, (row, src, tgt) in enumerate(zip(rows, *noised(rows, config), strict=True)):
        of_places, of_dice, of_words = ([int(key) for key in draw[number]] for draw in keys)
        num_chosen = max(1, math.floor(share * len(row) + 0.5))
        chosen = set(sorted(range(len(row)), key=of_places.__getitem__)[:num_chosen])
        words = [int(WORDS[(key >> 32) * len(WORDS) // 2**32]) for key in of_words]
        assert (src, tgt) == slow_masked(row, chosen, [key / 2**64 for key in of_dice], words)


def test_masked_has_the_papers_shares() -> None:
    """15 % of each line; of these 80, 10 and 10 %, within four deviations; every word as likely, none special."""
    number, length = 3000, 100
    src, tgt = (np.array(side) for side in noised(long_rows(number, length), NoiseConfig(kind="masked")))
    told = tgt != PAD_ID
    assert (told.sum(axis=1) == 15).all()
    total = number * 15
    line = np.arange(100, 200)
    kinds = [src == MASKS[0], (src != line) & (src != MASKS[0]), told & (src == line)]
    assert not ((kinds[0] | kinds[1]) & ~told).any(), "nothing else is touched"
    for found, share in zip(kinds, (0.8, 0.1, 0.1), strict=True):
        assert abs(found.sum() - share * total) < 4 * (total * share * (1 - share)) ** 0.5
    by_place = told.sum(axis=0)
    assert abs(by_place - 0.15 * number).max() < 4.5 * (number * 0.15 * 0.85) ** 0.5, "any place is as likely"
    counts = Counter(src[kinds[1]].tolist())
    assert set(counts) == set(WORDS.tolist())
    expected = counts.total() / len(WORDS)
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 120  # 67 degrees: p 1e-4


@pytest.mark.parametrize(("mask", "by_chance"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.3, 0.7)])
def test_masked_takes_other_shares(mask: float, by_chance: float) -> None:
    config = NoiseConfig(kind="masked", share=0.5, mask_share=mask, random_share=by_chance)
    src, tgt = (np.array(side) for side in noised(long_rows(200, 40), config))
    told = tgt != PAD_ID
    assert (told.sum(axis=1) == 20).all()
    assert abs((src == MASKS[0]).sum() / 4000 - mask) < 0.04
    assert abs(np.isin(src, WORDS).sum() / 4000 - by_chance) < 0.04
