"""Waits are short while others want the cores, and long otherwise; see `machine/busy/giving_way.py`."""

import ctypes
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from transformer_mt.machine.busy import fewer_cores, giving_way
from transformer_mt.machine.busy.fewer_cores import FewerCores
from transformer_mt.machine.busy.giving_way import BUSY_CORES, CALM_LOOKS, Load, Looks, ShortWaits, follow, give_way

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is done: there is no /proc")

# Seconds of the processor that idle threads burn after a parallel pass of torch and of numba, with long waits,
# with short ones, and with long ones again. The settings make long waits some three tenths of a second.
BURNT = """
import os, time
os.environ["GOMP_SPINCOUNT"] = "30000000"
import torch
from transformer_mt.machine.busy.giving_way import ShortWaits
torch.set_num_threads(2)
x = torch.ones(1_000_000)
passes = [lambda: x * 2]
try:
    from transformer_mt.model.cpu.kernels import CompiledDraw
    passes.append(lambda: CompiledDraw(3, 0.1).times(x, torch.float32))
except ImportError:
    pass
def burnt():
    found = []
    for work in passes:
        time.sleep(0.7)
        work()
        start = time.process_time()
        time.sleep(0.4)
        found.append(time.process_time() - start)
    return found
for work in passes:
    work()
waits = ShortWaits(len(os.sched_getaffinity(0)))
print(burnt())
waits.turn_on()
print(burnt())
waits.turn_off()
print(burnt())
"""


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core there is nobody to wait for")
def test_idle_threads_of_every_library_sleep_while_waits_are_short() -> None:
    environment = {name: os.environ[name] for name in os.environ if "OMP_" not in name and "NUMBA_" not in name}
    done = subprocess.run([sys.executable, "-c", BURNT], capture_output=True, text=True, check=True, env=environment)
    long, short, again = (eval(line) for line in done.stdout.splitlines())
    assert all(seconds < 0.02 for seconds in short), short
    assert all(seconds > 0.04 for seconds in (*long, *again)), (long, again)  # a busy machine gives less than asked for


class Scripted(ShortWaits):
    """Remembers instead of acting."""

    def __init__(self) -> None:
        super().__init__(2)
        self.is_on = False

    @property
    def on(self) -> bool:
        return self.is_on

    def turn_on(self) -> None:
        self.is_on = True

    def turn_off(self) -> None:
        self.is_on = False


class SameCores(FewerCores):
    """Leaves the cores as they are."""

    def look(self, busy: object, own: float) -> None:
        pass


class EndedError(Exception):
    """The script is over."""


def followed(loads: list[float]) -> list[bool]:
    """Whether waits were short after each look at such a load."""
    waits, found, rest = Scripted(), [], iter(loads)

    def look() -> Load:
        for load in rest:
            return Load({0: 1.0, 1: 1.0}, own=2.0 - load)
        raise EndedError

    def wait(seconds: float) -> None:
        found.append(waits.on)

    with pytest.raises(EndedError):
        follow(look, 2, waits, SameCores(2), wait)
    return found[1:]


