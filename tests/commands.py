"""`tmt`: as a user starts it, or in this process, which has torch loaded, where a process of its own is no matter."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from copies import Copy

from transformer_mt.cli.main import main


def run_tmt(
    folder: Path, *arguments: str, stdin: bytes | None = None, threads: int = 1, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """`tmt` as a process, in `folder`, where torch finds so many cores. It is a copy where that is one."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "COLUMNS": "120"}
    if threads == 1:
        process = Copy(folder, *arguments, environment=environment, stdin=stdin or b"")
        stdout, stderr = process.communicate(timeout)
        status = process.wait(timeout)
    else:
        result = subprocess.run(
            [sys.executable, "-m", "transformer_mt", *arguments],
            cwd=folder, capture_output=True, input=stdin or b"", timeout=timeout, env=environment,
        )  # fmt: skip
        stdout, stderr = (stream.decode("utf-8", errors="surrogateescape") for stream in (result.stdout, result.stderr))
        status = result.returncode
    assert "Traceback" not in stderr, stderr
    return subprocess.CompletedProcess(arguments, status, stdout, stderr)


def call_tmt(
    folder: Path, *arguments: str, stdin: bytes = b"", together: bool = False
) -> subprocess.CompletedProcess[str]:
    """`tmt` in this process, in `folder`, on one core too; where `together`, both outputs are one. An error of ours
    is no message to the user: it goes on up and fails the test.
    """
    threads = torch.get_num_threads()
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
        stack.callback(torch.set_num_threads, threads)
        torch.set_num_threads(1)
        ended = stack.enter_context(pytest.raises(SystemExit))
        main()
    told = []
    for stream in (stdout, stderr):
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        told.append(stream.buffer.getvalue().decode("utf-8", errors="surrogateescape"))
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), told[0], told[1])
