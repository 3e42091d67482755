"""What a CPU is fast at: by the instructions that it names, or by a clock that stands still while others compute."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import torch

Kind = Literal["bf16", "int8"]
CPUINFO = Path("/proc/cpuinfo")
# The names that Linux gives instructions that multiply such numbers, by the name of the line that lists them: x86, Arm.
INSTRUCTIONS: dict[str, dict[Kind, set[str]]] = {
    "flags": {"bf16": {"avx512_bf16", "amx_bf16"}, "int8": {"avx512_vnni", "avx_vnni", "amx_int8"}},
    "Features": {"bf16": {"bf16", "svebf16"}},  # how fast torch multiplies int8 on Arm is not known
}
ROUNDS = 40


@cache
def has_instructions(kind: Kind) -> bool | None:
    """Whether this CPU has instructions for products of such numbers; None where that is not known."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no Linux
        return None
    for line in lines:
        name, _, words = line.partition(":")
        if kinds := INSTRUCTIONS.get(name.strip()):
            return None if kind not in kinds else not kinds[kind].isdisjoint(words.split())
    return None


def cpu_seconds(works: Sequence[Callable[[], object]]) -> list[float]:
    """The seconds of the processor that each work takes on one core, the best of many rounds in which they take turns.

    The clock stands still while other processes have the core, so a busy machine gives the answer of an idle one.
    """
    threads = torch.get_num_threads()
    # On Windows that clock goes on by a 64th of a second at a time.
    clock = time.perf_counter_ns if sys.platform == "win32" else time.thread_time_ns
    torch.set_num_threads(1)
    best = [float("inf")] * len(works)
    try:
        for _ in range(ROUNDS):
            for i, work in enumerate(works):
                start = clock()
                work()
                best[i] = min(best[i], 1e-9 * max(1, clock() - start))
    finally:
        torch.set_num_threads(threads)
    return best