@pytest.mark.parametrize(
    ("loads", "short"),
    [
        ([0.0, 0.1, 0.2], [False, False, False]),
        ([1.0, 1.0], [True, True]),  # at the first look
        ([0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [False, True, True, True, False, False]),  # calm three times in a row
        ([1.0, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0], [True, True, True, True, True, True, False]),
        ([-0.5, BUSY_CORES + 0.01], [False, True]),
    ],
)
def test_waits_follow_the_load(loads: list[float], short: list[bool]) -> None:
    assert CALM_LOOKS == 3
    assert followed(loads) == short


def stat(*cpus: tuple[int, int]) -> str:
    """/proc/stat with the ticks that each core was at work and idle."""
    lines = [f"cpu{n} {busy - 6} 1 2 {idle} 7 1 2 0 0 0" for n, (busy, idle) in enumerate(cpus)]
    return "\n".join([f"cpu  {sum(busy for busy, _ in cpus)} 0 0 0 0 0 0", *lines, "intr 12345"])


@pytest.mark.parametrize(
    ("cores", "num_threads", "own", "others"),
    [
        ({0, 1}, 2, 2.0, 0.0),  # alone: both cores at work for us
        ({0, 1}, 2, 1.0, 1.0),  # others have half of them
        ({0, 1}, 1, 1.0, 0.0),  # others have the core that we do not want
        ({0}, 1, 0.25, 0.75),  # one core is ours, what goes on on the other is nothing to us
    ],
)
def test_the_load_is_what_others_take_of_our_cores(
    cores: set[int], num_threads: int, own: float, others: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the one second between two looks two cores are at work all the time, for us or for others."""
    tick = os.sysconf("SC_CLK_TCK")
    looks: list[Looks] = []
    monkeypatch.setattr(giving_way, "STAT", tmp_path / "stat")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    monkeypatch.setattr(giving_way, "_seconds_of_children", lambda: 0.0)
    for seconds in (0, 1):
        (tmp_path / "stat").write_text(stat((100 + seconds * tick, 50), (200 + seconds * tick, 50)))
        monkeypatch.setattr(giving_way.time, "monotonic", lambda seconds=seconds: 10.0 + seconds)
        monkeypatch.setattr(giving_way.time, "process_time", lambda seconds=seconds: 3.0 + own * seconds)
        looks.append(Looks() if not seconds else looks[0])
    assert looks[0].look().others(num_threads) == pytest.approx(others)


# A fifth of a second of work, a line, and rest until nobody listens.
WORKING = "import sys, time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\nsys.stdin.read()"


def test_the_work_of_processes_that_this_one_began_is_its_own() -> None:
    before = giving_way._seconds_of_children()
    with subprocess.Popen([sys.executable, "-c", WORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert 0.15 < giving_way._seconds_of_children() - before < 1.2, "while the process lives"
        child.kill()
        child.wait()
        assert 0.15 < giving_way._seconds_of_children() - before < 1.2, "when it has ended"


def test_a_process_that_ends_while_it_is_looked_at_counts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "self/task/7").mkdir(parents=True)
    (tmp_path / "self/task/7/children").write_text("11 12 ")
    (tmp_path / "12").mkdir()
    (tmp_path / "12/stat").write_text(f"12 (a (b) c) S {' '.join(str(n) for n in range(4, 53))}\n")
    monkeypatch.setattr(giving_way, "PROCESSES", tmp_path)
    ticks = 14 + 15 + 16 + 17  # those columns, counted from 1, are the four times
    ended = os.times().children_user + os.times().children_system
    expected = ended + ticks / os.sysconf("SC_CLK_TCK")
    assert giving_way._seconds_of_children() == pytest.approx(expected, abs=0.02)


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody watches yet, and nothing that the user set forbids it."""
    for setting in (*giving_way.SETTINGS, *fewer_cores.SETTINGS):
        monkeypatch.delenv(setting, raising=False)
    give_way.cache_clear()
    yield
    give_way.cache_clear()


def watchers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == giving_way.WATCH}


@pytest.mark.parametrize(("waits", "cores"), itertools.product([False, True], repeat=2))
@pytest.mark.parametrize("name", giving_way.SETTINGS)
@pytest.mark.parametrize("other", fewer_cores.SETTINGS)
def test_what_the_user_set_holds(
    name: str, other: str, waits: bool, cores: bool, watching: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How threads wait and where they are is settled apart; the load is looked at while either is free."""
    followed = []
    monkeypatch.setattr(giving_way, "_follow", lambda *watch: followed.append([part.may for part in watch[2:]]))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    for is_free, setting in ((waits, name), (cores, other)):
        if not is_free:
            monkeypatch.setenv(setting, "passive")
    before = watchers()
    give_way(2)
    for thread in watchers() - before:
        thread.join()
    assert followed == ([[waits, cores]] if waits or cores else [])


def test_waits_stay_long_where_they_may_not_be_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_way, "_libraries", list)
    waits = ShortWaits(2, may=False)
    waits.turn_on()
    assert not waits.on


def test_a_single_thread_needs_no_watching(watching: None) -> None:
    before = watchers()
    give_way(1)
    assert watchers() == before


def test_a_process_works_on_where_the_load_may_not_be_looked_at(
    watching: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(giving_way, "STAT", tmp_path)  # a folder, which no one reads as a file
    before = watchers()
    give_way(2)
    assert watchers() == before


def test_a_look_that_fails_ends_the_watching_in_silence(watching: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest makes an error of an exception that a thread does not catch."""
    looks = iter([Load({0: 5.0, 1: 2.0}, own=2.0)])  # others want five cores, and after that nothing is known
    monkeypatch.setattr(Looks, "look", lambda self: next(looks))
    monkeypatch.setattr(giving_way, "_libraries", list)
    monkeypatch.setattr(giving_way, "FIRST_INTERVAL", 0.0)
    monkeypatch.setattr(giving_way, "INTERVAL", 0.0)
    before = watchers()
    give_way(2)
    wait_until(lambda: watchers() == before)  # neither the watch nor what held the waits short is left
    assert next(looks, None) is None, "there was a look before the one that failed"


def test_a_library_is_found_in_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As Linux writes the maps of a process: the path comes last, and may have blanks."""
    names = ["/home/an na/lib/libgomp-98b21ff3.so.1", "/usr/lib/libgomp.so.1.0.0"]
    others = ["/usr/lib/libgomp-plugin-nvptx.so.1", "/usr/lib/libgomp.so.1 (deleted)", "/libgomp.d/libm.so.6", "[heap]"]
    line = "7f00-7f01 r-xp 00000000 08:01 1234                       "
    (tmp_path / "maps").write_text("".join(f"{line}{path}\n" for path in [*names, *others, *names]) + "7f02 r 0 0 0\n")
    monkeypatch.setattr(giving_way, "MAPS", tmp_path / "maps")
    monkeypatch.setattr(ctypes, "CDLL", str)
    assert giving_way._libraries() == names
