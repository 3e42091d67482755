"""Sentence pairs out of every kind of source, one at a time, in constant memory.

What is read is what stands there: nothing is normalised, no word means "missing", no line is skipped.
Blank pairs are passed on; `corpus.py` drops and counts them.
"""

import csv
import json
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from transformer_mt.config.schema import DataConfig, SourceConfig
from transformer_mt.data.columns import NESTED, RawPair, as_text, choose_columns, column_choices, column_numbers
from transformer_mt.data.files import decode, read_lines, read_raw_lines, source_path, strip_line_end
from transformer_mt.errors import UserError

__all__ = ["RawPair", "describe", "read_pairs", "source_files"]

LONGEST_CSV_FIELD = 2**24  # characters; what is longer is a quote that was never closed
LONE_CR = "\udc0d"  # stands for \r inside the csv module; decoding UTF-8 never yields it


def read_pairs(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    """The pairs of one source, in its order, blank ones included.

    Two text files are walked side by side: that their line counts differ shows, and raises, after the last pair of
    the shorter one, so use no pair before the iterator has ended. Raises `UserError` for whatever cannot be read.
    """
    return READERS[source.kind](source, data)


def describe(source: SourceConfig, data: DataConfig) -> str:
    """The source in a few words, as the configuration names it: `train.en / train.de`."""
    if source.kind == "text":
        return f"{source.src} / {source.tgt}"
    name = str(getattr(source, source.kind))
    if source.kind == "hub":
        return f"{name} ({', '.join(filter(None, [source.config, source.split]))})"
    return f"builtin:{name} ({source.split})" if source.kind == "builtin" else name


def source_files(source: SourceConfig, data: DataConfig) -> list[Path]:
    """The files whose bytes are the content; of the built-in corpus, its grammar. Empty for a data set of the hub."""
    if source.kind == "text":
        return [source_path(str(source.src), data), source_path(str(source.tgt), data)]
    if source.kind == "hub":
        from transformer_mt.data.tables import local_hub_files

        return local_hub_files(source, data)
    if source.kind == "builtin":
        return sorted((Path(__file__).parent / "builtin").glob("*.py"))
    return [_only_path(source, data)]


def _only_path(source: SourceConfig, data: DataConfig) -> Path:
    return source_path(str(getattr(source, source.kind)), data)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _read_text(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    src_path, tgt_path = source_files(source, data)
    num_src = num_tgt = 0
    for src, tgt in zip_longest(read_raw_lines(src_path), read_raw_lines(tgt_path)):
        num_src += src is not None
        num_tgt += tgt is not None
        if src is not None and tgt is not None:
            src_text = strip_line_end(decode(src, src_path, num_src))
            yield RawPair(src_text, strip_line_end(decode(tgt, tgt_path, num_tgt)), num_src)
    if num_src != num_tgt:
        raise UserError(
            f"{src_path} has {num_src:,} line{_s(num_src)} and {tgt_path} has {num_tgt:,}. "
            "Line n of one must translate line n of the other: find where they part, and make them equal."
        )


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
    path = _only_path(source, data)
    rows = _csv_rows(path)
    header_line, header = next(rows, (1, []))
    if not header:
        return
    chosen = choose_columns(column_choices(source, data), header, [], f"{path}, line {header_line} (the header)")
    src, tgt = header.index(chosen.src), header.index(chosen.tgt)
    for number, row in rows:
        if len(row) == len(header):
            yield RawPair(row[src], row[tgt], number)
        elif not row:
            yield RawPair("", "", number)
        else:
            raise UserError(
                f"{path}, line {number}: {len(row)} column{_s(len(row))}, but the header has {len(header)}. "
                'Put double quotes around a text that holds a comma, and double a quote inside it: "".'
            )


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """`(line on which the row begins, its cells)`; a row inside quotes may span lines."""
    csv.field_size_limit(LONGEST_CSV_FIELD)
    reader = csv.reader(_csv_lines(path), strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(
                f"{path}, line {begin}: the row that begins here is not CSV ({error}). "
                'Close every double quote, and double a quote inside a quoted text: "".'
            ) from None
        yield begin, [cell.replace(LONE_CR, "\r") for cell in row]


def _csv_lines(path: Path) -> Iterator[str]:
    """Lines with their ends; a `\\r` that ends no line is hidden, since the csv module would end the row at it."""
    for number, raw in enumerate(read_raw_lines(path), start=1):
        line = decode(raw, path, number)
        if "\r" in line:
            text = strip_line_end(line)
            line = text.replace("\r", LONE_CR) + line[len(text) :]
        yield line


def _read_jsonl(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    path = _only_path(source, data)
    choices = column_choices(source, data)
    for number, line in read_lines(path):
        place = f"{path}, line {number}"
        row = _json_object(line, place) if line.strip() else {NESTED: None}
        inner = row.get(NESTED, {})
        if inner is None:  # null: both sides are blank
            inner = dict.fromkeys(choices[0])
        nested = list(inner) if isinstance(inner, dict) else []
        chosen = choose_columns(choices, list(row), nested, place)
        cells = inner if chosen.nested and isinstance(inner, dict) else row
        src, tgt = (_json_text(cells[name], name, place) for name in chosen[:2])
        yield RawPair(src, tgt, number)


def _json_object(line: str, place: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise UserError(f"{place}: not JSON ({reason}). Write one JSON object a line.") from None
    if not isinstance(row, dict):
        raise UserError(f"{place}: a JSON {type(row).__name__}, not an object. Write one JSON object a line.")
    return row


def _json_text(value: object, column: str, place: str) -> str:
    text = as_text(value, column, place)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(
            f"{place}: column {column} holds half of a surrogate pair (\\ud800 to \\udfff), which is no character. "
            "Write the character itself, or both halves."
        ) from None
    return text


def _read_parquet(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    from transformer_mt.data.tables import parquet_pairs  # pyarrow takes a while to import

    yield from parquet_pairs(_only_path(source, data), column_choices(source, data))


def _read_hub(source: SourceConfig, data: DataConfig) -> Iterator[RawPair]:
    from transformer_mt.data.tables import hub_pairs

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
