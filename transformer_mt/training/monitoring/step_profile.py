"""`tmt train --profile`: where the time of a few steps goes, as a trace and as a table by kind of operation."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, schedule

from transformer_mt.training.batch_feed import DATA_WAIT

# Of this start: work that is done only once is over by then. On a GPU the count begins anew after a step that prepared
# for later ones, at most so often that these many steps have gone by.
FIRST_STEP, NUM_STEPS = 10, 5
LONGEST_WAIT = 200
NUM_KERNELS, NAME_WIDTH = 12, 70  # of a GPU, the longest in all, and the characters of a name that are shown
STEP = "ProfilerStep"  # how torch's names of steps begin
OTHER = "other"

# An operation is of the first kind whose pattern is found in its name. The name of a compiled kernel lists all that it
# does, so the first kind in this table counts.
OPERATIONS = {
    DATA_WAIT: f"^{DATA_WAIT}$",
    "optimizer and clipping": r"adam|Optimizer|_foreach_|linalg_vector_norm|multi_tensor_apply",
    "attention products": r"bmm|scaled_dot_product|flash_attention|efficient_attention|unpadded_attention|\b_Attention"
    r"|attention_(forward|backward)",
    "matrix products": r"\b(mm|addmm|matmul|linear)\b|mkldnn|gemm|nvjet|cutlass|splitK",
    "random numbers": r"rand|bernoulli|dropout|uniform_|normal_|philox|::kept",
    "softmax and loss": r"softmax|logsumexp|CrossEntropy|cross_entropy|nll_loss|ChunkedPairs|PairLoss",
    "copies and casts": r"copy|\b(to|cat|clone|contiguous|index|index_select|gather|embedding|fill_|zero_|empty\w*)\b"
    r"|index_add|embedding_dense|Memcpy|Memset",
    "element-wise and norms": r"layer_norm|rms_norm|\b(add|sub|mul|div|neg|exp|sum|mean|where|relu|gelu|silu|threshold"
    r"|masked_fill|eq|ne|ge|le|lt|gt|bitwise\w*|abs|sqrt|pow|scatter_add)_?\b|threshold_backward|gelu_backward|triton_|Dropped"
    r"|add_and_norm|relu_dropped|(norm|relu)_(forward|backward)|elementwise_kernel|reduce_kernel",
}
WITHIN = ("optimizer and clipping", "softmax and loss")  # an operation inside one of these is part of it


def kind_of(name: str) -> str:
    """The kind of an operation by its name alone. `other`: it moves no numbers, it is a view for example."""
    return next((kind for kind, pattern in OPERATIONS.items() if re.search(pattern, name)), OTHER)


def seconds_by_kind(events: Iterable[FunctionEvent], on_gpu: bool) -> dict[str, float]:
    """Where the time of the profiled steps went, by kind. The kinds add up to the time of the steps by the clock.

    On a CPU this is the time of the thread that trains: each operation counts without those inside it, and Python
    between operations is `other`. On a GPU it is the time of kernels, each counted for the operation that started it.
    Of the time without a kernel, as much as the thread waited for data counts as waiting, even where kernels ran
    meanwhile; the rest is `other`.
    """
    events = list(events)
    steps = [event for event in events if event.name.startswith(STEP) and event.device_type.name == "CPU"]
    seconds = dict.fromkeys((*OPERATIONS, OTHER), 0.0)
    threads = {event.thread for event in steps}
    for event in events:
        if event.device_type.name != "CPU" or not (on_gpu or event.thread in threads):
            continue
        kind = _kind(event)
        if on_gpu and kind == OTHER:  # the launch of a CUDA graph says nothing, but its kernels have names
            for kernel in event.kernels:
                of_kernel = kind_of(kernel.name)
                # In a graph of a pass this is the adding of gradients; the optimizer is in none.
                of_kernel = "element-wise and norms" if of_kernel == "optimizer and clipping" else of_kernel
                seconds[of_kernel] += kernel.duration / 1e6
        else:
            seconds[kind] += (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e6
    if on_gpu:
        spent = sum(step.cpu_time_total for step in steps) / 1e6
        waited = (
            sum(event.cpu_time_total for event in events if event.name == DATA_WAIT and event.thread in threads) / 1e6
        )
        idle = max(0.0, spent - sum(seconds.values()))
        seconds[DATA_WAIT] += min(waited, idle)
        seconds[OTHER] += max(0.0, idle - waited)
    return seconds


def _kind(event: FunctionEvent) -> str:
    """The kind of an operation. Plain arithmetic inside the optimizer or the loss counts as part of those."""
    own, above = kind_of(event.name), event.cpu_parent
    if own not in (OTHER, "element-wise and norms", "copies and casts"):
        return own
    while above is not None:
        if (kind := kind_of(above.name)) in WITHIN:
            return kind
        above = above.cpu_parent
    return own


def table(seconds: dict[str, float], num_steps: int) -> str:
    """A line for each kind, the largest first: percent, and milliseconds a step."""
    total = sum(seconds.values()) or 1.0
    rows = sorted(seconds.items(), key=lambda row: -row[1])
    lines = [f"  {kind:<24} {100 * time / total:5.1f} %  {1000 * time / num_steps:9.1f} ms" for kind, time in rows]
    return "\n".join(lines)


def kernel_table(events: Iterable[FunctionEvent], num_steps: int) -> str:
    """A line for each of the kernels of a GPU that took longest in all."""
    micros, times = Counter(), Counter()
    for event in events:
        if event.device_type.name != "CPU" and not event.name.startswith(STEP):
            micros[event.name] += event.time_range.elapsed_us()
            times[event.name] += 1
    return "\n".join(
        f"  {total / 1000 / num_steps:9.2f} ms  {times[name] / num_steps:7.1f} x  {name[:NAME_WIDTH]}"
        for name, total in micros.most_common(NUM_KERNELS)
    )


class StepProfiler:
    """Profiles a few steps of a training, writes the trace to `folder` and says the table.

    Where the training ends in the middle of these steps, the trace has those that were made. Where it ends before them,
    the profiler says so.
    """

    def __init__(self, folder: Path, device: torch.device, say: Callable[[str], None]) -> None:
        self.folder, self.say = folder, say
        self.on_gpu = device.type == "cuda"
        self.seconds: dict[str, float] = {}
        self._num_done, self._num_seen, self._last = 0, 0, 0
        self._profile: Any = None
        self._closed = False

    def step_done(self, step: int, prepared: bool) -> None:
        """Count a step that was made; `step` is its number in the run. `prepared`: for the sake of later ones, so that
        it tells nothing of them.
        """
        self._num_seen += 1
        if prepared and self._profile is None and self._num_seen <= LONGEST_WAIT:
            self._num_done = 0
            return
        self._num_done += 1
        if self._num_done == FIRST_STEP - 2:  # the step between is the profiler's own warm-up
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.on_gpu else [])]
            plan = schedule(wait=0, warmup=1, active=NUM_STEPS, repeat=1)
            self._profile = profile(activities=activities, schedule=plan)
            self._profile.start()
        elif self._profile is not None:
            self._last = step
            if self._num_done == FIRST_STEP + NUM_STEPS - 1:
                self.close()
            else:
                self._profile.step()

    def close(self) -> None:
        """Write what was profiled, once. Raises OSError where that fails."""
        if self._closed:
            return
        self._closed = True
        if self._profile is not None:
            self._profile.stop()
        num_steps = min(self._num_done - FIRST_STEP + 1, NUM_STEPS)
        if self._profile is None or num_steps < 1:
            self.say(f"profile: nothing was profiled, for training ended before step {FIRST_STEP} {self._since()}")
            return
        finished, self._profile = self._profile, None
        self.seconds = seconds_by_kind(finished.events(), self.on_gpu)
        first = self._last - num_steps + 1
        path = self.folder / f"steps_{first}_{self._last}.pt.trace.json.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        finished.export_chrome_trace(str(path))
        self.say(f"profile of steps {first:,} to {self._last:,}, by kind of operation:")
        self.say(table(self.seconds, num_steps))
        if self.on_gpu:
            self.say("the kernels that took longest, milliseconds a step and times a step:")
            self.say(kernel_table(finished.events(), num_steps))
        self.say(f"trace: {path} (https://ui.perfetto.dev opens it, and TensorBoard with torch-tb-profiler)")

    def _since(self) -> str:
        """From where the steps are counted."""
        if self._num_done == self._num_seen:
            return "of this start"
        return "after the last one that prepared for later ones"
