"""Dynamic beam allocation against brute force over a tiny vocabulary, and its laws."""

import itertools
import math
from collections.abc import Sequence

import pytest
from languages import drop_as_on_a_gpu
from test_search import CPU, PLAIN, A, B, C, Table, enumerate_all, random_table
from translators import rules

from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.decoding.search.constrained_beam import Found, constrained_beam_search
from transformer_mt.decoding.search.constraints import Constraints
from transformer_mt.decoding.search.options import LengthNorm
from transformer_mt.decoding.search.rules import Demand, WordEdges, Writing, make_rules
from transformer_mt.errors import UserError

Phrases = Sequence[Sequence[tuple[int, ...]]]
LIMIT = 5
NORMS = [PLAIN, LengthNorm("gnmt", 0.6), LengthNorm("average", 1.0)]


def demand(phrases: Phrases, prefix: tuple[int, ...] = ()) -> Demand:
    return Demand(prefix, constraints=tuple(tuple(Writing(way) for way in phrase) for phrase in phrases))


def search(
    tables: list,
    demands: list[Demand],
    size: int,
    norm: LengthNorm = PLAIN,
    n_best: int = 1,
    ordered: bool = False,
    limits: list[int] | None = None,
    **changes: int,
) -> list[Found]:
    options = rules(size, n_best, norm).model_copy(update=changes)
    limits = limits or [LIMIT] * len(tables)
    constraints = Constraints(demands, ordered, WordEdges(), CPU)
    return constrained_beam_search(
        Table(tables), limits, options, CPU, constraints, make_rules(options, limits, demands, (), CPU)
    )


def holds(tokens: tuple[int, ...], phrases: Phrases, ordered: bool) -> bool:
    choices = [
        [(i, i + len(way)) for way in phrase for i in range(len(tokens)) if tokens[i : i + len(way)] == way]
        for phrase in phrases
    ]
    placed = (places if ordered else sorted(places) for places in itertools.product(*choices))
    return any(
        all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(places))  # none within another
        for places in placed
    )


PHRASES = [
    [[(A,)]],
    [[(C, B)]],
    [[(A,)], [(C,)]],
    [[(B, B)], [(A,)]],
    [[(A,)], [(A,)]],
    [[(A,)], [(A, B)]],
    [[(A, B), (C, C)]],
    [[(C,), (B,)], [(A, A)]],
    [[(A, B)], [(B, C)]],
    [[(A, A)], [(A, A)]],
    [[(A,)], [(B,)], [(A, B)]],
    [[(A, B), (A,)], [(B,)]],  # in "A B" the second way of the first
    [],
]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("phrases", PHRASES)
def test_a_wide_beam_finds_the_best_of_all_that_hold_the_phrases(phrases: Phrases, ordered: bool) -> None:
    for seed, norm in enumerate(NORMS):
        table = random_table(seed, LIMIT)
        expected = enumerate_all(table, LIMIT, norm, lambda tokens: holds(tokens, phrases, ordered))
        (found,) = search([table], [demand(phrases)], 400, norm, n_best=8, ordered=ordered)
        assert [h.tokens for h in found.hypotheses] == [tokens for _, tokens in expected[:8]]
        for hypothesis, (score, _) in zip(found.hypotheses, expected, strict=False):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("size", [1, 2, 5, 10])
@pytest.mark.parametrize("phrases", PHRASES)
def test_all_phrases_are_there_however_narrow_the_beam(phrases: Phrases, size: int) -> None:
    tables = [random_table(seed, LIMIT) for seed in range(4)]
    for found in search(tables, [demand(phrases)] * 4, size, NORMS[1], n_best=size):
        assert found.unmet == ()
        assert found.hypotheses
        for hypothesis in found.hypotheses:
            assert holds(tuple(hypothesis.tokens), phrases, ordered=False)


