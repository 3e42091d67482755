"""Where elements of a source stand in its translation, by the alignment of the words."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformer_mt.markup.marked import Element

Span = tuple[int, int]  # of characters or of words: the first, and the one after the last


@dataclass(frozen=True)
class WordLinks:
    """The words of a source and of its translation, as spans of characters, and which translate which."""

    src_words: Sequence[Span]
    tgt_words: Sequence[Span]
    links: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Placed:
    """An element around the target words `first` to `end`, or before the word `first` where these are equal."""

    element: Element
    first: int
    end: int
    inner: list["Placed"]


def place_elements(elements: Sequence[Element], words: WordLinks) -> list[Placed]:
    """Every element once, in the order of the translation, side by side or one in the other.

    An element stands around the stretch of words where the most are linked to its own words and the fewest to others.
    One whose words have no translation stands around none, between the translations of its neighbours, and so does a
    point.
    """
    return _Placing(words).place(elements, range(len(words.src_words)), (0, len(words.tgt_words)))


class _Placing:
    def __init__(self, words: WordLinks) -> None:
        self.words = words
        self.src_of: list[list[int]] = [[] for _ in words.tgt_words]
        self.tgt_of: list[list[int]] = [[] for _ in words.src_words]
        for i, j in words.links:
            self.src_of[j].append(i)
            self.tgt_of[i].append(j)

    def place(self, elements: Sequence[Element], own: range, region: Span) -> list[Placed]:
        """The elements within the words `own` of the source and `region` of the translation."""
        found: list[tuple[Element, range, Span | None]] = []
        free = [region]
        for element in elements:
            covered = self._covered(element, own)
            # One around all words has all of the region, but for what a neighbour has that touches the same word.
            is_all = covered == own and len(own) > 0 and free == [region]
            span = region if is_all else self._best_span(covered, free)
            if span is not None:
                free = _without(free, span)
            found.append((element, covered, span))
        taken = [span for _, _, span in found if span is not None]
        placed = []
        for element, covered, span in found:
            if span is None:
                place = _outside(self._boundary(element, own, region), taken)
                span = place, place
            placed.append(Placed(element, *span, self.place(element.inner, covered, span)))
        return sorted(placed, key=lambda one: (one.first, one.end))

    def _covered(self, element: Element, own: range) -> range:
        """Those of these words that the element touches."""
        first = bisect_right(self.words.src_words, element.start, key=lambda span: span[1])
        end = bisect_left(self.words.src_words, element.end, key=lambda span: span[0])
        first, end = max(first, own.start), min(end, own.stop)
        return range(first, end) if first < end else range(own.start, own.start)

    def _best_span(self, covered: range, free: Sequence[Span]) -> Span | None:
        """The stretch with the largest sum of agreement, in which each word counts from -1 to 1."""
        if not covered or not free:
            return None
        linked = [j for i in covered for j in self.tgt_of[i]]
        outer = range(min(linked), max(linked) + 1) if linked else range(0)  # the rest agrees with nothing here
        best_sum, best = 0.0, None
        for first, end in free:
            first, end = max(first, outer.start), min(end, outer.stop)
            total, start = 0.0, first
            for j in range(first, end):
                if total <= 0:
                    total, start = 0.0, j
                total += self._agreement(j, covered)
                if total > best_sum:
                    best_sum, best = total, (start, j + 1)
        return best or self._unlinked_between(covered, free)

    def _agreement(self, j: int, covered: range) -> float:
        """How many of the links of a target word go to these source words, less those that go elsewhere, as a share."""
        linked = self.src_of[j]
        return sum(1 if i in covered else -1 for i in linked) / len(linked) if linked else 0.0

    def _unlinked_between(self, covered: range, free: Iterable[Span]) -> Span | None:
        """The words without links between the translations of the neighbours, for source words without links."""
        if any(self.tgt_of[i] for i in covered):
            return None
        before = next((max(self.tgt_of[i]) for i in reversed(range(covered.start)) if self.tgt_of[i]), -1)
        after = next(
            (min(self.tgt_of[i]) for i in range(covered.stop, len(self.tgt_of)) if self.tgt_of[i]), len(self.src_of)
        )
        for first, end in free:
            between = range(max(first, before + 1), min(end, after))
            start = next((j for j in between if not self.src_of[j]), None)
            if start is not None:
                return start, next((j for j in range(start, between.stop) if self.src_of[j]), between.stop)
        return None

    def _boundary(self, point: Element, own: range, region: Span) -> int:
        """Before which word of the region a point stands: as it does in the source, next to the nearest linked word."""
        split = bisect_left(self.words.src_words, point.start, key=lambda span: span[0])
        before, after = range(own.start, min(split, own.stop)), range(max(split, own.start), own.stop)
        if not before or not after or not self.words.links:
            return region[1] if before else region[0]
        sides = ((i, True) for i in after), ((i, False) for i in reversed(before))  # as far as they are looked at
        touches_last = point.space_after and not point.space_before
        for pair in zip(*(reversed(sides) if touches_last else sides), strict=False):
            for i, is_after in pair:
                inside = [j for j in self.tgt_of[i] if region[0] <= j < region[1]]
                if inside:
                    return min(inside) if is_after else max(inside) + 1
        return region[1]


def _without(free: Iterable[Span], span: Span) -> list[Span]:
    parts = []
    for first, end in free:
        parts += [(first, min(end, span[0])), (max(first, span[1]), end)]
    return [(first, end) for first, end in parts if first < end]


def _outside(place: int, spans: Iterable[Span]) -> int:
    """The place nearest to this one that is within no span."""
    for first, end in spans:
        if first < place < end:
            return first if place - first <= end - place else end
    return place
