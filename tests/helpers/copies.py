"""Processes that need not load torch: copies of a process that has imported all of it already. Most are of `tmt`.

A copy has the folder and the environment that it is given. What differs from a new Python: all copies of one test run
share the seed by which Python orders sets. So whoever shows that two runs are the same compares a copy with a process
that is none. And a copy finds signals, libraries and `transformer_mt` as they are by default: whatever changes them
before the start, or shows what is imported, needs a new Python.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from unittest.mock import patch

# All that a training imports and prepares. What is missing here costs time and nothing else.
LIBRARIES = [
    "torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.launcher.api", "torch.utils.tensorboard",
    "numpy", "numba", "datasets", "tokenizers", "safetensors.torch", "sacrebleu", "matplotlib.figure",
    "matplotlib.backends.backend_agg", "typer", "pydantic", "yaml", "regex", "tqdm",
    "transformer_mt.cli.main", "transformer_mt.training.run", "transformer_mt.decoding.translator", "ready",
]  # fmt: skip


def forkserver() -> ForkServerContext:
    """Its processes are copies of one that has imported `LIBRARIES`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    # For the process that is copied, which imports torch, and ready.py from here.
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    with patch.dict(os.environ, {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}):
        ensure_running()
    return context


class Copy:
    """`python -m PROGRAM ARGUMENTS` in `folder`, running, where torch finds one core; as much of `subprocess.Popen` as
    the tests need. Where `together`, both outputs are one. Standard output may go to a file, `stdout`.
    """

    def __init__(
        self, folder: Path, *arguments: str, environment: Mapping[str, str], stdin: bytes = b"", together: bool = False,
        program: str = "transformer_mt", stdout: Path | None = None,
    ) -> None:  # fmt: skip
        context = forkserver()
        self.args = arguments
        self._streams = [tempfile.NamedTemporaryFile() for _ in range(2 if together else 3)]  # noqa: SIM115
        self._streams[0].write(stdin)
        self._streams[0].flush()
        names = [stream.name for stream in self._streams]
        if stdout is not None:
            names[1] = str(stdout)
        self._process = context.Process(
            target=_become, args=(program, arguments, str(folder), {**environment, "OMP_NUM_THREADS": "1"}, names)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = 300) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            self.kill()
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        """Both outputs, once it has ended. The second one is empty where they are together."""
        self.wait(timeout)
        outputs = [Path(stream.name).read_bytes().decode("utf-8", "surrogateescape") for stream in self._streams[1:]]
        for stream in self._streams:
            stream.close()
        return outputs[0], "".join(outputs[1:])


def _become(
    program: str, arguments: tuple[str, ...], folder: str, environment: dict[str, str], names: list[str]
) -> None:
    """Be what `python -m PROGRAM` is."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate((*names, names[-1])[:3]):
        file = os.open(name, os.O_APPEND | (os.O_WRONLY if number else os.O_RDONLY))
        os.dup2(file, number)
        os.close(file)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = open(number, "w" if number else "r", encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores
    sys.argv[1:] = arguments
    runpy.run_module(program, run_name="__main__", alter_sys=True)
