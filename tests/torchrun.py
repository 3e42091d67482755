"""Trainings of several processes, started by torch's own `torchrun`."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def start_together(
    number: int, folder: Path, *arguments: str, options: tuple[str, ...] = (), standalone: bool = True
) -> subprocess.Popen[str]:
    """`torchrun` in `folder`, with a program and its arguments, running; both outputs are one."""
    return subprocess.Popen(
        [
            sys.executable, "-m", "torch.distributed.run", *["--standalone"] * standalone,
            "--nproc-per-node", str(number), *options, *arguments,
        ],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )  # fmt: skip


def run_together(number: int, folder: Path, *arguments: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """The same to its end: exit status and output."""
    process = start_together(number, folder, *arguments, options=options)
    output, _ = process.communicate(timeout=300)
    print(output)
    return process.returncode, output
