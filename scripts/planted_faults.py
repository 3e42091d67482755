"""How well `tmt data check` finds faults: faults of every kind planted in real text at known lines, shifts at known
lines, and text as it is.

    python scripts/planted_faults.py --data ../shared/data [--pairs 6000] [--only faults|clean|shifts|random]

`--data` is a folder with `multi30k/raw`, `tatoeba_en_es` and `other_scripts` in it. Faults are planted in English and
German image captions, twenty of each kind. Recall is the share of them that is found under its own name. A false alarm
is a line that nothing was done to and that is found under that name; precision is the share of the planted lines among
both. Shifts are a line taken out of one side, or put in: at chosen lines, and by one at lines that a seed draws. The
alarms on text as it is leave out what is a fact and no guess: blank lines, duplicates, several targets of a source.
"""

import argparse
import random
import tempfile
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from measuring import command

from transformer_mt.checking.check import CheckedSplit, check_sources
from transformer_mt.checking.faults.rules import BITS
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.sources.kinds import sources_of
from transformer_mt.data.sources.source import Source

Pair = tuple[str, str]
NUM_RANDOM = 16  # shifts of each language
EACH = 20  # lines with each fault
NUM_NAMES = 200  # lines that get a name on both sides, so that there is something to learn
NUM_VALIDATION = 200
FACTS = ("blank", "duplicate", "same_letters", "several_targets", "leak", "near_leak", "mixed_forms")
CLEAN = {
    "en-de": ("multi30k/raw/train.en", "multi30k/raw/train.de"),
    "en-fr": ("multi30k/raw/train.en", "multi30k/raw/train.fr"),
    "en-es": ("tatoeba_en_es/train.en", "tatoeba_en_es/train.es"),
    **{f"en-{code}": (f"other_scripts/en_{code}/train.en", f"other_scripts/en_{code}/train.{code}")
       for code in ("zh", "ja", "ar", "hi")},
}  # fmt: skip


def sources_of_pairs(folder: Path, name: str, pairs: Sequence[Pair]) -> list[Source]:
    """Two files with these pairs, as sources."""
    for side in (0, 1):
        (folder / f"{name}.{side}").write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8", newline="\n")
    config = SourceConfig(src=str(folder / f"{name}.0"), tgt=str(folder / f"{name}.1"))
    return sources_of([config], DataConfig(train=[config], validation=[config]))


def checked(pairs: Sequence[Pair], validation: Sequence[Pair] = ()) -> CheckedSplit:
    """The check of these pairs, held against a validation."""
    with tempfile.TemporaryDirectory() as name:
        sources = {"train": sources_of_pairs(Path(name), "train", pairs)}
        if validation:
            sources["validation"] = sources_of_pairs(Path(name), "validation", validation)
        return check_sources(sources, 1024, 0)[0]


# Faults: each makes a pair of the one that stood there, of some earlier pairs, and of a third text of the same meaning


def _replaced(number: int, pair: Pair, side: int, text: str) -> Pair:
    return (text, pair[1]) if side == 0 else (pair[0], text)


def _misread(text: str) -> str:
    return f"{text} Größe".encode().decode("cp1252")


def _restyled(pair: Pair) -> Pair:
    return pair[0].upper(), pair[1].rstrip(".") + " !"


