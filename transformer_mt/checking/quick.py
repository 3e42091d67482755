"""The quick part of the check, before a training's first step: stretches from all over the training split.

What was found is kept beside the prepared corpus, so that a second start does not look again.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.aligning.find_kernels import compiled_kernels
from transformer_mt.checking.faults.languages import is_there, language_of_side, swap_of_sides
from transformer_mt.checking.faults.pair_texts import faults_of_pair, letters_of
from transformer_mt.checking.faults.ratios import Bands
from transformer_mt.checking.faults.rules import names_of
from transformer_mt.checking.matching import Matcher, Stretch, train_matcher
from transformer_mt.checking.shifts import Shifted, path_of, shifted_parts
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.data.cache import Counts, cache_folder, cached, key_of
from transformer_mt.data.corpus import Corpus
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from datasets import Dataset

FORMAT_VERSION = 4  # raise it whenever the same corpus would give another result
STRETCH, MOST_STRETCHES = 100, 30  # neighbouring pairs that are looked at, and how often
LEAST_PAIRS = 500  # in fewer no shift is looked for
REGION = 600  # pairs in which the beginning of a shift is looked for line by line
SURE = 30  # shifted pairs without a break stop a training
TOLD = ("no_words", "copy", "ratio", "numbers", "encoding", "repetition")
OF_A_STREAM = "data check: a stream is not looked at; `tmt data check` reads it whole"


class _Direction(NamedTuple):
    """Pairs of a corpus from one language to another, by themselves: what is normal there is not in others."""

    languages: tuple[str, str]
    pairs: "Dataset"
    rows: range | NDArray[np.int64]  # of each pair in the corpus
    tags: list[str]  # of each source of the corpus, with the space behind it: no words of a side


class _Shift(NamedTuple):
    row: int
    shift: int


def quick_check(corpus: Corpus, data: DataConfig) -> str:
    """A line on what is wrong with the training split, as far as a sample shows it.

    Raises UserError where its sides are shifted: from some line on, line n of one translates line n + k of the other.
    """
    languages = [data.languages_of(source.config) for source in corpus.sources]
    key = key_of([FORMAT_VERSION, corpus.fingerprint, languages, is_there()])
    entry = cache_folder(data) / "checks" / key
    _, counts = cached(entry, lambda folder: _look_at_all(corpus, languages), lambda folder: None)
    if counts.get("shift"):
        raise _shift_error(corpus, counts)
    found = [f"{name} {counts[name]:,}" for name in TOLD if counts.get(name)]
    number, of = counts["num_looked_at"], counts["num_pairs"]
    looked_at = f"{number:,} of {of:,} training pairs" if number < of else f"{of:,} training pairs"
    swaps = [languages[source] for source in range(len(languages)) if counts.get(f"swapped_{source}")]
    said = [
        ", ".join(found) or "nothing found",
        *(text for one in swaps if (text := swap_of_sides(one, one[::-1]))),
        *_about_shifts(counts),
    ]
    return f"data check ({looked_at}): {'; '.join(said)}; `tmt data check` reads all and looks for more"


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


def _look_at_all(corpus: Corpus, languages: list[tuple[str, str]]) -> Counts:
    """What is seen in all directions together; the first shift, and a swap of sides by the direction's first source."""
    total: Counts = {"num_looked_at": 0, "num_pairs": 0, "looked_for_shifts": 0, "can_tell": 1}
    for one in _directions(corpus, languages):
        counts = _look(one)
        total["num_pairs"] += len(one.pairs)
        if counts["looked_for_shifts"]:
            total["looked_for_shifts"] = 1
            total["can_tell"] &= counts["can_tell"]
        if "shift" not in total and "shift" in counts:
            total |= {name: counts[name] for name in ("shift", "shift_row")}
        if counts.get("swapped"):
            total[f"swapped_{languages.index(one.languages)}"] = 1
        for name in ("num_looked_at", *TOLD):
            total[name] = total.get(name, 0) + counts.get(name, 0)
    return total


