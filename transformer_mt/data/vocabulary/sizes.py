"""The size of a vocabulary: what several sizes make of a corpus, and the one that `tokenizer.vocab_size: auto` takes.

A model learns an entry from its occurrences, and a short sentence from few tokens. Gowda and May 2020 ("Finding the
optimal vocabulary size for neural machine translation", section 6) weigh the two by a rule: take the largest vocabulary
of which 95 % of the entries occur 100 times or more. A corpus of some thousand pairs has no such size, and then the
smallest is taken.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import SPECIAL_TOKENS, UNK_ID
from transformer_mt.data.make_tokenizers import train_tokenizers
from transformer_mt.data.tokenizers import Tokenizer

SIZES = (1000, 2000, 4000, 8000, 16000, 32000)
FREQUENT, ENOUGH = 100, 0.95
MEASURED_PAIRS = 10**6  # the first: more would change little

Texts = Callable[[int], Iterable[list[str]]]  # of the sources (0) or of the targets (1), some thousand at a time


@dataclass(frozen=True)
class Measured:
    """What a vocabulary of `size` makes of a corpus: the entries that it has, tokens a sentence, the share of tokens
    that are one character or less, and of those that are unknown, each of source and target.

    `frequent` is the share of entries with `FREQUENT` occurrences among those that occur, of the worse vocabulary.
    """

    size: int
    entries: tuple[int, int]
    tokens: tuple[float, float]
    single: tuple[float, float]
    unknown: tuple[float, float]
    frequent: float

    def told(self, figures: tuple[float, float], form: str) -> str:
        """The figures of both sides; - for a side without texts: pictures, or text in one language, which counts as
        target where both have one vocabulary.
        """
        sides = zip(figures, self.tokens, strict=True)
        return " ".join(format(figure, form) if num_tokens else "-" for figure, num_tokens in sides)


def measured(texts: Texts, config: TokenizerConfig, sizes: Iterable[int]) -> Iterator[Measured]:
    """Each size by itself, ascending, up to the first that the corpus cannot fill. Tags and masks come on top of it."""

    def some(side: int) -> Iterator[list[str]]:
        num_pairs = 0
        for chunk in texts(side):
            yield chunk
            num_pairs += len(chunk)
            if num_pairs >= MEASURED_PAIRS:
                return

    for size in (size + len(config.all_tags) for size in sizes):
        both = train_tokenizers(some, config.model_copy(update={"vocab_size": size}))
        found = [_count(tokenizer, some(side)) for side, tokenizer in enumerate(both)]
        counts = [count for count, _ in found]
        if config.joint:
            counts = [counts[0] + counts[1]]
        occurring = [count[len(SPECIAL_TOKENS) :][count[len(SPECIAL_TOKENS) :] > 0] for count in counts]
        src, tgt = (_shares(tokenizer, *one) for tokenizer, one in zip(both, found, strict=True))
        entries = both[0].vocab_size, both[1].vocab_size
        frequent = min(float((count >= FREQUENT).mean()) for count in occurring)
        yield Measured(size, entries, (src[0], tgt[0]), (src[1], tgt[1]), (src[2], tgt[2]), frequent)
        if max(entries) < size:
            return


def chosen_size(texts: Texts, config: TokenizerConfig) -> int:
    """The size that `auto` takes: of `SIZES`, and the tags and masks on top."""
    full = [found for found in measured(texts, config, SIZES) if max(found.entries) >= found.size]
    least = SIZES[0] + len(config.all_tags)
    return max((found.size for found in full if found.frequent >= ENOUGH), default=least)


def chosen_tokenizers(texts: Texts, config: TokenizerConfig) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer, of the size that the config names or else of that which `auto` takes."""
    if config.vocab_size == "auto":
        config = config.model_copy(update={"vocab_size": chosen_size(texts, config)})
    return train_tokenizers(texts, config)


def reason() -> str:
    """Why `auto` takes what it takes, in words."""
    sizes = ", ".join(f"{size:,}" for size in SIZES)
    return (
        f"auto: of {sizes} the largest of which {ENOUGH:.0%} of the entries occur {FREQUENT} times or more (Gowda and "
        "May 2020), or else the smallest; tags and masks come on top"
    )


def table_lines(rows: Iterable[Measured]) -> Iterator[str]:
    """A table for a terminal, a line a size, as soon as the size is measured."""
    heads = ("size", "entries", "tokens a sentence", "one character", "unknown", f"{FREQUENT} times or more")
    widths = [max(15, len(head) + 2) for head in heads]
    yield "".join(head.rjust(width) for head, width in zip(heads, widths, strict=True))
    for row in rows:
        cells = (
            f"{row.size:,}", "{:,} {:,}".format(*row.entries), row.told(row.tokens, ".1f"), row.told(row.single, ".1%"),
            row.told(row.unknown, ".2%"), f"{row.frequent:.1%}",
        )  # fmt: skip
        yield "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _count(tokenizer: Tokenizer, texts: Iterable[list[str]]) -> tuple[NDArray[np.int64], int]:
    """The occurrences of each entry, and the number of texts."""
    counts, num_texts = np.zeros(tokenizer.vocab_size, np.int64), 0
    for chunk in texts:
        ids, _ = tokenizer.encode_flat(chunk)
        counts += np.bincount(ids, minlength=len(counts))
        num_texts += len(chunk)
    return counts, num_texts


def _shares(tokenizer: Tokenizer, counts: NDArray[np.int64], num_texts: int) -> tuple[float, float, float]:
    """Tokens a text, and which share of them are one character or less, and unknown."""
    tokens = tokenizer.tokens(list(range(len(counts))))
    is_single = [len(token.strip("▁￭")) <= 1 or token.startswith("<0x") for token in tokens]
    total = max(1, int(counts.sum()))
    return int(counts.sum()) / max(1, num_texts), int(counts[is_single].sum()) / total, int(counts[UNK_ID]) / total
