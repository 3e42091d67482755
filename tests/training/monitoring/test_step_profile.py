"""A profile: the trace opens, its kinds add up to the time of the steps, and the training is the same with it."""

import gzip
import json
import re
import time
from collections.abc import Collection
from pathlib import Path

import pytest
import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent, Kernel
from torch.profiler import ProfilerActivity, profile, record_function
from toy import toy_config, write_toy_corpus
from trainings import assert_same_run

from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.batch_feed import DATA_WAIT
from transformer_mt.training.monitoring.step_profile import (
    FIRST_STEP,
    LONGEST_WAIT,
    NUM_STEPS,
    OPERATIONS,
    OTHER,
    STEP,
    StepProfiler,
    kernel_table,
    kind_of,
    seconds_by_kind,
)
from transformer_mt.training.run import start_or_resume


@pytest.mark.slow
def test_a_resumed_training_is_profiled_and_stays_the_same(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    corpus = write_toy_corpus(tmp_path / "toy")
    runs = {name: RunFolder(tmp_path / name) for name in ("plain", "profiled")}
    for name, run in runs.items():
        for end in (7, 28):
            config = toy_config(corpus, training={"max_steps": end})
            capsys.readouterr()
            start_or_resume(config, run, resume=True, profiled=name == "profiled" and end == 28)
    said = capsys.readouterr().out
    assert_same_run(runs["plain"].path, runs["profiled"].path, 28)
    first, last = 7 + FIRST_STEP, 7 + FIRST_STEP + NUM_STEPS - 1
    (path,) = runs["profiled"].profile.iterdir()
    assert path.name == f"steps_{first}_{last}.pt.trace.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    names = {event.get("name") for event in trace["traceEvents"]}
    assert {"aten::addmm", "aten::_fused_adam_", DATA_WAIT} <= names
    table = said.partition(f"profile of steps {first} to {last}, by kind of operation:")[2]
    rows = {kind.strip(): float(share) for kind, share in re.findall(r"^  (\S.*?)\s+([\d.]+) %", table, re.MULTILINE)}
    assert rows.keys() == {*OPERATIONS, OTHER}
    assert sum(rows.values()) == pytest.approx(100, abs=0.06 * len(rows))
    # To a tenth of a percent, the wait for such small batches may be none.
    assert all(rows[kind] > 0 for kind in ("matrix products", "attention products", "optimizer and clipping", OTHER))


@pytest.mark.slow
def test_a_training_that_ends_early_leaves_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    corpus = write_toy_corpus(tmp_path / "toy")
    for end, files in ((FIRST_STEP - 1, []), (FIRST_STEP + 1, [f"steps_{FIRST_STEP}_{FIRST_STEP + 1}"])):
        run = RunFolder(tmp_path / str(end))
        start_or_resume(toy_config(corpus, training={"max_steps": end}), run, resume=False, profiled=True)
        found = list(run.profile.iterdir()) if run.profile.exists() else []
        assert [path.name.partition(".")[0] for path in found] == files
        said = capsys.readouterr().out
        assert ("profile: nothing was profiled, for training ended before step 10 of this start" in said) == (not files)
        start_or_resume(toy_config(corpus, training={"max_steps": end}), run, resume=True, profiled=True)
        assert "profile: nothing was profiled, for the run is finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "matrix products"), ("aten::mm", "matrix products"), ("aten::bmm", "attention products"),
        ("aten::baddbmm", "attention products"), ("aten::_flash_attention_forward", "attention products"),
        ("aten::_scaled_dot_product_efficient_attention_backward", "attention products"),
        ("aten::copy_", "copies and casts"), ("aten::_to_copy", "copies and casts"), ("aten::to", "copies and casts"),
        ("aten::index_select", "copies and casts"), ("aten::embedding_dense_backward", "copies and casts"),
        ("aten::native_dropout", "random numbers"), ("aten::bernoulli_", "random numbers"),
        ("aten::_log_softmax", "softmax and loss"), ("_CrossEntropySumsBackward", "softmax and loss"),
        ("ChunkedPairs", "softmax and loss"), ("_PairLossBackward", "softmax and loss"),
        ("aten::mul", "element-wise and norms"), ("aten::add_", "element-wise and norms"),
        ("aten::native_layer_norm", "element-wise and norms"), ("triton_poi_fused_add_3", "element-wise and norms"),
        ("aten::_fused_adam_", "optimizer and clipping"), ("Optimizer.step#Adam.step", "optimizer and clipping"),
        ("aten::_foreach_mul_", "optimizer and clipping"), (DATA_WAIT, DATA_WAIT),
        ("attention_backward_keys", "attention products"), ("norm_forward", "element-wise and norms"),
        ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_splitK_NTT", "matrix products"), ("cross_entropy", "softmax and loss"),
        ("transformer_mt::add_and_norm_backward", "element-wise and norms"),
        ("aten::view", OTHER), ("aten::transpose", OTHER), ("aten::as_strided", OTHER),
    ],
)  # fmt: skip
def test_kinds_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_kinds_add_up_to_the_time_by_the_clock() -> None:
    """A step whose parts are known: half of it waits for data; the adding inside of the optimizer is its own."""
    a = torch.ones(64, 64)
    with profile(activities=[ProfilerActivity.CPU]) as done:
        began = time.perf_counter()
        with record_function(f"{STEP}#1"):
            with record_function(DATA_WAIT):
                time.sleep(0.05)
            time.sleep(0.05)
            with record_function("Optimizer.step#Adam.step"):
                for _ in range(20):
                    a.add_(1)
        took = time.perf_counter() - began
    seconds = seconds_by_kind(done.events() or [], on_gpu=False)
    (step,) = (event for event in done.events() or [] if event.name.startswith(STEP))
    assert sum(seconds.values()) == pytest.approx(step.cpu_time_total / 1e6, rel=1e-6)
    assert sum(seconds.values()) <= 1.05 * took
    assert seconds[DATA_WAIT] >= 0.05
    assert seconds[OTHER] >= 0.05
    assert seconds["optimizer and clipping"] > 0
    assert seconds["element-wise and norms"] == 0
    on_gpu = seconds_by_kind(done.events() or [], on_gpu=True)  # on which no kernel ran
    assert sum(on_gpu.values()) == pytest.approx(sum(seconds.values()), rel=1e-6)
    assert on_gpu[DATA_WAIT] == pytest.approx(seconds[DATA_WAIT], rel=1e-6)
    assert on_gpu[OTHER] + on_gpu[DATA_WAIT] == pytest.approx(sum(on_gpu.values()))


