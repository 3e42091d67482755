"""A process of several that leaves alone, by an exception: it neither waits for the others nor keeps its message back.

There is no GPU in these tests: NCCL's part, which lets nobody leave alone, is planted.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage], documented there

from transformer_mt.errors import UserError
from transformer_mt.machine import processes
from transformer_mt.machine.processes import joined
from transformer_mt.machine.world import World


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to the group, of one process."""
    events: list[str] = []
    store = HashStore()
    monkeypatch.setattr(processes, "_connect", lambda world, backend: events.append(backend) or "prefix")
    monkeypatch.setattr(processes, "shared_store", lambda: store)
    monkeypatch.setattr(processes, "set_group_timeout", lambda timeout: None)
    monkeypatch.setattr(World, "arrive", lambda world: None)
    monkeypatch.setattr(distributed, "barrier", lambda: None)
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: events.append("left"))
    return events


@pytest.mark.parametrize(("device", "fails", "leaves"), [
    ("cpu", False, True), ("cpu", True, True), ("cuda:0", False, True), ("cuda:0", True, False),
])  # fmt: skip
def test_on_a_gpu_nobody_leaves_alone(left: list[str], device: str, fails: bool, leaves: bool) -> None:
    raised = None
    try:
        with joined(torch.device(device), timeout_minutes=1):
            if fails:
                raise UserError("no room")
    except UserError as error:
        raised = str(error)
    assert raised == ("no room" if fails else None)
    assert left == ["gloo" if device == "cpu" else "cpu:gloo,cuda:nccl", *["left"] * leaves]


MEMBER = """
import atexit, sys
from torch import distributed
import transformer_mt.cli.main as module
from transformer_mt.errors import UserError

distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
atexit.register(print, "the end of Python, where NCCL waits")

def app(prog_name):
    print("some output")
    {act}

module.app = app
module.main()
"""


@pytest.mark.parametrize(
    ("act", "status", "told"),
    [
        ("raise UserError('There is no room.')", 2, "tmt: There is no room.\n"),
        ("raise KeyboardInterrupt", 130, "tmt: stopped\n"),
        ("raise ZeroDivisionError('ours')", 1, "ZeroDivisionError: ours\n"),
        ("sys.exit(143)", 143, ""),
        ("sys.exit()", 0, ""),
    ],
)
def test_a_member_tells_what_happened_and_ends_without_the_end_of_python(
    act: str, status: int, told: str, tmp_path: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", MEMBER.format(act=act)], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert result.returncode == status, result.stderr
    assert result.stderr.endswith(told)
    assert result.stdout == "some output\n"


def test_who_has_left_ends_as_ever(tmp_path: Path) -> None:
    code = MEMBER.format(act="distributed.destroy_process_group(); raise UserError('There is no room.')")
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                            check=False)  # fmt: skip
    assert (result.returncode, result.stderr) == (2, "tmt: There is no room.\n")
    assert result.stdout.endswith("NCCL waits\n")
