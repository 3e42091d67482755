"""Where the time of a search goes: the operations that take most of it, and how often a process orders something of a
GPU or waits for it.
"""

import time
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

SHOWN = 15
ORDERS = ("LaunchKernel", "GraphLaunch", "MemcpyAsync", "MemsetAsync")  # in the names of CUDA's own functions
WAITS = ("Synchronize",)


def profile_of(work: Callable[[], object], device: str) -> str:
    """A line, and a table of the operations, largest first: of a GPU its kernels, of a CPU torch's operators without
    those that they call. The seconds are those with the profiler, which slows a process down.
    """
    on_gpu = device == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as found:
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
    events = found.key_averages()

    def count(parts: tuple[str, ...]) -> int:
        return sum(e.count for e in events if e.key.startswith("cu") and any(part in e.key for part in parts))

    kind = "CUDA" if on_gpu else "CPU"
    times = {e.key: (e.self_device_time_total if on_gpu else e.self_cpu_time_total, e.count)
             for e in events if e.device_type.name == kind}  # fmt: skip
    total = sum(microseconds for microseconds, _ in times.values())
    said = f"{seconds:.3f} s under the profiler, {total / 1e6:.3f} s of it in all operations"
    if on_gpu:
        said += f"; {count(ORDERS):,} orders, {count(WAITS):,} waits"
    rows = sorted(times.items(), key=lambda item: -item[1][0])[:SHOWN]
    table = [f"| {name[:80]} | {spent / 1000:.2f} | {number:,} |" for name, (spent, number) in rows]
    return "\n".join([said, "", "| operation | ms | times |", "|---|---|---|", *table])
