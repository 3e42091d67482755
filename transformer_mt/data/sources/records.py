"""Sentence pairs out of files of records: CSV with a header, JSON lines, a JSON array. A cell is text as it stands."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from transformer_mt.data.longest_line import BEYOND, LONGEST_LINE, is_beyond
from transformer_mt.data.sources.columns import NESTED, Columns, as_text, choose_columns
from transformer_mt.data.sources.files import (
    decode,
    open_plain,
    read_lines,
    read_raw_lines,
    read_whole_text,
    strip_line_end,
)
from transformer_mt.data.sources.source import RawPair
from transformer_mt.errors import UserError

LONGEST_CSV_FIELD = 16 * LONGEST_LINE  # characters; what is longer is a quote that was never closed
LONE_CR = "\udc0d"  # stands for \r inside the csv module; decoding UTF-8 never yields it
DELIMITERS = {",": "comma", "\t": "tab"}
BLANK: dict[str, object] = {NESTED: None}

Choices = Sequence[tuple[str, str]]  # see `columns.column_choices`


def csv_pairs(
    path: Path,
    choices: Choices,
    delimiter: str = ",",
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL,
    names: list[str] | None = None,
    blank_lines: bool = True,
) -> Iterator[RawPair]:
    """The pairs of a CSV file, in which the first line that is not empty names the columns, unless `names` does.

    quoting: `csv.QUOTE_NONE` takes quotes for text. blank_lines: whether an empty line is a pair of blank sides.
    """
    rows = _csv_rows(path, delimiter, quoting)
    header_line, header = (1, names) if names else next((row for row in rows if row[1]), (1, []))
    if not header:
        return
    chosen = choose_columns(choices, header, [], f"{path}, line {header_line} (the header)")
    src, tgt = header.index(chosen.src), header.index(chosen.tgt)
    name = DELIMITERS.get(delimiter, repr(delimiter))
    for number, row in rows:
        if len(row) == len(header):
            yield RawPair(row[src], row[tgt], number)
        elif not row:
            yield from [RawPair("", "", number)] * blank_lines
        elif row[0] is BEYOND:
            yield RawPair(BEYOND, BEYOND, number)
        else:
            raise UserError(
                f"{path}, line {number}: {len(row)} column{'' if len(row) == 1 else 's'}, but the header has "
                f"{len(header)}. Put double quotes around a text that holds a {name}, and double a quote inside it: "
                '"".'
            )


def _csv_rows(path: Path, delimiter: str, quoting: Literal[0, 3]) -> Iterator[tuple[int, list[str]]]:
    """`(line on which the row begins, its cells)`. A row with quotes may span several lines. If one of them is too
    long, the row is the single cell `BEYOND`.
    """
    csv.field_size_limit(LONGEST_CSV_FIELD)
    lines = _CsvLines(path)
    reader = csv.reader(lines, strict=True, delimiter=delimiter, quoting=quoting)
    while True:
        begin = reader.line_num + 1
        lines.is_quoted = lines.is_beyond = False
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(
                f"{path}, line {begin}: the row that begins here is not CSV ({error}). "
                'Close every double quote, and double a quote inside a quoted text: "".'
            ) from None
        yield begin, [BEYOND] if lines.is_beyond else [cell.replace(LONE_CR, "\r") for cell in row]


class _CsvLines:
    """Lines with their ends. A `\\r` within a line is hidden, since the csv module would end the row there.

    `BEYOND` stands for a line that is too long, with a quote where the line opens or closes one. `is_beyond` says
    whether the row has had such a line, and `is_quoted` whether a quote is open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = enumerate(read_raw_lines(path), start=1)
        self.is_quoted = self.is_beyond = False

    def __iter__(self) -> "_CsvLines":
        return self

    def __next__(self) -> str:
        number, raw = next(self._lines)
        line = decode(raw, self._path, number)
        if "\r" in line:
            text = strip_line_end(line)
            line = text.replace("\r", LONE_CR) + line[len(text) :]
        is_odd = line.count('"') % 2 == 1
        if is_beyond(line):
            self.is_beyond = True
            quote = '"' * is_odd
            line = f"{BEYOND}{quote}\n" if self.is_quoted else f"{quote}{BEYOND}\n"
        self.is_quoted ^= is_odd
        return line


def jsonl_pairs(path: Path, choices: Choices, strict: bool = True) -> Iterator[RawPair]:
    """The pairs of a file with one JSON object a line. The texts stand in the object or in its object `translation`.

    Unless strict, a line may leave out keys of the first line, which are then null, and empty lines are skipped.
    """
    places = ((f"{path}, line {number}", number, line) for number, line in read_lines(path))
    rows = (
        (place, number, None if is_beyond(line) else _json_object(line, place) if line.strip() else BLANK)
        for place, number, line in places
        if strict or line.strip()
    )
    yield from _pairs_of_objects(rows, choices, strict)


def json_pairs(path: Path, choices: Choices, field: str | None = None, strict: bool = True) -> Iterator[RawPair]:
    """The pairs of such a file, or of an array of such objects; with `field`, the array is that field of an object."""
    with open_plain(path) as file:
        is_array = file.read(2**10).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    if not is_array and field is None:
        yield from jsonl_pairs(path, choices, strict)
        return
    text = read_whole_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}). Write one JSON object a line, or an array of them.") from None
    rows = content if field is None else content.get(field) if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise UserError(f"{path} has no array {field!r} of objects. Name the field that holds the pairs, or none.")
    yield from _pairs_of_objects(_objects(rows, path), choices, strict)


def _objects(rows: list[object], path: Path) -> Iterator[tuple[str, int, dict[str, object]]]:
    for number, row in enumerate(rows, start=1):
        place = f"{path}, element {number}"
        if not isinstance(row, dict):
            raise UserError(f"{place}: a JSON {type(row).__name__}, not an object. Write an array of objects.")
        yield place, number, row


def _pairs_of_objects(
    rows: Iterable[tuple[str, int, dict[str, object] | None]], choices: Choices, strict: bool
) -> Iterator[RawPair]:
    """The pairs of `(place, number, object)`; None stands for an object that is too long."""
    names: set[str] = set()  # of the first row that has all
    chosen = Columns("", "", False)
    for place, number, row in rows:
        if row is None:
            yield RawPair(BEYOND, BEYOND, number)
            continue
        inner = row.get(NESTED, {})
        if inner is None:  # null: both sides are blank
            inner = dict.fromkeys(choices[0])
        nested = inner if isinstance(inner, dict) else {}
        cells = nested if NESTED in row else row
        if strict or not names or not cells.keys() <= names:
            chosen = choose_columns(choices, list(row), list(nested), place)
            cells = nested if chosen.nested else row
            names = names or set(cells)
        src, tgt = (_json_text(cells.get(name), name, place) for name in chosen[:2])
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
