"""A process of several that is killed, hangs or is told to stop: the others do not wait for it for ever, nothing that
was saved is lost, and all go on together.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import hang
import pytest
from commands import call_tmt
from copies import Copy
from marks import slow
from torchrun import TMT, copies_together, run_together, start_together, write_config
from trainings import metrics
from waiting import wait_until

from transformer_mt.storage.run_folder import RunFolder


def workers(folder: Path, number: int, by: str = "LOCAL_RANK") -> list[int]:
    """Process ids of the trainings in `folder`, `number` of them, in the order of their ranks."""
    for _ in range(3000):
        found = {}
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdecimal() and os.readlink(process / "cwd") == str(folder):
                    environment = dict(
                        entry.split("=", 1) for entry in (process / "environ").read_text().split("\0") if "=" in entry
                    )
                    if by in environment and b"transformer_mt" in (process / "cmdline").read_bytes():
                        found[int(environment[by])] = int(process.name)
            except OSError:
                continue
        if len(found) == number:
            return [found[rank] for rank in range(number)]
        time.sleep(0.01)
    pytest.fail("the processes did not start")


def begin(folder: Path, *changes: str, restarts: int = 0, number: int = 2) -> tuple[subprocess.Popen[str], list[int]]:
    """A training of some processes that has saved its second checkpoint, and their ids."""
    process = start_together(number, folder, *TMT, *training(folder), *changes, options=at_most(restarts))
    wait_until((folder / "runs" / "toy" / "checkpoints" / "step_10").exists)
    return process, workers(folder, number)


def begin_copies(folder: Path, *changes: str, restarts: int) -> tuple[Copy, list[int]]:
    """`begin`, where two processes and what started them need not load torch."""
    process = copies_together(2, folder, *training(folder), *changes, options=at_most(restarts))
    wait_until((folder / "runs" / "toy" / "checkpoints" / "step_10").exists)
    # In the order of their ranks, as they were started. What `workers` looks for is not to be seen of a copy.
    ids = sorted(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))
    assert len(ids) == 2
    return process, ids


def training(folder: Path) -> tuple[str, ...]:
    write_config(folder, max_steps=300, checkpoint_every_steps=5, keep_checkpoints=2)
    return "train", "--config", "toy.yaml", "validation.every_steps=40"


def at_most(restarts: int) -> tuple[str, ...]:
    return "--max-restarts", str(restarts)


def steps(run: Path) -> list[int]:
    return [line["step"] for line in metrics(run) if line["kind"] == "train"]


@pytest.mark.parametrize("rank", [slow(0), 1])
def test_a_killed_worker_comes_back_by_itself(tmp_path: Path, rank: int) -> None:
    process, ids = begin_copies(tmp_path, "training.max_steps=60", restarts=3)
    os.kill(ids[rank], signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    print(said)
    assert process.returncode == 0
    assert "going on from step" in said
    assert "finished at step 60" in said
    assert steps(tmp_path / "runs" / "toy") == list(range(1, 61))


def test_a_process_that_hangs_is_named_and_replaced(tmp_path: Path) -> None:
    process, ids = begin_copies(tmp_path, "training.timeout_minutes=0.1", "training.max_steps=60", restarts=1)
    os.kill(ids[1], signal.SIGSTOP)
    wait_until(lambda: not Path(f"/proc/{ids[0]}").exists())  # the other one has given up
    os.kill(ids[1], signal.SIGCONT)  # torchrun would wait half a minute before it kills what does not end by itself
    said, _ = process.communicate(timeout=60)
    print(said)
    assert f"process {ids[1]}) of 2 has kept the others waiting for 0.1 minutes" in said
    assert said.count("has kept the others waiting") == 1
    assert process.returncode == 0
    assert "finished at step 60" in said
    assert steps(tmp_path / "runs" / "toy") == list(range(1, 61))


@pytest.mark.slow
def test_a_process_that_is_alive_and_does_not_come_is_named(tmp_path: Path) -> None:
    status, said = run_together(2, tmp_path, hang.hang.__name__, program=hang.__file__)
    assert status != 0
    assert re.search(r"tmt: process 1 \([^,)]+, process \d+\) of 2 has kept the others waiting for 0.1 minutes", said)


@pytest.mark.slow
@pytest.mark.parametrize("work", [hang.be_patient, hang.be_slow_together])
def test_work_that_takes_long_is_no_hang(tmp_path: Path, work: Callable) -> None:
    status, said = run_together(2, tmp_path, work.__name__, program=hang.__file__)
    assert status == 0
    assert said.count("together again") == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_after_the_same_step(tmp_path: Path, number: signal.Signals) -> None:
    """To torchrun and its workers alike, as a terminal sends Ctrl-C; torchrun then sends it on."""
    process, ids = begin(tmp_path)
    for one in [process.pid, *ids]:
        os.kill(one, number)
    said, _ = process.communicate(timeout=100)
    print(said)
    (line,) = re.findall(r"saved at step (\d+); go on with: tmt train --resume runs/toy", said)
    run = RunFolder(tmp_path / "runs" / "toy")
    assert run.steps()[-1] == int(line) == steps(run.path)[-1]
    resumed = call_tmt(tmp_path, "train", "--resume", "runs/toy", f"training.max_steps={int(line) + 2}")
    assert resumed.returncode == 0
    assert f"going on from step {line}" in resumed.stdout


@pytest.mark.slow
def test_one_process_under_torchrun_comes_back_too(tmp_path: Path) -> None:
    process, ids = begin(tmp_path, "training.max_steps=60", restarts=1, number=1)
    os.kill(ids[0], signal.SIGKILL)
    said, _ = process.communicate(timeout=100)
    print(said)
    assert process.returncode == 0
    assert "going on from step" in said
    assert steps(tmp_path / "runs" / "toy") == list(range(1, 61))


@pytest.mark.slow
def test_two_machines_come_back_though_one_counts_no_restart(tmp_path: Path) -> None:
    """Two launchers, as on two machines, and one loses its worker: both start anew, and only one of them counts it."""
    write_config(tmp_path, max_steps=200, checkpoint_every_steps=5, keep_checkpoints=2)
    options = ("--nnodes", "2", "--rdzv-id", "x", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:29517",
               "--max-restarts", "3")  # fmt: skip
    train = (*TMT, "train", "--config", "toy.yaml", "--resume", "auto", "validation.every_steps=40")
    launchers = [start_together(1, tmp_path, *train, options=options, standalone=False) for _ in range(2)]
    wait_until((tmp_path / "runs" / "toy" / "checkpoints" / "step_10").exists)
    os.kill(workers(tmp_path, 2, "RANK")[1], signal.SIGKILL)
    for launcher in launchers:
        said, _ = launcher.communicate(timeout=200)
        print(said)
        assert launcher.returncode == 0
    assert steps(tmp_path / "runs" / "toy") == list(range(1, 201))
