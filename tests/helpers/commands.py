"""`tmt`: as a user starts it, or in this process, which has torch loaded, where a process of its own is no matter."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from copies import Copy
from threads import torch_threads

from transformer_mt.cli.main import main
from transformer_mt.decoding import translator


def run_tmt(
    folder: Path, *arguments: str, stdin: bytes | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """`tmt` as a process, in `folder`, where torch finds one core."""
    process = Copy(folder, *arguments, environment={**os.environ, "COLUMNS": "120"}, stdin=stdin or b"")
    stdout, stderr = process.communicate(timeout)
    status = process.wait(timeout)
    assert "Traceback" not in stderr, stderr
    return subprocess.CompletedProcess(arguments, status, stdout, stderr)


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """A limit on the size of files stands in for it: inside, the first bytes of a file are written, and no more."""
    resource = pytest.importorskip("resource", reason="no limits on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def call_tmt(
    folder: Path, *arguments: str, stdin: bytes = b"", together: bool = False, threads: int = 1
) -> subprocess.CompletedProcess[str]:
    """`tmt` in this process, in `folder`, where torch finds so many cores; where `together`, both outputs are one. An
    error of ours is no message to the user: it goes on up and fails the test.
    """
    reader, writer = os.pipe()
    assert os.write(writer, stdin) == len(stdin), "more than a pipe holds"
    os.close(writer)
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape", newline="\n")
    stderr = stdout if together else io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["tmt", *arguments])
        patch.setenv("COLUMNS", "120")
        patch.setattr(sys, "stdin", stack.enter_context(open(reader, encoding="utf-8")))
        stack.enter_context(contextlib.redirect_stdout(stdout))
        stack.enter_context(contextlib.redirect_stderr(stderr))
        # Where there are several, it would watch the cores of this process, and change them, until all tests end.
        patch.setattr(translator, "give_way", lambda num_threads: None)
        stack.enter_context(torch_threads(threads))
        ended = stack.enter_context(pytest.raises(SystemExit))
        main()
    told = []
    for stream in (stdout, stderr):
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        told.append(stream.buffer.getvalue().decode("utf-8", errors="surrogateescape"))
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), told[0], told[1])
