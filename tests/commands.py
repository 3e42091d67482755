"""`tmt` as a user starts it."""

import os
import subprocess
import sys
from pathlib import Path


def run_tmt(
    folder: Path, *arguments: str, stdin: bytes | None = None, threads: int = 1
) -> subprocess.CompletedProcess[str]:
    """`tmt` as a user starts it, in `folder`, where torch finds so many cores."""
    result = subprocess.run(
        [sys.executable, "-m", "transformer_mt", *arguments],
        cwd=folder, capture_output=True, input=stdin if stdin is not None else b"", timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "COLUMNS": "120"},
    )  # fmt: skip
    stdout, stderr = (stream.decode("utf-8", errors="surrogateescape") for stream in (result.stdout, result.stderr))
    assert "Traceback" not in stderr, stderr
    return subprocess.CompletedProcess(arguments, result.returncode, stdout, stderr)
