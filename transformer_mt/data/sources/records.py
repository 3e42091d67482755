"""Sentence pairs out of files of records: CSV with a header, JSON lines. A cell is text as it stands."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_mt.data.longest_line import BEYOND, LONGEST_LINE, is_beyond
from transformer_mt.data.sources.columns import NESTED, as_text, choose_columns
from transformer_mt.data.sources.files import decode, read_lines, read_raw_lines, strip_line_end
from transformer_mt.data.sources.source import RawPair
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted

LONGEST_CSV_FIELD = 16 * LONGEST_LINE  # characters; what is longer is a quote that was never closed
LONE_CR = "\udc0d"  # stands for \r inside the csv module; decoding UTF-8 never yields it
BLANK: dict[str, object] = {NESTED: None}

Choices = Sequence[tuple[str, str]]  # see `columns.column_choices`


def csv_pairs(path: Path, choices: Choices) -> Iterator[RawPair]:
    """The pairs of a CSV file, in which the first line that is not empty names the columns. An empty line is a pair of
    blank sides.
    """
    rows = _csv_rows(path)
    header_line, header = next((row for row in rows if row[1]), (1, []))
    if not header:
        return
    chosen = choose_columns(choices, header, [], f"{path}, line {header_line} (the header)")
    src, tgt = header.index(chosen.src), header.index(chosen.tgt)
    for number, row in rows:
        if len(row) == len(header):
            yield RawPair(row[src], row[tgt], number)
        elif not row:
            yield RawPair("", "", number)
        elif row[0] is BEYOND:
            yield RawPair(BEYOND, BEYOND, number)
        else:
            raise UserError(
                f"{path}, line {number}: {counted(len(row), 'column')}, but the header has "
                f'{len(header)}. Put double quotes around a text that holds a comma, and double a quote inside it: "".'
            )


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """`(line on which the row begins, its cells)`. A row with quotes may span several lines. If one of them is too
    long, the row is the single cell `BEYOND`.
    """
    csv.field_size_limit(LONGEST_CSV_FIELD)
    lines = _CsvLines(path)
    reader = csv.reader(lines, strict=True)
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


def jsonl_pairs(path: Path, choices: Choices) -> Iterator[RawPair]:
    """The pairs of a file with one JSON object a line. The texts stand in the object or in its object `translation`."""
    for number, line in read_lines(path):
        if is_beyond(line):
            yield RawPair(BEYOND, BEYOND, number)
            continue
        place = f"{path}, line {number}"
        row = _json_object(line, place) if line.strip() else BLANK
        inner = row.get(NESTED, {})
        if inner is None:  # null: both sides are blank
            inner = dict.fromkeys(choices[0])
        nested = inner if isinstance(inner, dict) else {}
        chosen = choose_columns(choices, list(row), list(nested), place)
        cells = nested if chosen.nested else row
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
