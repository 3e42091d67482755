"""Lines as they come, from whatever they come."""

import io
import os
import sys
import threading
import time
from itertools import chain

import pytest

from transformer_mt.decoding.streaming import chunk_lines
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