def test_kernels_of_a_graph_are_counted_by_their_own_names() -> None:
    """What starts a CUDA graph is no operation, and all of its kernels come from there."""
    launch = FunctionEvent(0, f"{STEP}#3", 0, 0, 1000)
    kernels = [("nvjet_tst", 300), ("norm_forward", 200), ("nvjet_tst", 100)]
    events = [launch]
    for i, (name, micros) in enumerate(kernels):
        launch.kernels.append(Kernel(name, 0, micros))
        events.append(FunctionEvent(1 + i, name, 0, 0, micros, device_type=DeviceType.CUDA))
    seconds = seconds_by_kind(events, on_gpu=True)
    assert seconds["matrix products"] == pytest.approx(0.0004)
    assert seconds["element-wise and norms"] == pytest.approx(0.0002)
    assert seconds[OTHER] == pytest.approx(0.0004)  # no kernel ran
    first, second = kernel_table(events, 2).split("\n")
    assert first.split() == ["0.20", "ms", "1.0", "x", "nvjet_tst"]
    assert second.split() == ["0.10", "ms", "0.5", "x", "norm_forward"]


@pytest.mark.parametrize(("preparing", "first"), [([1, 3, 4], 14), (range(1, 1000), LONGEST_WAIT + FIRST_STEP)])
def test_steps_that_prepare_for_others_are_not_profiled(preparing: Collection[int], first: int, tmp_path: Path) -> None:
    said: list[str] = []
    profiler = StepProfiler(tmp_path, torch.device("cpu"), said.append)
    for step in range(1, first + NUM_STEPS + 3):
        profiler.step_done(step, step in preparing)
    profiler.close()
    assert said[0] == f"profile of steps {first} to {first + NUM_STEPS - 1}, by kind of operation:"


def test_a_training_that_only_prepared_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    profiler = StepProfiler(tmp_path, torch.device("cpu"), said.append)
    for step in range(1, 40):
        profiler.step_done(step, prepared=step <= 35)
    profiler.close()
    told = "profile: nothing was profiled, for training ended before step 10 after the last one that prepared for later"
    assert said == [f"{told} ones"]
