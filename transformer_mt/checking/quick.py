"""The quick part of the check, before a training's first step: stretches from all over the training split.

What was found is kept beside the prepared corpus, so that a second start does not look again.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_mt.aligning.find_kernels import compiled_kernels
from transformer_mt.checking.faults.languages import is_there, language_of_side, swap_of_sides
from transformer_mt.checking.faults.pair_texts import faults_of_pair, letters_of
from transformer_mt.checking.faults.ratios import Bands
from transformer_mt.checking.faults.rules import names_of
from transformer_mt.checking.matching import Matcher, Stretch, train_matcher
from transformer_mt.checking.shifts import path_of, shifted_parts
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.tokenizer import language_of
from transformer_mt.data.cache import Counts, cache_folder, cached, key_of
from transformer_mt.data.corpus import Corpus
from transformer_mt.errors import UserError

FORMAT_VERSION = 2  # raise it whenever the same corpus would give another result
STRETCH, MOST_STRETCHES = 100, 30  # neighbouring pairs that are looked at, and how often
LEAST_PAIRS = 500  # in fewer no shift is looked for
REGION = 600  # pairs in which the beginning of a shift is looked for line by line
SURE = 30  # shifted pairs without a break stop a training
TOLD = ("no_words", "copy", "ratio", "numbers", "encoding", "repetition")
OF_TEXT = "data check: pairs beside text in one language are not looked at; `tmt data check` reads them"
OF_A_STREAM = "data check: a stream is not looked at; `tmt data check` reads it whole"


class _Shift(NamedTuple):
    row: int
    shift: int


def quick_check(corpus: Corpus, data: DataConfig) -> str:
    """A line on what is wrong with the training split, as far as a sample shows it.

    Raises UserError where its sides are shifted: from some line on, line n of one translates line n + k of the other.
    """
    of_one = not any(source.src_lang or source.tgt_lang or language_of(source.tag) for source in data.train)
    named = (data.src_lang, data.tgt_lang) if of_one and is_there() else None
    key = key_of([FORMAT_VERSION, corpus.fingerprint, named])
    swap = named and swap_of_sides(named, named[::-1])

    def write(folder: Path) -> Counts:
        return _look(corpus, named)

    _, counts = cached(cache_folder(data) / "checks" / key, write, lambda folder: None)
    if counts.get("shift"):
        raise _shift_error(corpus, counts)
    found = [f"{name} {counts[name]:,}" for name in TOLD if counts.get(name)]
    number, of = counts["num_looked_at"], len(corpus)
    looked_at = f"{number:,} of {of:,} training pairs" if number < of else f"{of:,} training pairs"
    said = [
        ", ".join(found) or "nothing found",
        *([swap] if swap and counts["swapped"] else []),
        *_about_shifts(counts),
    ]
    return f"data check ({looked_at}): {'; '.join(said)}; `tmt data check` reads them all"


def _about_shifts(counts: Counts) -> list[str]:
    if not counts["looked_for_shifts"]:
        return []
    return ["no shift"] if counts["can_tell"] else ["whether lines are shifted cannot be told"]


def _shift_error(corpus: Corpus, counts: Counts) -> UserError:
    shift = counts["shift"]
    return UserError(
        f"The sides of the training data are shifted: about from {corpus.where(counts['shift_row'])} on, line n of the "
        f"source translates line n {'+' if shift > 0 else '-'} {abs(shift)} of the target. Mend the files "
        "(`tmt data check` shows the place), or train on them as they are with data.check=off."
    )


def _look(corpus: Corpus, named: tuple[str, str] | None) -> Counts:
    starts = _starts(corpus)
    texts = [_texts(corpus, start, start + STRETCH) for start in starts]
    pairs = [pair for src, tgt in texts for pair in zip(src, tgt, strict=True)]
    flags = [faults_of_pair(src, tgt, (letters_of(src), letters_of(tgt)), 2**30) for src, tgt in pairs]
    counts: Counts = {"num_looked_at": len(pairs), "looked_for_shifts": 0, "can_tell": 0}
    for name in (name for one in flags for name in names_of(one)):
        counts[name] = counts.get(name, 0) + 1
    if named:
        found = [language_of_side([pair[side] for pair in pairs]) for side in (0, 1)]
        counts["swapped"] = int(swap_of_sides(named, found) is not None)
    src, tgt = np.array([[len(src), len(tgt)] for src, tgt in pairs], np.uint32).T
    if bands := Bands.of(src, tgt):
        counts["ratio"] = int(bands.outside(src, tgt).sum())
    if len(corpus) < LEAST_PAIRS or compiled_kernels() is None:  # without numba it would take minutes
        return counts
    counts["looked_for_shifts"] = 1
    stretches = [Stretch(*sides) for sides in texts]
    if matcher := train_matcher(stretches):
        counts["can_tell"] = 1
        if shift := _first_shift(corpus, matcher, starts, stretches):
            counts |= {"shift": shift.shift, "shift_row": shift.row}
    return counts


def _starts(corpus: Corpus) -> list[int]:
    """Rows at which stretches begin, from the first of the corpus to the last that holds its end."""
    last = max(0, len(corpus) - STRETCH)
    many = min(MOST_STRETCHES, -(-len(corpus) // STRETCH))
    return sorted({int(start) for start in np.linspace(0, last, many)})


def _texts(corpus: Corpus, first: int, last: int) -> tuple[list[str], list[str]]:
    rows = corpus.dataset[first : min(last, len(corpus))]
    return list(rows["src"]), list(rows["tgt"])


def _first_shift(corpus: Corpus, matcher: Matcher, starts: list[int], stretches: list[Stretch]) -> _Shift | None:
    """The first row that is shifted, where enough are: within some lines where the shift begins once."""
    before = 0
    for start, stretch in zip(starts, stretches, strict=True):
        if _is_shifted(matcher, stretch):
            low, high = before, min(start + STRETCH, len(corpus))
            while high - low > REGION:
                middle = (low + high - STRETCH) // 2
                here = Stretch(*_texts(corpus, middle, middle + STRETCH))
                low, high = (low, middle + STRETCH) if _is_shifted(matcher, here) else (middle, high)
            high = min(len(corpus), high + STRETCH)
            for part in shifted_parts(path_of(matcher, Stretch(*_texts(corpus, low, high)))):
                if part.last - part.first + 1 >= SURE:
                    return _Shift(low + part.first, part.shift)
        before = start
    return None


def _is_shifted(matcher: Matcher, stretch: Stretch) -> bool:
    return any(part.last - part.first + 1 >= SURE for part in shifted_parts(path_of(matcher, stretch)))