@pytest.mark.parametrize("on_a_gpu", [False, True])
def test_a_batch_is_its_sentences_one_by_one(on_a_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if on_a_gpu:
        drop_as_on_a_gpu(monkeypatch)
    tables = [random_table(seed, LIMIT) for seed in range(len(PHRASES))]
    demands = [demand(phrases) for phrases in PHRASES]
    limits = [3 + seed % 3 for seed in range(len(PHRASES))]
    for size in (1, 3, 6):
        together = search(tables, demands, size, NORMS[1], n_best=size, limits=limits)
        for found, table, one, limit in zip(together, tables, demands, limits, strict=True):
            assert search([table], [one], size, NORMS[1], n_best=size, limits=[limit]) == [found]


# Without the phrase C the text is "A B". With it "A C" (0.95 * 0.08 * 0.5) is better than "C" (0.05 * 0.5), which a
# search that writes its phrases at once would find.
LATE = {
    (): {A: 0.95, C: 0.05}, (A,): {B: 0.92, C: 0.08}, (A, B): {EOS_ID: 0.99, C: 0.01}, (A, C): {EOS_ID: 0.5, B: 0.5},
    (C,): {EOS_ID: 0.5, A: 0.5},
}  # fmt: skip


def test_a_phrase_stands_where_it_is_likeliest() -> None:
    for size in (2, 5):
        (found,) = search([LATE], [demand([[(C,)]])], size)
        assert found.hypotheses[0].tokens in ([A, C], [A, C, B])
        assert found.hypotheses[0].log_prob == pytest.approx(math.log(0.95 * 0.08 * 0.5), abs=1e-5)


class _Drawling(dict):
    """A language that writes A again and again. B and B follow C in half of its texts, and then they end."""

    def get(self, prefix: tuple[int, ...], _default: object = None) -> dict[int, float]:
        after = prefix[prefix.index(C) :] if C in prefix else ()
        begun = {(): {A: 0.98, C: 0.02}, (C,): {B: 0.5, A: 0.5}, (C, B): {B: 1.0}, (C, B, B): {EOS_ID: 1.0}}
        return begun.get(after, {A: 1.0})


@pytest.mark.parametrize(("changes", "steps"), [({}, 5), ({"patience": 2}, 7), ({"n_best": 3}, 6)])
def test_hypotheses_that_lack_much_keep_no_sentence_waiting(changes: dict[str, int], steps: int) -> None:
    """A text of A alone stands better at every length. Half of the beam's places are enough, times `patience`: the
    phrase ends at the fourth step, and at each behind it, one A later.
    """
    demands, limits, decoder = [demand([[(C, B, B)]])], [30], Table([_Drawling()])
    options = rules(4, 1, PLAIN).model_copy(update=changes)
    constraints = Constraints(demands, False, WordEdges(), CPU)
    (found,) = constrained_beam_search(decoder, limits, options, CPU, constraints, None)
    assert found.hypotheses[0].tokens == [C, B, B]
    assert len(decoder.num_rows_fed) == steps


def test_a_phrase_of_the_prefix_counts() -> None:
    table = random_table(3, LIMIT)
    demands = [demand([[(B, C)]], (A, B, C)), demand([[(B, C)], [(A,)]], (A, B, C))]
    for found in search([table, table], demands, 3):
        assert found.hypotheses[0].tokens[:3] == [A, B, C]
        assert found.unmet == ()


@pytest.mark.parametrize("limit", [LIMIT, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_output_that_is_not_a_number_is_a_user_error(bad: float, limit: int) -> None:
    """In the last step, too, where nothing but the end may come."""
    tables = [random_table(seed, LIMIT) for seed in range(2)]
    tables[1][A,] = {B: bad, C: 0.5, EOS_ID: 0.5}
    with pytest.raises(UserError, match="not a number"):
        search(tables, [demand([[(A,)]])] * 2, 3, limits=[limit] * 2)


def test_what_cannot_be_met_is_told() -> None:
    """Two bigrams of the phrases are the same, and none may come twice."""
    table = random_table(5, LIMIT)
    (found,) = search([table], [demand([[(A, B)], [(C,)], [(A, B)]])], 4, limits=[9], no_repeat_ngram_size=2)
    assert found == Found([], (2,))


def test_the_smallest_length_holds_too() -> None:
    (found,) = search([random_table(1, LIMIT)], [demand([[(A,)]])], 3, n_best=3, min_length=3)
    assert all(len(h.tokens) >= 3 and A in h.tokens for h in found.hypotheses)
