"""Which columns of a table hold the two sides."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.errors import UserError

NESTED = "translation"  # the column in which hub data sets keep {"en": ..., "es": ...}
Column = TypeVar("Column", int, str)
MAX_NAMES, MAX_LENGTH = 30, 60  # of what a message shows


class Columns(NamedTuple):
    """The names of the two columns, and whether they are inside the column `translation`."""

    src: str
    tgt: str
    nested: bool


def column_choices(source: SourceConfig, data: DataConfig) -> list[tuple[str, str]]:
    """The pairs of column names to try, in order: those that are set, else the language codes, else src and tgt.

    The codes are not tried where both sides are in one language (simpler words, corrected spelling), or where nobody
    gave them. They find the right sides of any source. Of one that is reversed all other names change places.
    """
    columns = source.columns or data.columns
    if columns is None:
        codes = data.languages_of(source)
        unnamed = _turned(source, "src", "tgt")
        return [unnamed] if codes[0] == codes[1] or set(codes) == set(unnamed) else [codes, unnamed]
    if isinstance(columns.src, int) or isinstance(columns.tgt, int):
        raise UserError(
            f"columns is {{src: {columns.src}, tgt: {columns.tgt}}}, but a {source.kind} source has names for its "
            "columns. Give the names, in quotes if they are digits."
        )
    return [_turned(source, columns.src, columns.tgt)]


def column_numbers(source: SourceConfig, data: DataConfig) -> tuple[int, int]:
    """The 1-based columns of a TSV file: those that are set, else 1 and 2."""
    columns = source.columns or data.columns
    if columns is None:
        return _turned(source, 1, 2)
    if isinstance(columns.src, str) or isinstance(columns.tgt, str):
        raise UserError(
            f"columns is {{src: {columns.src}, tgt: {columns.tgt}}}, but a TSV file has no header. "
            "Give this source numbers from 1, for example columns: {src: 1, tgt: 2}."
        )
    return _turned(source, columns.src, columns.tgt)


def _turned(source: SourceConfig, src: Column, tgt: Column) -> tuple[Column, Column]:
    return (tgt, src) if source.reverse else (src, tgt)


def choose_columns(
    choices: Sequence[tuple[str, str]], names: Sequence[str], nested: Sequence[str], place: str
) -> Columns:
    """The first of `choices` that exists among `names`, or else among `nested`, the names inside `translation`.

    Raises `UserError` naming `place` and the columns that exist.
    """
    for level in (names, nested):
        for src, tgt in choices:
            if src in level and tgt in level:
                for name in (src, tgt):
                    if level.count(name) > 1:
                        raise UserError(f"{place}: two columns are named {name}. Rename one of them.")
                return Columns(src, tgt, level is nested)
    wanted = ", nor ".join(" and ".join(dict.fromkeys(choice)) for choice in choices)
    inside = f", and {NESTED} holds {_listed(nested)}" if nested else ""
    raise UserError(
        f"{place}: no columns {wanted}; the columns that exist are {_listed(names) or 'none'}{inside}. "
        + _way_to_columns(names)
    )


def _way_to_columns(names: Sequence[str]) -> str:
    """What to do about a header that lacks the wanted columns."""
    (first, *others) = names or [""]
    if not others and "\t" in first:
        return "That is one column with tabs in it: if they are between its cells, name the file as tsv."
    if not others and ";" in first:
        return "That is one column with semicolons in it: if they are between its cells, write the file with commas."
    return "Name the two that hold the text, for example columns: {src: english, tgt: spanish}."


def _listed(names: Sequence[str]) -> str:
    """The names for a message, cut so that it stays short whatever file was taken for a table."""
    shown = [name if len(name) <= MAX_LENGTH else f"{name[:MAX_LENGTH]}..." for name in map(str, names[:MAX_NAMES])]
    more = [f"{len(names) - MAX_NAMES:,} more"] if len(names) > MAX_NAMES else []
    return ", ".join([*shown, *more])


def as_text(value: object, column: str, place: str) -> str:
    """The text of a cell; null is a blank side. Raises `UserError` for anything else."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    kind = type(value).__name__
    raise UserError(
        f"{place}: column {column} holds a value of type {kind}, not text. "
        "Name the columns that hold the text with columns: {src: ..., tgt: ...}, or write this one as text."
    )
