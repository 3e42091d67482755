"""A test set with what one or two systems made of it, and files of finished translations."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformer_mt.data.longest_line import LONGEST_LINE, is_beyond
from transformer_mt.data.sources.files import read_line_blocks
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted


@dataclass(frozen=True)
class Output:
    """The translations of a system. `certainty` is the mean log-probability of a token of each, EOS counted; None where
    the system is a file. `note` says of which checkpoint, and by which search, the translations are.
    """

    name: str
    texts: list[str]
    certainty: list[float] | None = None
    note: str = ""


@dataclass(frozen=True)
class ScoredSet:
    """Sentences with their references, (references, sentences), and the translations of one or two systems. `sources`
    is None where no file of sources was given. `places` say where each sentence stands; `remarks` what was left out;
    `language` is that of the references, where it is known.
    """

    name: str
    sources: list[str] | None
    references: list[list[str]]
    places: list[str]
    outputs: list[Output]
    remarks: list[str] = field(default_factory=list)
    language: str = ""

    def __len__(self) -> int:
        return len(self.places)

    @property
    def size(self) -> str:
        """How much it is, as reports say it."""
        number = len(self.references)
        return counted(len(self), "sentence") + (f", {number} references each" if number > 1 else "")


def normalized(texts: Sequence[str]) -> list[str]:
    """In NFC, as every translation of ours is: a file may spell an accent otherwise."""
    return [unicodedata.normalize("NFC", text) for text in texts]


def read_lines(path: Path) -> list[str]:
    """All lines of a file, blank ones too. UserError for a file that cannot be read or has a line that `is_beyond`."""
    lines = [line for block in read_line_blocks(path) for line in block]
    for number, line in enumerate(lines, start=1):
        if is_beyond(line):
            raise UserError(f"{path}, line {number} is longer than {LONGEST_LINE:,} bytes. Take it out of all files.")
    return lines


def set_of_files(src: Path | None, refs: Sequence[Path], outputs: Sequence[Path]) -> ScoredSet:
    """The test set of finished translations: every line of the files, as sacreBLEU's command line counts them. Raises
    UserError where the files have unequal numbers of lines, or none.
    """
    paths = [*([src] if src else []), *refs, *outputs]
    texts = {path: normalized(read_lines(path)) for path in paths}
    refuse_unequal([(str(path), len(texts[path])) for path in paths])
    first = src or refs[0]
    places = [f"{first}, line {number}" for number in range(1, len(texts[first]) + 1)]
    names = distinct_names([str(path) for path in outputs])
    made = [Output(name, texts[path]) for name, path in zip(names, outputs, strict=True)]
    name = " / ".join(str(path) for path in paths[: len(paths) - len(outputs)])
    return ScoredSet(name, texts[src] if src else None, [texts[path] for path in refs], places, made)


def refuse_unequal(counts: Sequence[tuple[str, int]]) -> None:
    """UserError where files that stand side by side have unequal numbers of lines, or not a single one."""
    (first, number), *others = counts
    for name, other in others:
        if other != number:
            raise UserError(
                f"{first} has {number:,} lines and {name} has {other:,}. Line n of each file must belong to the same "
                "sentence: give files of equal length."
            )
    if not number:
        raise UserError(f"{first} holds not a single line. Check that this is the file you mean.")


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names, with a number behind each where they are all the same."""
    if len(set(names)) == len(names):
        return list(names)
    return [f"{name} ({number})" for number, name in enumerate(names, start=1)]