def _directions(corpus: Corpus, languages: list[tuple[str, str]]) -> list[_Direction]:
    """Each direction of a corpus, without text in one language."""
    sources: dict[tuple[str, str], list[int]] = {}
    for number, (one, source) in enumerate(zip(languages, corpus.sources, strict=True)):
        if not source.config.mono:
            sources.setdefault(one, []).append(number)
    tags = [f"{source.config.tag} " if source.config.tag else "" for source in corpus.sources]
    if [list(range(len(languages)))] == list(sources.values()):
        return [_Direction(languages[0], corpus.dataset, range(len(corpus)), tags)]
    of_row = corpus.dataset.data.column("source").to_numpy()
    rows = {one: np.flatnonzero(np.isin(of_row, numbers)) for one, numbers in sources.items()}
    return [
        _Direction(one, corpus.dataset.select(some, keep_in_memory=True), some, tags)
        for one, some in rows.items()
        if len(some)  # all pairs of a direction may have been dropped
    ]


def _look(one: _Direction) -> Counts:
    starts = _starts(len(one.pairs))
    texts = [_texts(one, start, start + STRETCH) for start in starts]
    pairs = _each_once(starts, texts)
    flags = [faults_of_pair(src, tgt, (letters_of(src), letters_of(tgt)), 2**30) for src, tgt in pairs]
    counts: Counts = {"num_looked_at": len(pairs), "looked_for_shifts": 0, "can_tell": 0}
    for name in (name for one in flags for name in names_of(one)):
        counts[name] = counts.get(name, 0) + 1
    if is_there():
        found = [language_of_side([pair[side] for pair in pairs]) for side in (0, 1)]
        counts["swapped"] = int(swap_of_sides(one.languages, found) is not None)
    src, tgt = np.array([[len(src), len(tgt)] for src, tgt in pairs], np.uint32).T
    if bands := Bands.of(src, tgt):
        counts["ratio"] = int(bands.outside(src, tgt).sum())
    if len(one.pairs) < LEAST_PAIRS or compiled_kernels() is None:  # without numba it would take minutes
        return counts
    counts["looked_for_shifts"] = 1
    stretches = [Stretch(*sides) for sides in texts]
    if matcher := train_matcher(stretches):
        counts["can_tell"] = 1
        if shift := _first_shift(one, matcher, starts, stretches):
            counts |= {"shift": shift.shift, "shift_row": int(one.rows[shift.row])}
    return counts


def _starts(num_pairs: int) -> list[int]:
    """Pairs at which stretches begin, from the first to the last that holds the end."""
    last = max(0, num_pairs - STRETCH)
    many = min(MOST_STRETCHES, -(-num_pairs // STRETCH))
    return sorted({int(start) for start in np.linspace(0, last, many)})


def _each_once(starts: list[int], texts: list[tuple[list[str], list[str]]]) -> list[tuple[str, str]]:
    """The pairs of the stretches, which overlap where the corpus is small."""
    found, end = [], 0
    for start, (src, tgt) in zip(starts, texts, strict=True):
        found += list(zip(src, tgt, strict=True))[max(0, end - start) :]
        end = start + STRETCH
    return found


def _texts(one: _Direction, first: int, last: int) -> tuple[list[str], list[str]]:
    rows = one.pairs[first : min(last, len(one.pairs))]
    src = [text.removeprefix(one.tags[source]) for text, source in zip(rows["src"], rows["source"], strict=True)]
    return src, list(rows["tgt"])


def _first_shift(one: _Direction, matcher: Matcher, starts: list[int], stretches: list[Stretch]) -> _Shift | None:
    """The first pair that is shifted, where enough are: within some lines where the shift begins once."""
    before = 0
    for start, stretch in zip(starts, stretches, strict=True):
        if _sure_shifts(matcher, stretch):
            low, high = before, min(start + STRETCH, len(one.pairs))
            while high - low > REGION:
                middle = (low + high - STRETCH) // 2
                here = Stretch(*_texts(one, middle, middle + STRETCH))
                low, high = (low, middle + STRETCH) if _sure_shifts(matcher, here) else (middle, high)
            high = min(len(one.pairs), high + STRETCH)
            if sure := _sure_shifts(matcher, Stretch(*_texts(one, low, high))):
                return _Shift(low + sure[0].first, sure[0].shift)
        before = start
    return None


def _sure_shifts(matcher: Matcher, stretch: Stretch) -> list[Shifted]:
    return [part for part in shifted_parts(path_of(matcher, stretch)) if part.last - part.first + 1 >= SURE]
