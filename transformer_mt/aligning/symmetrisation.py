"""One alignment out of those of both directions, by names of the field.

A link is (place in the source, place in the target), from 0. `forward` gives each target word at most one source word,
`backward` each source word at most one target word.
"""

from bisect import bisect_right, insort
from collections.abc import Callable
from itertools import chain

from transformer_mt.errors import UserError

Link = tuple[int, int]
Symmetrisation = Callable[[set[Link], set[Link]], set[Link]]
DEFAULT = "grow-diag-final-and"
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag_final_and(forward: set[Link], backward: set[Link]) -> set[Link]:
    """From the intersection towards the union (Och and Ney 2003; Koehn, Och and Marcu 2003).

    First, links of the union that are neighbours of one that is taken already, diagonally too, and of which one word
    has no link yet, are added until there are none. Then come those of which both words have no link yet, first of the
    forward direction. Links are visited in order of their source word.
    """
    taken = sorted(forward & backward)
    src, tgt = {i for i, _ in taken}, {j for _, j in taken}
    waiting = (forward | backward).difference(taken)

    def take(link: Link) -> None:
        insort(taken, link)
        waiting.remove(link)
        src.add(link[0])
        tgt.add(link[1])

    grown = True
    has_neighbour = {(i + di, j + dj) for i, j in waiting for di, dj in _NEIGHBOURS}  # most links have none that waits
    while grown and waiting:
        grown, index = False, 0
        while index < len(taken):
            link = taken[index]
            if link in has_neighbour:
                for near in [(link[0] + di, link[1] + dj) for di, dj in _NEIGHBOURS]:
                    if near in waiting and (near[0] not in src or near[1] not in tgt):
                        take(near)
                        grown = True
            index = bisect_right(taken, link)
    for link in chain(sorted(forward), sorted(backward)):
        if link in waiting and link[0] not in src and link[1] not in tgt:
            take(link)
    return set(taken)


SYMMETRISATIONS: dict[str, Symmetrisation] = {
    DEFAULT: grow_diag_final_and,
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
}


def find_symmetrisation(name: str) -> Symmetrisation:
    """The entry of this name. UserError where there is none."""
    if name not in SYMMETRISATIONS:
        raise UserError(f"There is no symmetrisation {name!r}. Use {', '.join(SYMMETRISATIONS)}.")
    return SYMMETRISATIONS[name]
