"""Word alignments of sentence pairs, by a model of each direction that was trained on pairs.

from transformer_mt.aligning.aligner import Aligner
Aligner.train([("the cat", "el gato"), ("the dog", "el perro")]).align([("the cat", "el gato")])[0].pharaoh()
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from transformer_mt.aligning.aligner_files import read_aligner, write_aligner
from transformer_mt.aligning.alignment import Alignment, Matrix, SoftLinks, soft_links
from transformer_mt.aligning.bitext import MAX_WORDS, Bitext, Side, read_bitext
from transformer_mt.aligning.diagonal_model import DiagonalModel, Floats, Settings, best_words, train_model
from transformer_mt.aligning.lexical_table import FLOOR
from transformer_mt.aligning.symmetrisation import DEFAULT, find_symmetrisation
from transformer_mt.aligning.words import Vocabulary, Word, normal_form, words_of
from transformer_mt.errors import UserError
from transformer_mt.storage.files import replace_folder

Pair = tuple[str, str]
SplitPair = tuple[list[Word], list[Word]]
Found = TypeVar("Found")
_CELLS_AT_ONCE = 2**22  # pairs of words that are scored at a time: 32 MB


@dataclass(frozen=True)
class _Batch:
    """Some pairs that can be aligned, as numbers, and their places among all pairs."""

    places: list[int]
    bitext: Bitext
    forms: tuple[NDArray[np.int32], NDArray[np.int32]]  # equal numbers: words that are written alike


class Aligner:
    """A trained aligner. `forward` explains target words by source words, `backward` the other way round."""

    def __init__(self, src: Vocabulary, tgt: Vocabulary, forward: DiagonalModel, backward: DiagonalModel) -> None:
        self.src_vocabulary = src
        self.tgt_vocabulary = tgt
        self.forward = forward
        self.backward = backward

    @classmethod
    def train(
        cls, pairs: Iterable[Pair], *, num_iterations: int = 5, progress: Callable[[], object] = lambda: None
    ) -> "Aligner":
        """An aligner of these pairs, which are read once. `progress` is called after each iteration of each direction.

        Pairs with a blank side, or with more than `MAX_WORDS` words on a side, are left out. Raises UserError where
        none is left.
        """
        settings = Settings(num_iterations)
        src, tgt = Vocabulary(), Vocabulary()
        bitext = read_bitext(pairs, src, tgt)
        if not len(bitext):
            raise UserError(
                "There is no pair to learn alignments from: all have a blank side, or more than "
                f"{MAX_WORDS:,} words on one. Give others."
            )

        def trained(direction: tuple[Bitext, int, int]) -> DiagonalModel:
            return train_model(*direction, settings, progress)[0]

        directions = (bitext, len(src), len(tgt)), (bitext.reversed(), len(tgt), len(src))
        # Compiled loops leave Python's lock to each other.
        with ThreadPoolExecutor(min(len(directions), torch.get_num_threads())) as pool:
            forward, backward = pool.map(trained, directions)
        return cls(src, tgt, forward, backward)

    def save(self, folder: Path) -> None:
        """Write the folder, whole or not at all, in the place of an aligner that it holds. Raises OSError."""
        vocabularies = self.src_vocabulary.words, self.tgt_vocabulary.words
        replace_folder(folder, lambda new: write_aligner(new, vocabularies, (self.forward, self.backward)))

    @classmethod
    def load(cls, folder: Path) -> "Aligner":
        """The aligner that `save` wrote. UserError where a file is missing or was changed."""
        (src, tgt), (forward, backward) = read_aligner(folder)
        return cls(Vocabulary(src), Vocabulary(tgt), forward, backward)

    def align(self, pairs: Sequence[Pair], symmetrise: str = DEFAULT) -> list[Alignment]:
        """The alignment of each pair, in order. `symmetrise` is a name of `SYMMETRISATIONS`.

        A word that was not seen in training is aligned by its place alone, unless a word of the other side is written
        alike. Raises UserError for another name.
        """
        symmetrisation = find_symmetrisation(symmetrise)
        split = _split(pairs)
        found = [Alignment([], src, tgt, too_long=max(len(src), len(tgt)) > MAX_WORDS) for src, tgt in split]
        for batch in self._batches(split):
            forward, backward = self._of_both(batch, best_words)
            sides = _sentences(forward, batch.bitext.tgt), _sentences(backward, batch.bitext.src)
            for place, of_tgt, of_src in zip(batch.places, *sides, strict=True):
                links = symmetrisation(
                    {(i, j) for j, i in enumerate(of_tgt) if i >= 0}, {(i, j) for i, j in enumerate(of_src) if j >= 0}
                )
                found[place] = Alignment(sorted(links), *split[place])
        return found

    def posteriors(self, pairs: Sequence[Pair]) -> list[tuple[Matrix, Matrix]]:
        """A soft alignment of each pair by each direction, both (tgt words, src words).

        The first has the probability that a source word explains a target word: a row sums to one less the probability
        that none does. The second is that of the other direction, in which columns do so. A pair that has a blank side,
        or is too long to be aligned, has zeros, which take no memory and cannot be written to.
        """
        split = _split(pairs)
        found = [(nothing, nothing) for nothing in (np.broadcast_to(0.0, (len(tgt), len(src))) for src, tgt in split)]
        for place, both in self._posteriors(split):
            found[place] = both
        return found

    def soft_links(self, pairs: Sequence[Pair]) -> list[SoftLinks]:
        """The soft links of each pair between white-space words, by the mean of both directions. A pair that has a
        blank side, or is too long to be aligned, has none.
        """
        split = _split(pairs)
        found: list[SoftLinks] = [[] for _ in split]
        for place, both in self._posteriors(split):
            found[place] = soft_links(*split[place], *both)
        return found

    def translations(self, word: str, n: int) -> list[tuple[str, float]]:
        """The n likeliest target words of a source word, in lower case, with their probabilities, likeliest first.

        None for a word that was not seen in training. Upper and lower case are the same.
        """
        (number,) = self.src_vocabulary.find([normal_form(word)])
        if number < 0:
            return []
        columns, values = self.forward.table.row(number)
        best = np.argsort(-values, kind="stable")[:n]
        return [(self.tgt_vocabulary.words[columns[k]], float(values[k])) for k in best.tolist()]

    def probability_of(self, is_wanted: Callable[[str], bool]) -> NDArray[np.float64]:
        """The probability that each source word, by its number, translates to a target word that is wanted."""
        wanted = np.array([is_wanted(word) for word in self.tgt_vocabulary.words])
        row_starts, columns, values = self.forward.table.arrays
        rows = np.repeat(np.arange(len(row_starts) - 1), np.diff(row_starts))
        of_wanted = np.bincount(rows, values * wanted[columns], len(row_starts) - 1)
        return of_wanted / np.maximum(np.bincount(rows, values, len(row_starts) - 1), FLOOR)

    def _posteriors(self, split: Sequence[SplitPair]) -> Iterator[tuple[int, tuple[Matrix, Matrix]]]:
        """`posteriors` of the pairs that can be aligned, each with its place. The matrices of a chunk of long lines
        would take gigabytes: they are made one after the other, from the scores of a batch.
        """
        for batch in self._batches(split):
            for place, one, other in zip(batch.places, *self._of_both(batch, _matrices), strict=True):
                yield place, (one, other.T)

    def _of_both(self, batch: _Batch, found_by: Callable[[Bitext, Floats, Floats], Found]) -> tuple[Found, Found]:
        """What a function finds in the scores of each direction."""
        bitext, (src_forms, tgt_forms) = batch.bitext, batch.forms
        forward = found_by(bitext, *self.forward.scores(bitext, src_forms, tgt_forms))
        bitext = bitext.reversed()
        return forward, found_by(bitext, *self.backward.scores(bitext, tgt_forms, src_forms))

    def _batches(self, split: Sequence[SplitPair]) -> Iterator[_Batch]:
        """The pairs that can be aligned, a bounded number of pairs of words at a time."""
        places, num_cells = [], 0
        for place, (src, tgt) in enumerate(split):
            if not 0 < len(src) <= MAX_WORDS or not 0 < len(tgt) <= MAX_WORDS:
                continue
            places.append(place)
            num_cells += len(src) * len(tgt)
            if num_cells >= _CELLS_AT_ONCE:
                yield self._batch(places, split)
                places, num_cells = [], 0
        if places:
            yield self._batch(places, split)

    def _batch(self, places: list[int], split: Sequence[SplitPair]) -> _Batch:
        words = [split[place] for place in places]
        numbers: dict[str, int] = {}
        sides, forms = [], []
        for side, vocabulary in enumerate((self.src_vocabulary, self.tgt_vocabulary)):
            normal = [[normal_form(word.text) for word in pair[side]] for pair in words]
            sides.append(Side.of([vocabulary.find(sentence) for sentence in normal]))
            flat = [numbers.setdefault(form, len(numbers)) for sentence in normal for form in sentence]
            forms.append(np.array(flat, np.int32))
        return _Batch(places, Bitext(*sides), (forms[0], forms[1]))


def _sentences(numbers: NDArray[np.int32], side: Side) -> Iterator[list[int]]:
    """The numbers of each sentence."""
    return (part.tolist() for part in np.split(numbers, side.starts[1:-1]))


def _split(pairs: Sequence[Pair]) -> list[SplitPair]:
    return [(words_of(src), words_of(tgt)) for src, tgt in pairs]


def _matrices(bitext: Bitext, scores: NDArray[np.float64], nothing: NDArray[np.float64]) -> Iterator[Matrix]:
    """Probabilities from the scores, a matrix (tgt words, src words) for each pair."""
    lengths = zip(bitext.tgt.lengths.tolist(), bitext.src.lengths.tolist(), strict=True)
    cells = np.cumsum(bitext.src.lengths * bitext.tgt.lengths)[:-1]
    for shape, part, null in zip(
        lengths, np.split(scores, cells), np.split(nothing, bitext.tgt.starts[1:-1]), strict=True
    ):
        matrix = part.reshape(shape)
        yield matrix / (matrix.sum(axis=1) + null)[:, None]
