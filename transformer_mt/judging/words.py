"""Texts as lists of words, for every script: for lengths, repetitions, differences, and the rarity of words."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import regex

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.sources.kinds import sources_of_pairs
from transformer_mt.data.word_splitting import UNSPACED, has_word
from transformer_mt.errors import UserError

MOST_PAIRS = 1_000_000  # of the training data are counted
# A character of a script without spaces is a word; so is a run of other letters, marks and digits.
_WORD = regex.compile(rf"[{UNSPACED}]\p{{M}}*|[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]+", regex.VERSION1)
_TOKEN = regex.compile(rf"{_WORD.pattern}|[^\s]", regex.VERSION1)


def words_of(text: str) -> list[str]:
    """The words, without punctuation."""
    return _WORD.findall(text)


def tokens_of(text: str) -> list[tuple[int, int]]:
    """Where each word and each mark of punctuation stands: its first character, and the one after its last."""
    return [found.span() for found in _TOKEN.finditer(text)]


@dataclass(frozen=True)
class Frequencies:
    """How often each word comes in some texts. `place` says in words which texts they are; `edges` are the lowest
    counts of the groups of words, from the rarest.
    """

    counts: Counter[str]
    place: str
    edges: tuple[int, ...]

    def group_of(self, word: str) -> int:
        """The number of the group of a word, from 0 for the rarest."""
        count = self.counts[word]
        return max(number for number, edge in enumerate(self.edges) if count >= edge)

    def labels(self) -> list[str]:
        """The counts of each group: `1–9`, `1,000+`."""
        ends = [edge - 1 for edge in self.edges[1:]]
        closed = [f"{a:,}" if a == b else f"{a:,}–{b:,}" for a, b in zip(self.edges, ends, strict=False)]
        return [*closed, f"{self.edges[-1]:,}+"]


def frequencies_in(texts: Iterable[str]) -> Frequencies:
    """The words of the references themselves, where no training data is known."""
    return Frequencies(_counted(texts), "in the references themselves", (0, 1, 2, 5, 20))


def frequencies_of_training(config: RunConfig, lowercase: bool) -> Frequencies:
    """The words of the target side of the run's training pairs, of `MOST_PAIRS` at most, in lower case where texts are
    compared so; text in one language beside the pairs is not counted. UserError where they cannot be read any more.
    """
    counts: Counter[str] = Counter()
    num_pairs = 0
    for source in sources_of_pairs(config.data.train, config.data):
        for block in source.blocks():
            texts = block.tgt[: MOST_PAIRS - num_pairs]
            counts += _counted(text.lower() if lowercase else text for text in texts)
            num_pairs += len(texts)
            if num_pairs == MOST_PAIRS:
                return Frequencies(counts, f"in the first {MOST_PAIRS:,} training pairs", (0, 1, 10, 100, 1000))
    if not counts:
        raise UserError("The run's training data holds no word. Check data.train.")
    return Frequencies(counts, f"in the {num_pairs:,} training pairs", (0, 1, 10, 100, 1000))


def _counted(texts: Iterable[str]) -> Counter[str]:
    return Counter(word for text in texts for word in words_of(text) if has_word(word))
