"""Sentence pairs out of every kind of source, one at a time, in constant memory.

What is read is what stands there: nothing is normalised, no word means "missing", no line is skipped.
Blank pairs are passed on; `corpus.py` drops and counts them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from transformer_mt.config.schema import DataConfig, SourceConfig
from transformer_mt.data.columns import PairBlock, RawPair, column_choices, column_numbers
from transformer_mt.data.files import read_line_blocks, read_lines, read_raw_lines, source_path
from transformer_mt.data.records import csv_pairs, jsonl_pairs
from transformer_mt.errors import UserError

BLOCK_PAIRS = 10_000
BLOCK_CHARACTERS = 2**24

OF_LINES = ("text", "tsv", "csv", "jsonl")


def read_pairs(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    """The pairs of one source, in its order, blank ones included.

    Two text files are walked side by side: that their line counts differ shows, and raises, after the last pair of
    the shorter one, so use no pair before the iterator has ended. Raises `UserError` for whatever cannot be read.
    """
    return READERS[source.kind](source, data)


def read_blocks(source: SourceConfig, data: DataConfig) -> Iterator[PairBlock]:
    """The same pairs some thousand at a time, bounded in characters too: for whoever wants all of them, and quickly."""
    return _text_blocks(source, data) if source.kind == "text" else _in_blocks(read_pairs(source, data))


def _in_blocks(pairs: Iterator[RawPair]) -> Iterator[PairBlock]:
    block: list[RawPair] = []
    num_characters = 0
    for pair in pairs:
        block.append(pair)
        num_characters += len(pair.src) + len(pair.tgt)
        if len(block) == BLOCK_PAIRS or num_characters >= BLOCK_CHARACTERS:
            yield _side_by_side(block)
            block, num_characters = [], 0
    if block:
        yield _side_by_side(block)


def _side_by_side(pairs: list[RawPair]) -> PairBlock:
    return PairBlock([pair.src for pair in pairs], [pair.tgt for pair in pairs], [pair.line for pair in pairs])


def describe(source: SourceConfig) -> str:
    """The source in a few words, as the configuration names it: `train.en / train.de`."""
    if source.kind == "text":
        return f"{source.src} / {source.tgt}"
    name = str(getattr(source, source.kind))
    if source.kind == "hub":
        return f"{name} ({', '.join(filter(None, [source.config, source.split]))})"
    return f"builtin:{name} ({source.split})" if source.kind == "builtin" else name


def place(source: SourceConfig, number: int) -> str:
    """Where a pair stands: `train.en / train.de, line 17`; of what has no lines of its own, `pairs.parquet, row 17`."""
    return f"{describe(source)}, {'line' if source.kind in OF_LINES else 'row'} {number}"


def without_pairs(source: SourceConfig) -> UserError:
    """What to raise where one of several sources held nothing: a file that was never written, a download cut short."""
    return UserError(f"{describe(source)} holds not a single pair. Check it, or take it out of the sources.")


def source_files(source: SourceConfig, data: DataConfig) -> list[Path]:
    """The files whose bytes are the content; of the built-in corpus, its grammar. Empty for a data set of the hub."""
    if source.kind == "text":
        return [source_path(str(source.src), data), source_path(str(source.tgt), data)]
    if source.kind == "hub":
        from transformer_mt.data.hub_folder import local_hub_files

        return local_hub_files(source, data)
    if source.kind == "builtin":
        return sorted((Path(__file__).parent / "builtin").glob("*.py"))
    return [_only_path(source, data)]


def source_settings(source: SourceConfig, data: DataConfig) -> list[str]:
    """What stands beside those files and says how they are read."""
    if source.kind != "hub":
        return []
    from transformer_mt.data.hub_folder import folder_settings

    return folder_settings(source, data)


def _only_path(source: SourceConfig, data: DataConfig) -> Path:
    return source_path(str(getattr(source, source.kind)), data)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _text_blocks(source: SourceConfig, data: DataConfig) -> Iterator[PairBlock]:
    paths = source_files(source, data)
    src_blocks, tgt_blocks = (_or_error(read_line_blocks(path)) for path in paths)
    src, tgt = next(src_blocks), next(tgt_blocks)
    number = 0
    while not isinstance(src, UserError) and not isinstance(tgt, UserError) and (size := min(len(src), len(tgt))):
        yield PairBlock(src[:size], tgt[:size], range(number + 1, number + 1 + size))
        number += size
        src = src[size:] or next(src_blocks)
        tgt = tgt[size:] or next(tgt_blocks)
    for side, other in ((src, tgt), (tgt, src)):
        if isinstance(side, UserError) and other:  # what cannot be read has a partner
            raise side
    if src or tgt:
        num_src, num_tgt = (sum(1 for _ in read_raw_lines(path)) for path in paths)
        raise UserError(
            f"{paths[0]} has {num_src:,} line{_s(num_src)} and {paths[1]} has {num_tgt:,}. "
            "Line n of one must translate line n of the other: find where they part, and make them equal."
        )


def _or_error(blocks: Iterator[list[str]]) -> Iterator[list[str] | UserError]:
    """The blocks, the error that comes in the place of one, and without end, after the last block, an empty one."""
    try:
        yield from blocks
    except UserError as error:
        yield error
    while True:
        yield []


def _read_text(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    for block in _text_blocks(source, data):
        yield from map(RawPair, *block)


def _read_tsv(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    path = _only_path(source, data)
    src, tgt = column_numbers(source, data)
    needed = max(src, tgt)
    for number, line in read_lines(path):
        fields = line.split("\t")
        if len(fields) >= needed:
            yield RawPair(fields[src - 1], fields[tgt - 1], number)
        elif not line.strip():
            yield RawPair("", "", number)
        else:
            raise UserError(
                f"{path}, line {number}: {len(fields)} column{_s(len(fields))}, but column {needed} is needed. "
                "Put one tab between the columns, or name others, for example columns: {src: 1, tgt: 2}."
            )


def _read_csv(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    yield from csv_pairs(_only_path(source, data), column_choices(source, data))


def _read_jsonl(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    yield from jsonl_pairs(_only_path(source, data), column_choices(source, data))


def _read_parquet(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    from transformer_mt.data.tables import parquet_pairs  # pyarrow takes a while to import

    yield from parquet_pairs(_only_path(source, data), column_choices(source, data))


def _read_hub(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    from transformer_mt.data.hub import hub_pairs

    yield from hub_pairs(source, data)


def _read_builtin(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    from transformer_mt.data.builtin import builtin_pairs

    for number, (src, tgt) in enumerate(builtin_pairs(str(source.split)), start=1):
        yield RawPair(src, tgt, number)


READERS: dict[str, Callable[[SourceConfig, DataConfig], Iterator[RawPair]]] = {
    "text": _read_text,
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
    "hub": _read_hub,
    "builtin": _read_builtin,
}
