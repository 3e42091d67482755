"""What all tests share: the real text beside the repository, and a cache folder that is not the user's."""

import functools
import gc
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import typer.main
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"

# Set here and not in a fixture: `datasets` reads it when it is imported. Deleted when the process ends.
_CACHE = tempfile.TemporaryDirectory(prefix="transformer_mt_tests_")
os.environ["XDG_CACHE_HOME"] = _CACHE.name

# The command line is built once, and not by each of the thousands of commands that a process of tests gives.
typer.main.get_command = functools.cache(typer.main.get_command)

# What a test writes need not outlive a power failure, and a disk takes 4 ms to make sure of a file: a tenth of the time
# of all tests. Those that look at what is made sure of, and in what order, ask `synced`.
os.fsync = lambda descriptor: None

# A case may take as long as it needs: on a busy machine any does. All else is as hypothesis has it, for CI too.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_configure(config: pytest.Config) -> None:
    """On a machine with a GPU the tests are what they are on others: only those that `-m gpu` asks for see it."""
    if not re.search(r"(?<!not )\bgpu\b", config.option.markexpr):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["TRITON_INTERPRET"] = "1"  # kernels for a GPU are interpreted; Triton looks when it is imported
    # A shell has its background jobs ignore Ctrl-C, and the commands that tests begin would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The mark `gpu` alone makes a test wait for one: no test says again that it needs what its mark names."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device, or not asked for by -m gpu"))


def pytest_collection_finish() -> None:
    """What was imported stays. The collector of garbage would look through all of torch each time that it is asked.

    Drawing attention at each validation is a third of a toy's training. A grey square stands in for it: trainings that
    are processes of their own draw.
    """
    if loop := sys.modules.get("transformer_mt.training.loop"):
        loop.attention_picture = lambda *arguments: np.full((4, 4, 3), 128, np.uint8)  # pyright: ignore[reportAttributeAccessIssue]
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Finds `../shared/data/RELATIVE`; skips without `../shared`, and fails where only the file is missing."""

    def find(relative: str) -> Path:
        if not SHARED.exists():
            pytest.skip(f"real text is needed: there is no folder {SHARED}")
        path = SHARED / "data" / relative
        if not path.exists():
            pytest.fail(f"{SHARED} is there, but {path} is missing")
        return path

    return find


@pytest.fixture
def folder_without_rights() -> Iterator[Path]:
    """A new folder, and meanwhile none of the rights that root has."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """How large each file was when it was last made sure of, by its inode."""
    found: dict[int, int] = {}
    monkeypatch.setattr(os, "fsync", lambda file: found.update({os.fstat(file).st_ino: os.fstat(file).st_size}))
    return found


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where Triton kernels are compared with the formulas: a GPU, and a CPU, where they are interpreted."""
    pytest.importorskip("triton", reason="Triton is not installed; `pip install triton` brings it")
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def torch_threads() -> Iterator[None]:
    """A test leaves torch as many threads as it found: with others, sums of later tests differ in the last bit."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


_CASES: dict[str, int] = {}


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Counts the cases of a property test, which hypothesis tells in words."""
    told = re.findall(r"(\d+) passing", getattr(item, "hypothesis_statistics", ""))
    if told:
        item.user_properties.append(("num_cases", sum(map(int, told))))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collects the cases of the tests of all workers."""
    for name, value in report.user_properties:
        if name == "num_cases" and isinstance(value, int):
            _CASES[report.nodeid] = value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _CASES:
        terminalreporter.write_line(f"property tests: {sum(_CASES.values()):,} cases in {len(_CASES)} tests")