def _near(pair: Pair) -> Pair:
    a, b = (text.split() for text in pair)
    a[len(a) // 2], b[len(b) // 2] = "seldom", "selten"
    return " ".join(a), " ".join(b)


class Planter:
    """Faults in a corpus, at lines that are drawn by a seed."""

    def __init__(self, pairs: list[Pair], third: list[str], validation: list[Pair], seed: int = 1) -> None:
        self.pairs, self.third, self.validation = list(pairs), third, validation
        self.lines: dict[str, list[int]] = {}
        order = list(range(len(pairs) // 4, len(pairs)))
        random.Random(seed).shuffle(order)
        self._free = order
        self._random = random.Random(seed + 1)
        names = self._take(NUM_NAMES)  # a corpus in which names stand on both sides
        for line, name in zip(names, ["Anna", "Peter"] * (NUM_NAMES // 2), strict=True):
            self.pairs[line] = self._with_name(line, name, name)
        for fault, plant in self._plants().items():
            self.lines[fault] = self._take(EACH)
            for number, line in enumerate(self.lines[fault]):
                self.pairs[line] = plant(number, line)
        self.touched = set(names).union(*self.lines.values())

    def _take(self, number: int) -> list[int]:
        taken, self._free = self._free[:number], self._free[number:]
        return taken

    def _with_name(self, line: int, src: str, tgt: str) -> Pair:
        a, b = self.pairs[line]
        return f"{a} Beside it stands {src}.", f"{b} Daneben steht {tgt}."

    def _earlier(self) -> Pair:
        return self.pairs[self._random.randrange(len(self.pairs) // 4)]

    def _long(self) -> Pair:
        some = [self._earlier() for _ in range(130)]
        return " ".join(pair[0] for pair in some), " ".join(pair[1] for pair in some)

    def _held_out(self) -> Pair:
        long = [pair for pair in self.validation if min(len(text.split()) for text in pair) >= 11]
        return self._random.choice(long)

    def _plants(self) -> dict[str, Callable[[int, int], Pair]]:
        def at(change: Callable[[int, Pair], Pair]) -> Callable[[int, int], Pair]:
            return lambda number, line: change(number, self.pairs[line])

        cyrillic = "Это предложение написано другими буквами, чем все остальные."
        return {
            "blank": at(lambda n, pair: _replaced(n, pair, n % 2, (" ", "\u200b")[n // 2 % 2])),
            "no_words": at(lambda n, pair: _replaced(n, pair, n % 2, "* * *")),
            "too_long": lambda n, line: self._long(),
            "duplicate": lambda n, line: self._earlier(),
            "same_letters": lambda n, line: _restyled(self._earlier()),
            "several_targets": lambda n, line: (self._earlier()[0], self.pairs[line][1]),
            "copy": at(lambda n, pair: (pair[n % 2], pair[n % 2])),
            "ratio": at(lambda n, pair: _replaced(n, pair, n % 2, " ".join(pair[n % 2].split()[:2]))),
            "script": at(lambda n, pair: _replaced(n, pair, n % 2, cyrillic)),
            "language": lambda n, line: (self.pairs[line][0], self.third[line]) if n % 2 else
                (self.third[line], self.pairs[line][1]),
            "swapped": at(lambda n, pair: (pair[1], pair[0])),
            "numbers": at(lambda n, pair: (f"{pair[0]} It is {n + 40}.", f"{pair[1]} Es ist {2 * n + 107}.")),
            "names": lambda n, line: self._with_name(line, *(("Anna", "Peter"), ("Peter", "Anna"))[n % 2]),
            "markup": at(lambda n, pair: (f"<b>{pair[0]}</b>", pair[1]) if n % 2 else (pair[0], f"{pair[1]} &quot;")),
            "encoding": at(lambda n, pair: (pair[0], (_misread(pair[1]), pair[1].replace("e", "\ufffd"))[n % 2])),
            "mixed_forms": at(lambda n, pair: (pair[0], unicodedata.normalize("NFD", f"{pair[1]} Grün."))),
            "repetition": at(lambda n, pair: (pair[0], pair[1] + 3 * " und dann das")),
            "leak": lambda n, line: (self._held_out()[0], self.pairs[line][1]) if n % 2 else self._held_out(),
            "near_leak": lambda n, line: _near(self._held_out()),
        }  # fmt: skip


def scores(planter: Planter, split: CheckedSplit) -> dict[str, tuple[int, int]]:
    """For each fault how many of its lines are found, and how many lines that nothing was done to."""
    found = {}
    for fault, lines in planter.lines.items():
        flagged = set(np.flatnonzero(split.flags & BITS[fault]).tolist())
        found[fault] = len(flagged & set(lines)), len(flagged - planter.touched)
    return found


def fault_rows(data: Path, num_pairs: int) -> list[str]:
    """The rows of the table of planted faults."""
    planter, split = planted_captions(data, num_pairs)
    rows = ["| fault | planted | found | recall | false alarms | precision |", "|---|---|---|---|---|---|"]
    for fault, (hits, alarms) in scores(planter, split).items():
        precision = hits / max(1, hits + alarms)
        rows.append(f"| `{fault}` | {EACH} | {hits} | {hits / EACH:.2f} | {alarms} | {precision:.2f} |")
    return rows


def planted_captions(data: Path, num_pairs: int) -> tuple[Planter, CheckedSplit]:
    """Faults planted in image captions, and what the check finds."""
    folder = data / "multi30k/raw"
    src, tgt, third = (command.lines_of(folder / f"train.{code}")[:num_pairs] for code in ("en", "de", "fr"))
    validation = command.parallel(folder / "val.en", folder / "val.de")[:NUM_VALIDATION]
    planter = Planter(list(zip(src, tgt, strict=True)), third, validation)
    return planter, checked(planter.pairs, validation)


def shifted(pairs: Sequence[Pair], line: int, shift: int) -> list[Pair]:
    """The pairs with `shift` lines put into the targets at a line (from 0), or that many taken out."""
    src, tgt = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    tgt = tgt[:line] + tgt[len(tgt) - shift :] + tgt[line:] if shift > 0 else tgt[:line] + tgt[line - shift :]
    return list(zip(src, tgt, strict=False))


def shift_rows(data: Path, num_pairs: int) -> list[str]:
    """The rows of the table of shifts."""
    rows = ["| languages | line | shift | found at | shift found |", "|---|---|---|---|---|"]
    for languages, pairs in clean_texts(data, num_pairs).items():
        for line, shift in ((10, 1), (len(pairs) // 2, 1), (len(pairs) // 3, -1), (len(pairs) - 60, -1), (77, 5)):
            found = checked(shifted(pairs, line, shift)).shifts
            told = f"{found[0].first} | {found[0].shift:+d}" if found else "not | "
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            rows.append(f"| {languages} | {line + 1} | {shift:+d} | {told}{more} |")
    return rows


def random_shift_rows(data: Path, num_pairs: int) -> list[str]:
    """The rows of the table of shifts by one at random lines, and how far from them they were found."""
    rng = random.Random(1)
    rows = ["| languages | shifts | within 20 lines | not found | farthest |", "|---|---|---|---|---|"]
    for languages, pairs in clean_texts(data, num_pairs).items():
        distances: list[int] = []
        for _ in range(NUM_RANDOM):
            line, shift = rng.randrange(3, len(pairs) - 3), rng.choice((1, -1))
            found = [part for part in checked(shifted(pairs, line, shift)).shifts if part.shift == shift]
            distances += [abs(found[0].first - (line + 1))] if found else []
        near = sum(distance <= 20 for distance in distances)
        missed = NUM_RANDOM - len(distances)
        rows.append(f"| {languages} | {NUM_RANDOM} | {near} | {missed} | {max(distances, default=0)} |")
    return rows


def clean_texts(data: Path, num_pairs: int) -> dict[str, list[Pair]]:
    """Text as it is, by languages."""
    return {name: command.parallel(data / src, data / tgt)[:num_pairs] for name, (src, tgt) in CLEAN.items()}


def alarms(split: CheckedSplit) -> dict[str, int]:
    """How many pairs of text as it is have each fault that is a guess, and under `any` how many have one at all."""
    guesses = {name: bit for name, bit in BITS.items() if name not in FACTS}
    counts = {name: int(((split.flags & bit) != 0).sum()) for name, bit in guesses.items()}
    anything = int(((split.flags & sum(guesses.values())) != 0).sum())
    return {**{name: number for name, number in counts.items() if number}, "any": anything}


def clean_rows(data: Path, num_pairs: int) -> list[str]:
    """The rows of the table of text as it is."""
    rows = ["| languages | pairs | alarms | share | which |", "|---|---|---|---|---|"]
    for languages, pairs in clean_texts(data, num_pairs).items():
        found = alarms(checked(pairs))
        number = found.pop("any")
        which = ", ".join(f"`{name}` {count}" for name, count in found.items())
        rows.append(f"| {languages} | {len(pairs):,} | {number} | {number / len(pairs):.2%} | {which} |")
    return rows


TABLES = {"faults": fault_rows, "clean": clean_rows, "shifts": shift_rows, "random": random_shift_rows}


def main() -> None:
    """Plant, check and print."""
    parser = command.Parser(__doc__)
    parser.add_argument("--data", type=command.folder, required=True)
    parser.add_argument("--pairs", type=command.count(1000), default=6000)
    parser.add_argument("--only", choices=tuple(TABLES))
    args: argparse.Namespace = parser.parse_args()
    for name, make in TABLES.items():
        if args.only in (None, name):
            print("\n".join(make(args.data, args.pairs)), flush=True)
            print()


if __name__ == "__main__":
    command.run(main)
