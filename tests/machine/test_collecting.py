"""The collector of garbage rests while a command begins, and no longer."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from transformer_mt.machine import collecting
from transformer_mt.machine.device import set_up


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """As Python begins; other tests in this process may have let it rest, or made it work."""
    found, waiting = gc.get_threshold(), list(collecting._usual)
    collecting._usual.clear()
    gc.set_threshold(700, 10, 10)
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*found)
    collecting._usual[:] = waiting


def test_it_rests_until_the_first_computation() -> None:
    usual = gc.get_threshold()
    collecting.rest()
    collecting.rest()  # a second time changes nothing
    assert gc.get_threshold()[0] > 50 * usual[0]
    set_up(torch.device("cpu"))
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() > 10_000, "what the imports left is not looked at again"


def test_what_is_garbage_afterwards_is_found() -> None:
    collecting.rest()
    collecting.work()
    ring: list[object] = []
    ring.append(ring)
    del ring
    assert gc.collect() > 0


def test_a_process_that_is_not_ours_keeps_its_collector() -> None:
    usual = gc.get_threshold()
    set_up(torch.device("cpu"))
    assert (gc.get_threshold(), gc.get_freeze_count()) == (usual, 0)


def test_the_command_line_lets_it_rest() -> None:
    told = "main.app = lambda **_: print(gc.get_threshold()[0])"
    program = f"import gc\nfrom transformer_mt.cli import main\n{told}\nmain.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == collecting._RESTING[0]
