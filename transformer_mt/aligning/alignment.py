"""The alignment of one sentence pair."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_mt.aligning.words import Word
from transformer_mt.data.word_splitting import has_word

HardLinks = list[tuple[int, int]]
SoftLinks = list[tuple[int, int, float]]
Matrix = NDArray[np.float64]
LEAST_SHOWN = 0.01  # probabilities below it are left out of a soft alignment's text


@dataclass(frozen=True)
class Alignment:
    """Which words of a pair translate each other.

    `links` holds (index into `src_words`, index into `tgt_words`), in ascending order. A pair with a blank side has
    none, and neither has one that is `too_long` to be aligned.
    """

    links: list[tuple[int, int]]
    src_words: list[Word]
    tgt_words: list[Word]
    too_long: bool = False

    def white_space_links(self) -> HardLinks:
        """The links between white-space words, both counted from 0.

        A mark that is attached to a word, such as a comma, links nothing: the comma of "yes, sir" would link "yes" to
        another word.
        """
        src, tgt = _attached(self.src_words), _attached(self.tgt_words)
        chunks = {
            (self.src_words[i].chunk, self.tgt_words[j].chunk)
            for i, j in self.links
            if not ((src[i] and tgt[j]) or (src[i] and has_word(self.tgt_words[j].text))
                    or (tgt[j] and has_word(self.src_words[i].text)))
        }  # fmt: skip
        return sorted(chunks)

    def pharaoh(self) -> str:
        """The links between white-space words as text."""
        return pharaoh(self.white_space_links())


def soft_links(
    src_words: list[Word], tgt_words: list[Word], forward: Matrix, backward: Matrix | None = None
) -> SoftLinks:
    """The probability that a target white-space word and a source white-space word translate each other: (source,
    target, probability), in ascending order.

    `forward` (tgt words, src words) are the probabilities that a source word explains a target word, in which no row
    sums to more than one, and `backward`, of the same shape, those of the other direction, in which no column does. The
    result is the mean of both, each taken over white-space words by itself. Those below `LEAST_SHOWN` are left out.
    """
    if not src_words or not tgt_words:
        return []
    found = _of_white_space_words(tgt_words, src_words, forward).T
    if backward is not None:
        found = (found + _of_white_space_words(src_words, tgt_words, backward.T)) / 2
    found = np.minimum(found, 1)  # a sum may be rounded up
    return [(i, j, float(found[i, j])) for i, j in np.argwhere(found >= LEAST_SHOWN).tolist()]


def pharaoh(links: HardLinks | SoftLinks) -> str:
    """`0-0 1-2`: source and target word of each link, in the format of the decoder Pharaoh. Soft links have their
    probability too: `0-0:0.98 1-2:0.71`.
    """
    return " ".join(f"{i}-{j}" + "".join(f":{p:.2f}" for p in probability) for i, j, *probability in links)


def _of_white_space_words(explained: list[Word], explaining: list[Word], probabilities: Matrix) -> Matrix:
    """Probabilities (explained words, explaining words) -> those of their white-space words: the mean over the
    explained words of the sum over the explaining ones. Marks attached to words need no explanation.
    """
    is_kept = ~np.array(_attached(explained))
    chunks = np.array([word.chunk for word in explained])[is_kept]
    _, first, sizes = np.unique(chunks, return_index=True, return_counts=True)
    _, first_explaining = np.unique([word.chunk for word in explaining], return_index=True)
    summed = np.add.reduceat(probabilities[is_kept], first_explaining, axis=1)
    return np.add.reduceat(summed, first, axis=0) / sizes[:, None]


def _attached(words: list[Word]) -> list[bool]:
    """Whether each word is a mark within a white-space word that has letters or digits."""
    lettered = {word.chunk for word in words if has_word(word.text)}
    return [word.chunk in lettered and not has_word(word.text) for word in words]
