"""Several processes are one: the same gradients, losses, scores and checkpoints, whatever happens to one of them."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gradients
import hang
import no_room
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torchrun import run_together, start_together
from toy import toy_config, toy_mapping, write_toy_corpus
from trainings import metrics, tmt, wait_for

from transformer_mt.config.run_folder import RunFolder
from transformer_mt.errors import UserError
from transformer_mt.machine.world import World, merge
from transformer_mt.training.changes import adapted_grad_accum

TMT = ("-m", "transformer_mt")
SHARDINGS = ("none", "full")


def slow(*values: object) -> object:
    """A parameter whose test runs when asked: its sister covers most of it."""
    return pytest.param(*values, marks=pytest.mark.slow)


class Runs(NamedTuple):
    """The folder of toy.yaml and of `runs`, in which 20 steps were trained with 4 micro-batches an update: `one` by one
    process, `none` and `full` by two, under that `training.sharding`. `said` is what was printed.
    """

    folder: Path
    said: dict[str, str]

    def copy(self, name: str, new: str) -> RunFolder:
        shutil.copytree(self.folder / "runs" / name, self.folder / "runs" / new)
        return RunFolder(self.folder / "runs" / new)


def write_config(folder: Path, **training: object) -> None:
    corpus = write_toy_corpus(folder / "toy")
    mapping = toy_mapping(
        corpus, model={"dropout": 0.2, "num_experts": 2},
        training={"factor": 0.1, "log_every_steps": 1, "grad_accum": 2, **training},
    )  # fmt: skip
    mapping["data"]["cache_dir"] = str(folder / "cache")
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping), encoding="utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    write_config(folder)
    train = ("train", "--config", "toy.yaml")
    said = {"one": tmt(folder, *train, "name=one", "training.grad_accum=4").stdout}
    for sharding in SHARDINGS:
        status, said[sharding] = run_together(
            2, folder, *TMT, *train, f"name={sharding}", f"training.sharding={sharding}"
        )
        assert status == 0
    return Runs(folder, said)


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_two_processes_have_the_gradients_of_one(tmp_path: Path, sharding: str) -> None:
    """Of the same micro-batches, dropout on, also where there are too few for both."""
    corpus = write_toy_corpus(tmp_path / "toy")
    status, _ = run_together(2, tmp_path, gradients.__file__, str(corpus), sharding, str(tmp_path))
    assert status == 0
    for name, alone in gradients.gradients(corpus, "none"):
        together = load_file(tmp_path / f"{name}.safetensors")
        assert alone.keys() == together.keys()
        torch.testing.assert_close(together.pop("sums"), alone.pop("sums"), rtol=1e-6, atol=1e-5)
        assert any(gradient.abs().max() > 1e-3 for gradient in alone.values())
        for parameter, gradient in alone.items():
            torch.testing.assert_close(together[parameter], gradient, rtol=0, atol=1e-6, msg=f"{name}: {parameter}")


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_two_processes_train_as_one_that_accumulates(runs: Runs, sharding: str) -> None:
    """Losses of 20 steps, with the short update that ends each epoch; validations, and what they translate."""
    one, two = (metrics(runs.folder / "runs" / name) for name in ("one", sharding))
    assert len(one) == 20 + 3
    assert max(line["epoch"] for line in one) >= 3
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, abs=1e-4)
        for exact in ("kind", "step", "epoch", "num_tokens", "padding", "bleu", "chrf"):
            assert a.get(exact) == pytest.approx(b.get(exact), abs=1e-9)
    both = [
        re.sub(r"[^\n]*(?:grad_accum|runs?/|seconds|processes:)[^\n]*\n", "", runs.said[n]) for n in ("one", sharding)
    ]
    said = [line for line in both[0].split("\n") if line and not line.startswith("step ")]
    assert len(said) > 10
    assert all(both[1].count(line) == 1 for line in said), "one process speaks"


@pytest.mark.parametrize(
    ("sharding", "number"),
    [
        pytest.param("none", 4, marks=pytest.mark.slow),
        ("full", 1),
        pytest.param("none", 1, marks=pytest.mark.slow),
        pytest.param("full", 4, marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_goes_on_with_any_number_of_processes(runs: Runs, sharding: str, number: int) -> None:
    """And under either sharding, and translates: the format knows of neither."""
    name = f"{sharding}_{number}"
    run = runs.copy(sharding, name)
    straight = runs.copy("one", f"one_for_{name}")
    more = ("training.max_steps=24", "validation.num_translated=0")
    assert tmt(runs.folder, "train", "--resume", str(straight.path), *more).returncode == 0
    resume = ("train", "--resume", str(run.path), f"training.sharding={sharding}", *more)
    if number == 1:
        assert tmt(runs.folder, *resume).returncode == 0
    else:
        status, said = run_together(number, runs.folder, *TMT, *resume)
        assert status == 0
        assert "training.grad_accum is 1 for 4 processes" in said
    assert [line["step"] for line in metrics(run.path)] == [line["step"] for line in metrics(straight.path)]
    for a, b in zip(metrics(straight.path), metrics(run.path), strict=True):
        assert a == pytest.approx(b, abs=1e-4)
    texts = [tmt(runs.folder, "translate", "--run", str(r.path), "one two three.").stdout for r in (straight, run)]
    assert texts[0] == texts[1]
    assert texts[0].strip()


def test_what_cannot_be_shared_evenly_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    before = toy_config(tmp_path, training={"grad_accum": 3})
    other = toy_config(tmp_path, training={"grad_accum": 2})
    assert adapted_grad_accum(before, before, 6, 2) == 3
    assert adapted_grad_accum(before, before, 6, 1) == 6
    assert adapted_grad_accum(before, before, 6, 6) == 1
    assert adapted_grad_accum(before, other, 6, 3) == 2
    with pytest.raises(UserError, match=r"is 6 micro-batches .*4 processes cannot share them .*one of 1, 2, 3, 6, or"):
        adapted_grad_accum(before, before, 6, 4)
    with pytest.raises(UserError, match=r"is 6 micro-batches .*2 x 2 are 4: .*set training.grad_accum: 3, or"):
        adapted_grad_accum(before, other, 6, 2)


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
    write_config(folder, max_steps=300, checkpoint_every_steps=5, keep_checkpoints=2)
    process = start_together(
        number, folder, *TMT, "train", "--config", "toy.yaml", "validation.every_steps=40", *changes,
        options=("--max-restarts", str(restarts)),
    )  # fmt: skip
    wait_for(folder / "runs" / "toy" / "checkpoints" / "step_10")
    return process, workers(folder, number)


def steps(run: Path) -> list[int]:
    return [line["step"] for line in metrics(run) if line["kind"] == "train"]


@pytest.mark.parametrize("rank", [slow(0), 1])
def test_a_killed_worker_comes_back_by_itself(tmp_path: Path, rank: int) -> None:
    process, ids = begin(tmp_path, "training.max_steps=120", restarts=3)
    os.kill(ids[rank], signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    print(said)
    assert process.returncode == 0
    assert "going on from step" in said
    assert "finished at step 120" in said
    assert steps(tmp_path / "runs" / "toy") == list(range(1, 121))


def test_a_process_that_hangs_is_named_and_replaced(tmp_path: Path) -> None:
    process, ids = begin(tmp_path, "training.timeout_minutes=0.1", "training.max_steps=120", restarts=1)
    os.kill(ids[1], signal.SIGSTOP)
    time.sleep(12)
    os.kill(ids[1], signal.SIGCONT)  # torchrun would wait half a minute before it kills what does not end by itself
    said, _ = process.communicate(timeout=60)
    print(said)
    assert f"process {ids[1]}) of 2 has kept the others waiting for 0.1 minutes" in said
    assert said.count("has kept the others waiting") == 1
    assert process.returncode == 0
    assert "finished at step 120" in said
    assert steps(tmp_path / "runs" / "toy") == list(range(1, 121))


@pytest.mark.slow
def test_a_process_that_is_alive_and_does_not_come_is_named(tmp_path: Path) -> None:
    status, said = run_together(2, tmp_path, hang.__file__, hang.hang.__name__)
    assert status != 0
    assert re.search(r"tmt: process 1 \([^,)]+, process \d+\) of 2 has kept the others waiting for 0.1 minutes", said)


@pytest.mark.parametrize("work", [hang.be_patient, slow(hang.be_slow_together)])
def test_work_that_takes_long_is_no_hang(tmp_path: Path, work: Callable) -> None:
    status, said = run_together(2, tmp_path, hang.__file__, work.__name__)
    assert status == 0
    assert said.count("together again") == 2


@pytest.mark.parametrize("sharding", ["none", slow("full")])
def test_memory_that_runs_out_in_one_is_noted_for_the_next_start(runs: Runs, sharding: str, monkeypatch) -> None:
    """The others wait for its gradients, so that all stop; torchrun starts them again, and what is too large is split.
    No pair is lost: the losses are those of the training in one piece, but for what dropout draws, which is off here.
    """
    monkeypatch.setenv("SENTENCES", "5")
    train = ("train", "--config", "toy.yaml", "model.dropout=0", "model.num_experts=1", "training.max_steps=12")
    name = f"room_{sharding}"
    status, said = run_together(
        2, runs.folder, no_room.__file__, *train, f"name={name}", f"training.sharding={sharding}",
        "training.grad_accum=1", options=("--max-restarts", "3"),
    )  # fmt: skip
    assert status == 0
    assert "and the other processes wait for it. This is noted" in said
    assert tmt(runs.folder, *train, f"name=straight_{sharding}", "training.grad_accum=2").returncode == 0
    straight, split = (metrics(runs.folder / "runs" / n) for n in (f"straight_{sharding}", name))
    assert sum(line.pop("split_micro_batches", 0) for line in split) > 0
    for a, b in zip(straight, split, strict=True):
        assert a.pop("padding", 0) >= b.pop("padding", 0), "a part has the padding of its own longest sentence"
        assert a == pytest.approx(b, abs=1e-4)


@pytest.mark.parametrize("number", [slow(signal.SIGTERM), signal.SIGINT])
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
    status, said = run_together(
        2, tmp_path, *TMT, "train", "--resume", "runs/toy", f"training.max_steps={int(line) + 2}"
    )
    assert status == 0
    assert f"going on from step {line}" in said


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("training.grad_acum=2",), "did you mean grad_accum?"),
        (("name=none",), "runs/none exists already."),
        slow(("data.root=nowhere", "name=new"), "nowhere"),
        slow(("--resume", "runs/nowhere"), "runs/nowhere"),
        slow(("training.device=cuda:1", "name=new"), "cuda:1"),
        (("training.precision=fp16", "training.sharding=full", "name=new"), "fp16"),
    ],
)
def test_what_one_process_cannot_do_is_said_once(runs: Runs, wrong: tuple[str, ...], message: str) -> None:
    status, said = run_together(2, runs.folder, *TMT, "train", "--config", "toy.yaml", *wrong)
    assert status != 0
    assert said.count("tmt: ") == 1
    assert message in said
    assert "transformer_mt/" not in said, "no traceback of ours"
    assert not (runs.folder / "runs" / "new").exists()


@pytest.mark.slow
def test_a_run_is_not_resumed_for_a_restart_alone(runs: Runs) -> None:
    """A start that was refused, and is tried again by torchrun, is refused again."""
    before = metrics(runs.folder / "runs" / "full")
    status, said = run_together(
        2, runs.folder, *TMT, "train", "--config", "toy.yaml", "name=full", "training.max_steps=30",
        options=("--max-restarts", "1"),
    )  # fmt: skip
    assert status != 0
    assert said.count("runs/full exists already") == 2
    assert metrics(runs.folder / "runs" / "full") == before


def test_shares_are_put_together_again() -> None:
    for size in (1, 2, 3, 7):
        items = list(range(5))
        parts = [World(rank, size).share(items) for rank in range(size)]
        assert merge(parts) == items


def test_half_an_environment_is_refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = tmt(runs.folder, "train", "--config", "toy.yaml", "name=half")
    assert said.returncode == 2
    assert "WORLD_SIZE is 2, and RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT is not set" in said.stdout


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
    wait_for(tmp_path / "runs" / "toy" / "checkpoints" / "step_10")
    os.kill(workers(tmp_path, 2, "RANK")[1], signal.SIGKILL)
    for launcher in launchers:
        said, _ = launcher.communicate(timeout=200)
        print(said)
        assert launcher.returncode == 0
    assert steps(tmp_path / "runs" / "toy") == list(range(1, 201))


@pytest.mark.parametrize("sharding", [slow("none"), "full"])
def test_a_loss_that_is_not_finite_is_diagnosed_as_by_one_process(runs: Runs, sharding: str) -> None:
    """The first process replays the micro-batches of all, on the whole model, and says it once."""
    name = f"broken_{sharding}"
    train = ("train", "--config", "toy.yaml", "training.factor=1e36", "training.clip_norm=null")
    alone = tmt(runs.folder, *train, f"name={name}_alone", "training.grad_accum=4")
    assert alone.returncode == 2
    status, said = run_together(2, runs.folder, *TMT, *train, f"name={name}", f"training.sharding={sharding}")
    assert status != 0
    expected = alone.stdout[alone.stdout.index("tmt: The ") : alone.stdout.index("The update is in")]
    assert "The first output that is not finite is that of" in expected
    assert said.count(expected) == said.count("tmt: ") == 1
    (file,) = (runs.folder / "runs" / name / "debug").glob("step_?.safetensors")
    assert tmt(runs.folder, "debug", "batch", str(file), "--run", f"runs/{name}").returncode == 0
