"""Lines as they come, from whatever they come."""

import io
import os
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from translators import SMALL, make_translator

from transformer_mt.data.longest_line import LONGEST_LINE, is_beyond
from transformer_mt.decoding.lines.line_formats import moses_lines, text_lines
from transformer_mt.decoding.lines.line_stream import chunk_lines
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translation import Translated, Translation
from transformer_mt.errors import UserError


class Pieces(io.RawIOBase):
    """A stream that gives these one after the other, and raises those that are errors."""

    def __init__(self, *pieces: bytes | OSError) -> None:
        self.pieces = list(pieces)

    def read(self, size: int = -1) -> bytes:
        piece = self.pieces.pop(0) if self.pieces else b""
        if isinstance(piece, OSError):
            raise piece
        return piece


def lines_of(stream: io.RawIOBase) -> list[str]:
    return list(chain.from_iterable(chunk_lines(stream, 2)))


def test_lines_end_where_they_end_and_nowhere_else() -> None:
    stream = Pieces(b"\xef\xbb\xbfone\r\ntw", b"o\n\nthr\xffee\x85", b"four\r five\xe2\x80\xa8\n", b"six")
    assert lines_of(stream) == ["one", "two", "", "thr\ufffdee\ufffdfour\r five\u2028", "six"]


@pytest.mark.skipif(sys.platform == "win32", reason="no pipe there can be set not to wait")
def test_a_pipe_that_does_not_wait_is_waited_for() -> None:
    """Its end is where it is closed, not where nothing has come yet."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def write() -> None:
        with io.FileIO(writing, "w") as file:
            for piece in (b"one\ntw", b"o\n", b"three\n"):
                time.sleep(0.2)
                file.write(piece)

    threading.Thread(target=write).start()
    with io.FileIO(reading) as stream:
        assert lines_of(stream) == ["one", "two", "three"]


def test_what_cannot_be_read_is_the_input() -> None:
    chunks = chunk_lines(Pieces(b"one\ntwo\nthr", OSError(5, "Input/output error")), 2)
    assert next(chunks) == ["one", "two"]
    with pytest.raises(UserError, match=r"The input cannot be read: Input/output error\."):
        next(chunks)


@pytest.mark.skipif(sys.platform != "linux", reason="a file that opens and cannot be read")
def test_a_file_that_cannot_be_read_is_named() -> None:
    with io.FileIO("/proc/self/mem") as stream, pytest.raises(UserError, match="/proc/self/mem cannot be read: "):
        next(chunk_lines(stream, 2))


def test_memory_does_not_grow_with_a_line_to_translate(tmp_path: Path) -> None:
    """300 MB of zeros, which take no room on most disks."""
    with (tmp_path / "lines").open("wb") as file:
        file.write(b"one\n")
        file.truncate(300_000_000)
        file.seek(0, io.SEEK_END)
        file.write(b"\nthree\n")
    tracemalloc.start()
    try:
        with io.FileIO(tmp_path / "lines") as stream:
            one, two, three = lines_of(stream)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (one, three) == ("one", "three")
    assert is_beyond(two)
    assert peak < 30_000_000


def test_of_many_long_lines_few_are_in_memory() -> None:
    long = b"x" * (LONGEST_LINE - 1) + b"\n"
    stream = Pieces(*[long] * 300)
    tracemalloc.start()
    try:
        lengths = {len(line) for chunk in chunk_lines(stream, 1000) for line in chunk}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert lengths == {LONGEST_LINE - 1}
    assert peak < 30_000_000


def test_a_line_that_is_cut_within_a_character_is_not_told_as_damaged() -> None:
    """Only the length of such a line is known; the next one that is no UTF-8 is told."""
    told: list[int] = []
    text = "x" * 7 + "é" * LONGEST_LINE
    content = io.BytesIO(text.encode() + b"\nb\xff\n")
    first, second = chain.from_iterable(chunk_lines(content, 2, told.append))
    assert is_beyond(first)
    assert (second, told) == ("b\ufffd", [2])


@pytest.mark.parametrize("too_long", TooLong)
def test_a_text_that_is_too_long_for_any_model_has_no_translation(too_long: TooLong) -> None:
    translator = make_translator(SMALL)
    options = search_options(translator.config.decoding, too_long=too_long)
    results = translator.translate_lines(["one", "x " * LONGEST_LINE, "one"], options)
    assert [(len(result.hypotheses) > 0, result.too_long) for result in results] == [
        (True, False),
        (False, True),
        (True, False),
    ]


@pytest.mark.parametrize("text", ["a ||| b", "||| a", "a |||", "|||||", "a || b", "|", "a | | | b"])
def test_a_text_cannot_break_the_columns_of_moses(text: str) -> None:
    (line,) = moses_lines(3, Translated("a", [Translation(text, -0.4, -3.1, [])]))
    number, found, feature, score = line.split(" ||| ")
    assert (number, feature, score) == ("2", "F0= -3.1000", "-0.4000")
    assert line.count("|||") == 3
    assert found.replace("&#124;", "|") == text
    translated = Translated("a", [Translation(text, -0.4, -3.1, [])], is_aligned=True)
    (line,) = text_lines(3, translated, 2)
    assert line == f"3 ||| {found} ||| -0.4000 ||| "
    assert text_lines(3, translated, 1) == [f"{found} ||| "]
    assert text_lines(3, replace(translated, is_aligned=False), 1) == [text]


@pytest.mark.parametrize("text", ["αβγ\nδ\n", "中文", "ਊ\n", "one\n"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_another_encoding_is_told_by_its_mark(encoding: str, text: str) -> None:
    """A line of Greek or Chinese has no NUL in UTF-16, and a byte of a letter may look like a line's end."""
    told = encoding.upper()[:6]
    with pytest.raises(UserError, match=rf"in\.txt is {told}\. Convert it: iconv -f {told} -t UTF-8 FILE"):
        list(chunk_lines(io.BytesIO(f"\ufeff{text}".encode(encoding)), 4, name="in.txt"))
