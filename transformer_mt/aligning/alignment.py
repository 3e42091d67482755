"""The alignment of one sentence pair."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_mt.aligning.words import Word
from transformer_mt.data.word_splitting import has_word

HardLinks = list[tuple[int, int]]
SoftLinks = list[tuple[int, int, float]]
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


def soft_links(alignment: Alignment, posteriors: NDArray[np.float64]) -> SoftLinks:
    """The probability that a target white-space word translates a source white-space word: (source, target,
    probability), in ascending order.

    `posteriors` (tgt words, src words) are those of `Aligner.posteriors`. That of a white-space word is the mean over
    its words, of the sum over the source words; marks attached to words do not count. Those below `LEAST_SHOWN` are
    left out.
    """
    src = [word.chunk for word in alignment.src_words]
    kept = ~np.array(_attached(alignment.tgt_words), bool)
    tgt = np.array([word.chunk for word in alignment.tgt_words], int)[kept]
    if not src or not len(tgt):
        return []
    summed = np.add.reduceat(posteriors[kept], np.unique(src, return_index=True)[1], axis=1)
    chunks, first, sizes = np.unique(tgt, return_index=True, return_counts=True)
    means = np.add.reduceat(summed, first, axis=0) / sizes[:, None]
    shown = np.argwhere(means.T >= LEAST_SHOWN).tolist()
    return [(i, int(chunks[j]), float(means[j, i])) for i, j in shown]


def pharaoh(links: HardLinks | SoftLinks) -> str:
    """`0-0 1-2`: source and target word of each link, in the format of the decoder Pharaoh. Soft links have their
    probability too: `0-0:0.98 1-2:0.71`.
    """
    return " ".join(f"{i}-{j}" + "".join(f":{p:.2f}" for p in probability) for i, j, *probability in links)


def _attached(words: list[Word]) -> list[bool]:
    """Whether each word is a mark within a white-space word that has letters or digits."""
    lettered = {word.chunk for word in words if has_word(word.text)}
    return [word.chunk in lettered and not has_word(word.text) for word in words]
