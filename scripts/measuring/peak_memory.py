"""The peak memory of a piece of work, for the sides of bench_decode.py and for bench_data.py: the standard library
alone, any Python; on a GPU also torch.
"""

import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

# Memory that processes share counts once, and only the system knows it. Reading it takes time, so it is not read while
# something is timed, or seldom. Another process reads it, because a thread of this one would change the measurement.
SAMPLER = """
import os, sys, time
from pathlib import Path
largest, first = 0, os.getppid()
os.set_blocking(0, False)
while sys.stdin.buffer.raw.read(1) is None:
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    total = 0
    for pid in {str(first), *children} - {str(os.getpid())}:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().split("\\n")
        except OSError:
            continue
        total += 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    largest = max(largest, total)
    time.sleep(float(sys.argv[1]))
print(largest)
"""


def peak_memory(work: Callable[[], object], device: str = "cpu", seconds: float = 0.02) -> int:
    """Bytes of this process and those that it begins, while it does this; on a GPU what all processes use there.

    On a CPU they are read so many seconds after each other.
    """
    if device != "cpu":
        return _peak_on_gpu(work)
    if not Path("/proc/self/smaps_rollup").exists():
        work()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sampler = subprocess.Popen(
        [sys.executable, "-c", SAMPLER, str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        work()
    except BaseException:
        sampler.kill()
        sampler.communicate()
        raise
    largest, _ = sampler.communicate()
    return int(largest)


def _peak_on_gpu(work: Callable[[], object]) -> int:
    import torch

    done = threading.Event()
    used = [0]

    def watch() -> None:
        while True:
            free, total = torch.cuda.mem_get_info()
            used.append(total - free)
            if done.wait(0.005):
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return max(used)
