"""A process of several that leaves alone, by an exception: it neither waits for the others nor keeps its message back.

There is no GPU in these tests: NCCL's part, which lets nobody leave alone, is planted.
"""

import json
import subprocess
import sys

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
    monkeypatch.setattr(processes, "_meet", lambda world: store)
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


# Each member is a copy of one process, which has imported what they need, and ends as any Python does.
MEMBERS = """
import atexit, json, os, sys
from torch import distributed
import transformer_mt.cli.main as module
from transformer_mt.errors import UserError

def become_member(name, act):
    for descriptor, stream in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{name}.{stream}", os.O_CREAT | os.O_WRONLY), descriptor)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    atexit.register(print, "the end of Python, where NCCL waits")

    def app(prog_name):
        print("some output")
        exec(act)

    module.app = app
    module.main()

statuses = {}
for name, act in json.loads(sys.argv.pop()).items():
    if os.fork() == 0:
        become_member(name, act)
        sys.exit("main came back")
    statuses[name] = os.waitstatus_to_exitcode(os.wait()[1])
print(json.dumps(statuses))
"""

NO_ROOM = "raise UserError('There is no room.')"
# By the name of a member: what it does, its exit status, and what it says.
ENDINGS = {
    "error of the user": (NO_ROOM, 2, "tmt: There is no room.\n"),
    "Ctrl-C": ("raise KeyboardInterrupt", 130, "tmt: stopped\n"),
    "error of ours": ("raise ZeroDivisionError('ours')", 1, "ZeroDivisionError: ours\n"),
    "exit with a status": ("sys.exit(143)", 143, ""),
    "exit": ("sys.exit()", 0, ""),
}
LEFT = "has left"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """The exit status of each member, and what it wrote to standard output and standard error."""
    folder = tmp_path_factory.mktemp("members")
    acts = {name: act for name, (act, *_) in ENDINGS.items()}
    acts[LEFT] = f"distributed.destroy_process_group(); {NO_ROOM}"
    told = subprocess.check_output([sys.executable, "-c", MEMBERS, json.dumps(acts)], cwd=folder, timeout=60)
    statuses = json.loads(told)

    def said(name: str, stream: str) -> str:
        return (folder / f"{name}.{stream}").read_text()

    return {name: (statuses[name], said(name, "out"), said(name, "err")) for name in acts}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_member_tells_what_happened_and_ends_without_the_end_of_python(
    name: str, ended: dict[str, tuple[int, str, str]]
) -> None:
    status, out, said = ended[name]
    assert status == ENDINGS[name][1], said
    assert said.endswith(ENDINGS[name][2])
    assert out == "some output\n"


def test_who_has_left_ends_as_ever(ended: dict[str, tuple[int, str, str]]) -> None:
    status, out, said = ended[LEFT]
    assert (status, said) == (2, "tmt: There is no room.\n")
    assert out.endswith("NCCL waits\n")
