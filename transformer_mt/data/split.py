"""Two parallel files parted into training, validation and test, so that no sentence is in two of them."""

import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.section import SPLITS
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.longest_line import beyond_error, is_beyond
from transformer_mt.data.sources.files import suffix_of, write_line
from transformer_mt.data.sources.source import PairBlock, Source, with_bar
from transformer_mt.data.sources.text_pair import TextPair
from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.plurals import counted
from transformer_mt.storage.files import working_folder, writing

ENOUGH = 0.9  # of the pairs asked for: groups do not always add up to the number


def split_pair_of_files(
    src: Path, tgt: Path, folder: Path, num_validation: int, num_test: int, seed: int
) -> list[tuple[Path, int]]:
    """Write every pair of lines once, to PART.EXT for both sides of each part; return each file and its number.

    Pairs that share a source or a target, directly or through other pairs, stay together (`groups`). Groups are drawn
    by the seed. A part keeps the order of its pairs. EXT is the ending of each file's name, or `src` and `tgt` where
    the endings do not tell the files apart. Pairs with a blank side go to the training, which leaves them out.

    Raises UserError for files that are not parallel or cannot be read, for files that exist already, for a folder that
    cannot be written, and where so many pairs cannot be taken out. Either all files are written or none.
    """
    config = SourceConfig(src=str(src.absolute()), tgt=str(tgt.absolute()))
    source = TextPair(config, DataConfig(train=[config], validation=[config]))
    numbers = {"validation": num_validation, "test": num_test}
    ends = extensions(src, tgt)
    _refuse_to_overwrite([folder / f"{part}{extension}" for part in SPLITS for extension in ends])
    keys, is_blank = _read_keys(source)
    part_of = np.zeros(len(is_blank), np.int8)
    part_of[~is_blank] = _draw(groups(keys[:, ~is_blank]), [num_validation, num_test], seed)
    parts = [part for part in SPLITS if numbers.get(part, 1)]
    with writing(folder, "Choose another folder."):
        folder.mkdir(parents=True, exist_ok=True)
        with working_folder(folder, "split") as temporary:
            _write(temporary, parts, ends, part_of, source.blocks())
            _move([f"{part}{extension}" for part in parts for extension in ends], temporary, folder)
    sizes = np.bincount(part_of, minlength=len(SPLITS)).tolist()
    return [(folder / f"{part}{end}", sizes[SPLITS.index(part)]) for part in parts for end in ends]


def sentence_key(text: str) -> int:
    """A hash, equal for texts that some config reads as equal: NFC, white space single spaces, lower case."""
    return xxhash.xxh3_64_intdigest(" ".join(unicodedata.normalize("NFC", text.lower()).split()).encode())


def groups(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The number of the first pair of each pair's group. Pairs that share a key of either side are in one group.

    keys: (2, pairs), of the sources and of the targets.
    """
    first = np.arange(keys.shape[1])
    sides = [np.unique(side, return_inverse=True)[1] for side in keys]
    while True:
        before = first
        for sentence in sides:  # all pairs of a sentence take the lowest number among them
            lowest = np.full(len(first), len(first))
            np.minimum.at(lowest, sentence, first)
            first = lowest[sentence]
        first = first[first]  # takes two steps at once
        if np.array_equal(first, before):
            return first


def _read_keys(source: Source) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The keys of both sides, (2, pairs), and which pairs have a blank side. UserError where all have."""
    sides: tuple[list[NDArray[np.uint64]], ...] = ([], [])
    blanks: list[NDArray[np.bool_]] = []
    for block in with_bar(source.blocks(), "Reading"):
        for keys, texts in zip(sides, (block.src, block.tgt), strict=True):
            for line, text in zip(block.lines, texts, strict=True):
                if is_beyond(text):
                    raise beyond_error(source.place(line), "take the pair out")
            keys.append(np.fromiter(map(sentence_key, texts), np.uint64, len(texts)))
        blank = (not (a.strip() and b.strip()) for a, b in zip(block.src, block.tgt, strict=True))
        blanks.append(np.fromiter(blank, np.bool_, len(block.src)))
    if all(blank.all() for blank in blanks):
        what = "pair with two sides" if blanks else "line"
        raise UserError(
            f"{source.config.src} and {source.config.tgt} hold not a single {what}. Check that these are the files you "
            "mean."
        )
    return np.stack([np.concatenate(keys) for keys in sides]), np.concatenate(blanks)


def _draw(group: NDArray[np.int64], numbers: list[int], seed: int) -> NDArray[np.int8]:
    """The part of each pair with two sides, an index into SPLITS. Groups come in an order drawn by the seed, and each
    goes to the first part that has room for all of it.
    """
    _, of_group, sizes = np.unique(group, return_inverse=True, return_counts=True)
    room = list(numbers)
    part_of_group = np.zeros(len(sizes), np.int8)
    for number in np.random.default_rng(seed).permutation(len(sizes)):
        size = int(sizes[number])
        for index, left in enumerate(room):
            if size <= left:
                part_of_group[number] = index + 1
                room[index] -= size
                break
        if not any(room):
            break
    num_train = len(group) - sum(numbers) + sum(room)
    if num_train < 1 or any(number - left < ENOUGH * number for number, left in zip(numbers, room, strict=True)):
        groups = counted(len(sizes), "group that shares", "groups that share")
        most = counted(int(sizes.max(initial=0)), "pair")
        raise UserError(
            f"{counted(sum(numbers), 'pair')} cannot be taken out of {len(group):,} that have two sides, in {groups} "
            f"no sentence (the largest has {most}). Lower --validation or --test."
        )
    return part_of_group[of_group]


def _write(
    folder: Path, parts: list[str], extensions: tuple[str, str], part_of: NDArray[np.int8], blocks: Iterator[PairBlock]
) -> None:
    changed = UserError("The files changed while they were read. Wait until nothing writes to them, and start again.")
    done = 0
    with ExitStack() as stack:
        files = {
            SPLITS.index(part): [
                stack.enter_context((folder / f"{part}{extension}").open("w", encoding="utf-8", newline="\n"))
                for extension in extensions
            ]
            for part in parts
        }
        for block in with_bar(blocks, "Writing"):
            chosen = part_of[done : done + len(block.src)].tolist()
            done += len(block.src)
            if len(chosen) != len(block.src):
                raise changed
            for index, *sides in zip(chosen, block.src, block.tgt, strict=True):
                for file, text in zip(files[index], sides, strict=True):
                    write_line(file, text)
    if done != len(part_of):
        raise changed


def _move(names: list[str], source: Path, target: Path) -> None:
    """Each of these files, or none, from one folder to another, which had none of them."""
    try:
        for name in names:
            (source / name).rename(target / name)
    except BaseException:
        for name in names:
            if not exists(source / name):
                (target / name).unlink(missing_ok=True)
        raise


def extensions(src: Path, tgt: Path) -> tuple[str, str]:
    """How files of both sides end: as these do, or `.src` and `.tgt` where that does not tell them apart."""
    ends = [suffix_of(path) for path in (src, tgt)]
    return (ends[0], ends[1]) if all(ends) and ends[0] != ends[1] else (".src", ".tgt")


def _refuse_to_overwrite(paths: list[Path]) -> None:
    if there := [path for path in paths if exists(path)]:
        raise UserError(f"{there[0]} exists, and is not overwritten. Delete it, or choose another folder.")
