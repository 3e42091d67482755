"""The threads of a process share half of its cores while others fill the rest; see `machine/busy/fewer_cores.py`."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from transformer_mt.machine.busy import fewer_cores
from transformer_mt.machine.busy.fewer_cores import CROWDED_LOOKS, OWN_CORES, FewerCores, pin_all_threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no thread can be told its cores")

QUIET = ({0: 1.0, 1: 1.0}, 2.0)  # both cores at work, for us alone
TWO_LOOPS = ({0: 1.0, 1: 1.0}, 0.8)  # both at work, mostly for others
BESIDE = ({0: 1.0, 1: 1.0}, 1.0)  # each of two processes has a core


class Machine:
    """Cores that nobody else sees: what is set is what is asked for."""

    def __init__(self, cores: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = cores
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: self.allowed)
        for name in fewer_cores.SETTINGS:
            monkeypatch.delenv(name, raising=False)

    def allow(self, cores: set[int]) -> None:
        self.allowed = cores


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    return lambda num_cores=2: Machine(set(range(num_cores)), monkeypatch)


def test_two_threads_share_one_of_two_cores_while_others_have_the_other(machine: Callable[..., Machine]) -> None:
    here = machine()
    cores = FewerCores(2, here.allow)
    sizes = []
    for look in [QUIET, TWO_LOOPS, TWO_LOOPS, BESIDE, BESIDE, ({0: 0.5, 1: 0.5}, 1.0), QUIET]:
        cores.look(*look)
        sizes.append(len(here.allowed))
    assert CROWDED_LOOKS == 2
    assert sizes == [2, 2, 1, 1, 1, 2, 2]


def test_the_cores_that_others_use_least_are_taken(machine: Callable[..., Machine]) -> None:
    """Four threads on four cores; others fill cores 0 and 2 and some of 3, and we run everywhere."""
    here = machine(4)
    cores = FewerCores(4, here.allow)
    for _ in range(CROWDED_LOOKS):
        cores.look({0: 1.0, 1: 0.3, 2: 1.0, 3: 0.6}, 0.8)
    assert here.allowed == {1, 3}


def test_two_that_chose_one_core_part_again(machine: Callable[..., Machine]) -> None:
    """Both see that others have half of this core and nothing of the other. Chance decides who goes, so that not both
    go for ever.
    """
    here = machine()
    cores = FewerCores(2, here.allow)
    for _ in range(CROWDED_LOOKS):
        cores.look(*TWO_LOOPS)
    (first,) = here.allowed
    at = []
    for _ in range(40):
        (now,) = here.allowed
        at.append(now)
        cores.look({now: 1.0, 1 - now: 0.3}, 0.1 + OWN_CORES)
    assert set(at) == {0, 1}
    assert any(here == there for here, there in pairwise(at)), "it does not go each time"
    assert at[0] == first


@pytest.mark.parametrize(
    ("num_cores", "num_threads", "look"),
    [
        (2, 2, ({0: 1.0, 1: 1.0}, OWN_CORES / 2)),  # our own processes work, and this one waits for them
        (4, 2, ({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, 2.0)),  # others have the cores that we do not want
        (2, 1, TWO_LOOPS),  # a thread alone has nobody to share with
        (1, 2, ({0: 1.0}, 0.3)),  # as few as can be
    ],
)
def test_all_cores_stay_where_fewer_would_not_help(
    machine: Callable[..., Machine], num_cores: int, num_threads: int, look: tuple[dict[int, float], float]
) -> None:
    here = machine(num_cores)
    cores = FewerCores(num_threads, here.allow)
    for _ in range(3 * CROWDED_LOOKS):
        cores.look(*look)
        assert len(here.allowed) == num_cores


@pytest.mark.parametrize("name", fewer_cores.SETTINGS)
def test_what_the_user_set_holds(name: str, machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine()
    monkeypatch.setenv(name, "true")
    cores = FewerCores(2, here.allow)
    for _ in range(3 * CROWDED_LOOKS):
        cores.look(*TWO_LOOPS)
    assert len(here.allowed) == 2


def test_cores_that_somebody_else_sets_are_left_alone(machine: Callable[..., Machine]) -> None:
    """As `taskset -p` does, while a training runs."""
    here = machine(4)
    cores = FewerCores(4, here.allow)
    here.allow({2, 3})
    for _ in range(3 * CROWDED_LOOKS):
        cores.look({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, 1.0)
    cores.use_all()
    assert here.allowed == {2, 3}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is only one core")
def test_every_thread_moves_and_a_copy_of_the_process_does_not() -> None:
    """In a process of its own, with a thread that stands still, and a copy that is made meanwhile."""
    program = """
import os, threading
from transformer_mt.machine.busy.fewer_cores import CROWDED_LOOKS, FewerCores
tasks = lambda: sorted({len(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")})
threading.Thread(target=threading.Event().wait, daemon=True).start()
cores = FewerCores(2)
number = len(cores.all)
for _ in range(CROWDED_LOOKS):
    cores.look(dict.fromkeys(cores.all, 1.0), own=0.8)
moved = tasks()
child = os.fork()
if not child:
    os._exit(tasks() != [number])
status = os.waitpid(child, 0)[1]
cores.use_all()
print(moved == [1], status == 0, tasks() == [number])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"], done.stdout + done.stderr


def test_a_thread_that_ends_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def move(task: int, cores: set[int]) -> None:
        told.append(task)
        if len(told) == 1:
            raise ProcessLookupError

    monkeypatch.setattr(os, "sched_setaffinity", move)
    thread = threading.Event()
    threading.Thread(target=thread.wait, daemon=True).start()
    pin_all_threads({0})
    thread.set()
    assert len(told) >= 2
