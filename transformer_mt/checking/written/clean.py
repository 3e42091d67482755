"""`--write`: the pairs that are kept and those that are taken out, each as two parallel files, with the reasons."""

import errno
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from transformer_mt.checking.check import CheckedSplit
from transformer_mt.checking.faults.rules import TAKEN_OUT, names_of
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.sources.files import write_line
from transformer_mt.errors import UserError
from transformer_mt.paths import exists, is_dir
from transformer_mt.storage.files import make_folder, way_to_write, writing

KEPT, OUT, REASONS = "kept", "taken_out", ".reasons.tsv"


def refuse_folder(folder: Path) -> None:
    """UserError where the folder holds something already: before the check, not behind it."""
    with writing(folder, "Name another folder for --write."):
        if is_dir(folder) and not any(folder.iterdir()):
            return
        if exists(folder) or folder.is_symlink():
            raise UserError(f"{folder} exists, and is not overwritten. Delete it, or name another folder for --write.")


def write_clean(splits: Sequence[CheckedSplit], folder: Path, endings: tuple[str, str]) -> list[tuple[Path, int]]:
    """Write the pairs of a split to `kept` and `taken_out` with these endings, line n beside line n, in their order;
    the reasons of line n of the latter are line n of `taken_out.reasons.tsv`. Of several directions each has files of
    its own, named by it: `kept.en-de.en`. Returns each file and its lines.

    The whole folder is written, or nothing. A line end inside a text becomes a space; a text that is too long to be
    kept in memory becomes an empty line. Raises UserError where it cannot be written.
    """
    refuse_folder(folder)
    try:
        make_folder(folder, lambda new: [_write(split, new, endings) for split in splits])
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            refuse_folder(folder)
        raise UserError(
            f"{folder} cannot be written: {error.strerror or error}. To have it, {way_to_write(error, folder.parent)} "
            "and start again; nothing was left behind."
        ) from None
    return [(folder / name, number) for split in splits for name, number in _sizes(split, endings)]


def _sizes(split: CheckedSplit, endings: tuple[str, str]) -> list[tuple[str, int]]:
    """The files of a split, and their lines."""
    kept, out, reasons = _names(split, endings)
    number = split.num_taken_out
    return [*((name, len(split) - number) for name in kept), *((name, number) for name in out), (reasons, number)]


def _names(split: CheckedSplit, endings: tuple[str, str]) -> tuple[list[str], list[str], str]:
    """The two files that are kept, the two that are taken out, and that of the reasons. A name of a language may hold
    a /, which no name of a file may.
    """
    of = ""
    if split.direction:
        of, endings = f".{'-'.join(split.direction)}", (f".{split.direction[0]}", f".{split.direction[1]}")
    if endings[0] == endings[1]:  # both sides in one language
        endings = (".src", ".tgt")
    kept, out = ([f"{name}{of}{ending}".replace("/", "_") for ending in endings] for name in (KEPT, OUT))
    return kept, out, f"{OUT}{of}{REASONS}".replace("/", "_")


def _write(split: CheckedSplit, folder: Path, endings: tuple[str, str]) -> None:
    with ExitStack() as stack:

        def opened(name: str):
            return stack.enter_context((folder / name).open("w", encoding="utf-8", errors="replace", newline="\n"))

        names_kept, names_out, name_of_reasons = _names(split, endings)
        kept = [opened(name) for name in names_kept]
        out = [opened(name) for name in names_out]
        reasons = opened(name_of_reasons)
        for block, flags in split.blocks():
            is_out = (flags & TAKEN_OUT) != 0
            source = split.sources[block.source]
            for number, (src, tgt) in enumerate(zip(*block.sides, strict=True)):
                files = out if is_out[number] else kept
                for file, text in zip(files, (src, tgt), strict=True):
                    write_line(file, _one_line(text))
                if is_out[number]:
                    names = ", ".join(names_of(int(flags[number]) & TAKEN_OUT))
                    reasons.write(f"{names}\t{_one_line(source.place(block.lines[number]))}\n")


def _one_line(text: str) -> str:
    return "" if is_beyond(text) else text.replace("\r\n", " ").replace("\n", " ")
