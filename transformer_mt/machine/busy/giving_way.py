"""Cuts the active waiting of OpenMP short, and lets threads share cores (`fewer_cores.py`), while others want them.

Between two parallel passes the threads of GNU's OpenMP, libgomp, wait actively for some three milliseconds before they
sleep. On an idle machine that is the fastest way to the next pass. On a busy one the waiting thread burns the time in
which the other half of its own pass could be computed: two trainings on the same two cores took fifteen times as long.

libgomp reads how long to wait once, when it is loaded. But while it manages more threads than there are cores, it waits
for microseconds only. So where others are busy, a thread that does nothing holds a team of idle threads, which cost
nothing, in each libgomp that is loaded: torch brings one of its own, and numba uses the system's. When the others are
gone that thread ends, and waits are as before. What is computed never changes.
"""

import ctypes
import functools
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.machine.busy.fewer_cores import FewerCores
from transformer_mt.machine.workers import WATCH
from transformer_mt.paths import exists

FIRST_INTERVAL, INTERVAL = 0.2, 1.0  # seconds between two looks
BUSY_CORES = 0.25  # of ours that others use: from here on waits are short
CALM_CORES = 0.10  # and below this, so often in a row, they are long again
CALM_LOOKS = 3
SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # whoever sets one of these has chosen
STAT, MAPS, PROCESSES = Path("/proc/stat"), Path("/proc/self/maps"), Path("/proc")


def _libraries() -> list[ctypes.CDLL]:
    """Every libgomp that this process has loaded."""
    lines = MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    # Five columns, which have no blanks, come before the path, which may have some.
    paths = sorted({columns[5] for line in lines if len(columns := line.split(maxsplit=5)) == 6})
    named = [path for path in paths if re.search(r"/libgomp(?!-plugin)[^/]*\.so[^/ ]*$", path)]
    return [ctypes.CDLL(path) for path in named]


class ShortWaits:
    """While it is `on`, idle threads of every libgomp sleep at once."""

    def __init__(self, num_cores: int, may: bool = True) -> None:
        """num_cores: those of this process, of which a team takes one more. Where it may not, it is never turned on."""
        self._num_cores = num_cores
        self.may = may
        self._end = threading.Event()
        self._holder: threading.Thread | None = None
        self._num_libraries = 0

    @property
    def on(self) -> bool:
        """Whether waits are short."""
        return self._holder is not None

    def turn_on(self) -> None:
        """Returns when waits are short, in libraries too that were loaded since it was turned on."""
        if not self.may:
            return
        libraries = _libraries()
        if self.on and len(libraries) == self._num_libraries:
            return
        self.turn_off()
        self._num_libraries = len(libraries)
        held, self._end = threading.Event(), threading.Event()
        self._holder = threading.Thread(
            target=_hold, args=(libraries, self._num_cores + 1, held, self._end), name=WATCH, daemon=True
        )
        self._holder.start()
        held.wait()

    def turn_off(self) -> None:
        """Returns when waits are as long as before."""
        if self._holder is not None:
            self._end.set()
            self._holder.join()
            self._holder = None


def _hold(libraries: list[ctypes.CDLL], num_threads: int, held: threading.Event, end: threading.Event) -> None:
    """Have a team of so many threads, more than the cores, until told. It ends with the thread that began it."""
    try:
        for library in libraries:
            # A parallel region in which each thread asks for its number, and nothing else.
            library.GOMP_parallel(library.omp_get_thread_num, None, num_threads, 0)
    finally:
        held.set()
    end.wait()


@dataclass(frozen=True)
class Load:
    """The share of the last moments in which each core was at work for anybody, and the cores that this process and its
    children used in that time, all together.
    """

    busy: dict[int, float]
    own: float

    def others(self, num_threads: int) -> float:
        """Cores that others used, less those that so many threads of ours would leave free."""
        return sum(self.busy.values()) - self.own - max(0, len(self.busy) - num_threads)


class Looks:
    """Looks at the cores of this process, each of which tells the load since the one before."""

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0)
        self._before = self._read()

    def look(self) -> Load:
        """The load since the last call."""
        before, self._before = self._before, self._read()
        (now, busy, own), (then, busy_before, own_before) = self._before, before
        seconds = now - then
        return Load({core: (busy[core] - busy_before[core]) / seconds for core in busy}, (own - own_before) / seconds)

    def _read(self) -> tuple[float, dict[int, float], float]:
        """Now, and the seconds that each of our cores was at work for anybody, and any core for this process."""
        busy = {}
        for line in STAT.read_text(encoding="ascii").splitlines():
            if (found := re.match(r"cpu(\d+) (.*)", line)) and int(found[1]) in self._cores:
                user, nice, system, _, _, irq, softirq = (int(number) for number in found[2].split()[:7])
                busy[int(found[1])] = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy, time.process_time() + _seconds_of_children()


def _seconds_of_children() -> float:
    """Of the processor, for all processes that this one has begun, such as those that search for it."""
    ended = os.times()
    ticks = 0
    for children in (PROCESSES / "self/task").glob("*/children"):  # a system may lack these files
        for number in _read_if_there(children).split():
            # The name of a process, in brackets, may have blanks and brackets; after it all columns are numbers.
            columns = _read_if_there(PROCESSES / number / "stat").rpartition(")")[2].split()
            ticks += sum(int(column) for column in columns[11:15])  # user, system; the same of its own ended children
    return ended.children_user + ended.children_system + ticks / os.sysconf("SC_CLK_TCK")


def _read_if_there(path: Path) -> str:
    """A file of a process or thread, which may have ended since it was listed."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return path.read_text(encoding="ascii", errors="replace")
    return ""


def follow(
    look: Callable[[], Load], num_threads: int, waits: ShortWaits, cores: FewerCores, wait: Callable[[float], object]
) -> None:
    """Turn short waits on and off, and use more or fewer cores, as the load changes, for ever. `wait` lets that many
    seconds pass.
    """
    calm = 0
    wait(FIRST_INTERVAL)
    while True:
        load = look()
        others = load.others(num_threads)
        calm = calm + 1 if others < CALM_CORES else 0
        if others > BUSY_CORES or (waits.on and calm < CALM_LOOKS):
            waits.turn_on()
        else:
            waits.turn_off()
        cores.look(load.busy, load.own)
        wait(INTERVAL)


def may_shorten() -> bool:
    """Whether the user has not settled how threads wait."""
    return not any(name in os.environ for name in SETTINGS)


@functools.cache
def give_way(num_threads: int) -> None:
    """From here on, until it ends, this process with so many threads on a CPU waits as the load suggests. A single
    thread waits for no other.
    """
    if num_threads > 1 and sys.platform == "linux" and exists(STAT):
        # Where the system forbids a look or another thread, this process waits as it always did, and works on.
        with suppress(Exception):
            cores = FewerCores(num_threads)
            waits = ShortWaits(len(cores.all), may_shorten())
            if not (waits.may or cores.may):
                return
            watch = Looks(), num_threads, waits, cores
            # numba counts the cores when it is imported, which may be while this process keeps to half of them.
            os.environ.setdefault("NUMBA_NUM_THREADS", str(len(os.sched_getaffinity(0))))
            threading.Thread(target=_follow, args=watch, name=WATCH, daemon=True).start()


def _follow(looks: Looks, num_threads: int, waits: ShortWaits, cores: FewerCores) -> None:
    with suppress(Exception):
        try:
            follow(looks.look, num_threads, waits, cores, time.sleep)
        finally:
            waits.turn_off()
            cores.use_all()
