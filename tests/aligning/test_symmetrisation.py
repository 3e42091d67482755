"""Symmetrisations: a case worked out by hand, a plain rewriting of the published pseudocode, and laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.aligning.symmetrisation import SYMMETRISATIONS, find_symmetrisation, grow_diag_final_and
from transformer_mt.errors import UserError

Links = set[tuple[int, int]]


def test_by_hand() -> None:
    """From (1, 1), in both: (2, 2) and then (3, 3) and (3, 4) are neighbours one after the other, and (1, 2) is none
    that is wanted, because both its words have a link by then. (6, 0) touches nothing, and both its words are free, so
    it comes at the end. So would (6, 8) have, but word 6 is taken by then; and (0, 5), of which word 5 is free and
    word 0 too, comes from the other direction.
    """
    forward = {(1, 1), (2, 2), (1, 2), (3, 3), (6, 0), (6, 8)}
    backward = {(1, 1), (3, 4), (0, 5)}
    grown = {(1, 1), (1, 2), (2, 2), (3, 3), (3, 4)}
    # (1, 2) is visited before (2, 2), and its target word is free at that moment.
    assert grow_diag_final_and(forward, backward) == grown | {(6, 0), (0, 5)}


def test_a_neighbour_between_two_linked_words_is_left_out() -> None:
    assert grow_diag_final_and({(0, 0), (1, 1), (0, 1)}, {(0, 0), (1, 1)}) == {(0, 0), (1, 1)}


def by_the_pseudocode(forward: Links, backward: Links) -> Links:
    """Koehn, Och and Marcu (2003) as it is written down, over the whole matrix again and again."""
    union, found = forward | backward, forward & backward
    size = 1 + max((max(link) for link in union), default=0)
    is_free = {0: lambda i: all(link[0] != i for link in found), 1: lambda j: all(link[1] != j for link in found)}
    while True:
        before = len(found)
        for i in range(size):
            for j in range(size):
                if (i, j) not in found:
                    continue
                for near in ((i - 1, j), (i, j - 1), (i + 1, j), (i, j + 1),
                             (i - 1, j - 1), (i - 1, j + 1), (i + 1, j - 1), (i + 1, j + 1)):  # fmt: skip
                    if near in union and near not in found and (is_free[0](near[0]) or is_free[1](near[1])):
                        found.add(near)
        if len(found) == before:
            break
    for direction in (forward, backward):
        for i, j in sorted(direction):
            if is_free[0](i) and is_free[1](j):
                found.add((i, j))
    return found


FUNCTIONS = st.dictionaries(st.integers(0, 6), st.integers(0, 6))  # each word has at most one link


@given(FUNCTIONS, FUNCTIONS)
def test_between_intersection_and_union_as_published(tgt_to_src: dict[int, int], src_to_tgt: dict[int, int]) -> None:
    forward, backward = {(i, j) for j, i in tgt_to_src.items()}, set(src_to_tgt.items())
    found = grow_diag_final_and(set(forward), set(backward))
    assert SYMMETRISATIONS["intersection"](forward, backward) <= found <= SYMMETRISATIONS["union"](forward, backward)
    assert found == by_the_pseudocode(forward, backward)
    assert grow_diag_final_and(forward, forward) == forward
    free = (
        {i for i, _ in forward | backward} - {i for i, _ in found},
        {j for _, j in forward | backward} - {j for _, j in found},
    )
    assert not any(i in free[0] and j in free[1] for i, j in forward | backward)


def test_another_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"no symmetrisation 'gdf'. Use grow-diag-final-and, intersection, union\."):
        find_symmetrisation("gdf")
