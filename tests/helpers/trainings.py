"""Trainings that tests share, and those as processes that tests start, kill, resume and compare."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import call_tmt
from copies import Copy
from filelock import FileLock
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from waiting import wait_until

from transformer_mt.storage.checkpoint_files import STATE
from transformer_mt.storage.manifest import write_manifest
from transformer_mt.storage.run_folder import MANIFEST

TMT = ("-m", "transformer_mt")
CLOCK = ("tokens_per_second", "elapsed_seconds", "data_wait")


def trained_once(factory: pytest.TempPathFactory, name: str, train: Callable[[Path], None]) -> Path:
    """A copy, to write to, of a folder in which `train` has trained: once, however many workers test."""
    folder = factory.mktemp(name)
    several = "PYTEST_XDIST_WORKER" in os.environ
    original = factory.getbasetemp().parent / name if several else folder / "original"
    is_whole = original.with_suffix(".trained")
    with FileLock(original.with_suffix(".lock")):
        if not is_whole.exists():
            train(original)
            is_whole.touch()
    return Path(shutil.copytree(original, folder / "copy"))


def start(folder: Path, *arguments: str) -> Copy:
    """`tmt` in `folder`, running as a copy; what it prints is read by `communicate`."""
    return Copy(folder, *arguments, environment=os.environ, together=True)


def start_anew(folder: Path, *arguments: str, program: tuple[str, ...] = TMT) -> subprocess.Popen[str]:
    """The same in a new Python."""
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def tmt(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`tmt` in `folder` to its end, in a new Python, both outputs as one."""
    return to_the_end(start_anew(folder, *arguments))


def to_the_end(process: "Copy | subprocess.Popen[str]") -> subprocess.CompletedProcess[str]:
    """What becomes of it in five minutes at most."""
    output, _ = process.communicate(timeout=300)
    print(output)
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, output)


def tmt_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has loaded torch: for what does not need a new one."""
    result = call_tmt(folder, *arguments, together=True)
    print(result.stdout)
    return result


def train_here(folder: Path, *arguments: str) -> tuple[int, str]:
    """The status and the outputs of toy.yaml's training, in this process."""
    result = tmt_here(folder, "train", "--config", "toy.yaml", *arguments)
    return result.returncode, result.stdout


def kill_at(checkpoint: Path, folder: Path, *arguments: str) -> None:
    """Begin `tmt` in `folder`, and send SIGKILL once this checkpoint is there."""
    process = start(folder, *arguments)
    wait_until(checkpoint.exists)
    process.kill()
    process.communicate()


def killed_and_resumed(
    folder: Path, *arguments: str, last: int = 20, suffix: str = ""
) -> subprocess.CompletedProcess[str]:
    """How a training ends that was killed after step 10 and resumed; it is the one that was not, bit for bit. They are
    runs/straight and runs/killed.
    """
    assert tmt_here(folder, *arguments, f"name=straight{suffix}").returncode == 0
    straight, killed = (folder / "runs" / (name + suffix) for name in ("straight", "killed"))
    resumed = (*arguments, f"name={killed.name}", "--resume", "auto")
    kill_at(killed / "checkpoints/step_10", folder, *resumed)
    result = to_the_end(start(folder, *resumed))
    assert "going on from step" in result.stdout
    assert_same_run(straight, killed, last)
    return result


def edit_state(checkpoint: Path, **changes: object) -> None:
    """Have its state.json say something else, as if it had been saved so."""
    path = checkpoint / STATE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    rewrite_manifest(checkpoint)


def rewrite_manifest(checkpoint: Path) -> None:
    """Make the manifest that of the files as they are."""
    write_manifest(checkpoint, [path.name for path in checkpoint.iterdir() if path.name != MANIFEST])


def metrics_with_clock(run: Path) -> list[dict]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().split("\n")[:-1]]


def metrics(run: Path) -> list[dict]:
    """The same without what the clock says."""
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in metrics_with_clock(run)]


def tensorboard_events(run: Path) -> EventAccumulator:
    """What TensorBoard shows of a run."""
    return EventAccumulator(str(run), size_guidance={"tensors": 0}).Reload()


def assert_same_run(straight: Path, other: Path, last: int) -> None:
    """Metrics, checkpoints there are, and at step `last` weights, optimizer and state: the same, the clock apart."""
    assert metrics(straight) == metrics(other)
    assert sorted(p.name for p in (straight / "checkpoints").iterdir()) == sorted(
        p.name for p in (other / "checkpoints").iterdir()
    )
    for file in ("model.safetensors", "optimizer.safetensors"):
        one, two = (run / "checkpoints" / f"step_{last}" / file for run in (straight, other))
        assert one.read_bytes() == two.read_bytes(), file
    states = [
        json.loads((run / "checkpoints" / f"step_{last}" / "state.json").read_text()) for run in (straight, other)
    ]
    for state in states:
        del state["elapsed_seconds"]
        for name in ("seconds", "data_wait"):
            state["window"].pop(name, None)
    assert states[0] == states[1]
