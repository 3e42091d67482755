"""All threads of this process on half of its cores, while others fill the rest.

A pass that is shared out among threads ends with its last thread. Where each of them shares its core with another
process, the pass waits for whichever core comes last, and a share of half the machine is worth a third. Two threads on
one core take turns without waiting for anybody. The system then moves the others to the cores that are left free.
"""

import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path

TASKS = Path("/proc/self/task")
# The threads move together when others want this share of half of the cores, and part again below the second share.
CROWDED, FREE = 0.8, 0.5
OWN_CORES = 0.1  # a process that uses less computes nothing that could be helped
CROWDED_LOOKS = 2  # so often in a row: others come and go at any time
WORTH_MOVING = 0.4  # of a core: others must use the new cores by so much less
SETTINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")  # whoever sets one of these has chosen


class FewerCores:
    """The cores that the threads of this process may use: all that it began with, or half as many as it has threads."""

    def __init__(self, num_threads: int, pin: "Callable[[set[int]], None] | None" = None) -> None:
        """`pin` lets all threads of this process use these cores and no others."""
        self.all = os.sched_getaffinity(0)
        self._num_threads = num_threads
        self._half = -(-num_threads // 2)
        self._pin = pin or pin_all_threads
        self._now = self.all
        self._num_crowded = 0
        # Whether it moves the threads at all.
        self.may = not any(name in os.environ for name in SETTINGS) and self._half < len(self.all)
        self._choice = random.Random(os.getpid())  # two trainings that look at the same moment choose differently
        os.register_at_fork(after_in_child=self._forget)

    def look(self, busy: Mapping[int, float], own: float) -> None:
        """Move together or part.

        busy: the share of the last moments in which each core was at work for anybody. own: the cores that this process
        and its children used in that time, all together.
        """
        if not self.may or os.sched_getaffinity(0) != self._now:  # somebody else has chosen its cores
            self.may = False
            return
        others = {core: max(0.0, share - own / len(self._now) * (core in self._now)) for core, share in busy.items()}
        # Threads that have a core to themselves hinder nobody.
        wanted = sum(busy.values()) - own - (len(self.all) - self._num_threads)
        if own < OWN_CORES or wanted < FREE * self._half:
            self._num_crowded = 0
            self.use_all()
            return
        self._num_crowded += wanted > CROWDED * self._half
        if self._num_crowded < CROWDED_LOOKS:
            return
        best = self._quietest(others)
        gain = _mean(others, self._now) - _mean(others, best)
        if self._now == self.all or (gain > WORTH_MOVING and self._choice.random() < 0.5):
            self._go_to(best)

    def use_all(self) -> None:
        """Use all cores that this process began with."""
        self._go_to(self.all)

    def _quietest(self, others: Mapping[int, float]) -> set[int]:
        """The half of the cores that others use least; among equals by chance."""
        order = sorted(self.all, key=lambda core: (round(others.get(core, 0.0), 1), self._choice.random()))
        return set(order[: self._half])

    def _go_to(self, cores: set[int]) -> None:
        if cores != self._now:
            self._pin(cores)
            self._now = cores

    def _forget(self) -> None:
        """A copy of this process has other work, and all cores."""
        if self._now != self.all:
            os.sched_setaffinity(0, self.all)


def pin_all_threads(cores: set[int]) -> None:
    """Let every thread of this process use these cores and no others. A new thread is like the one that begins it."""
    for task in TASKS.iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:  # it has ended since
            continue


def _mean(others: Mapping[int, float], cores: set[int]) -> float:
    return sum(others.get(core, 0.0) for core in cores) / len(cores)
