"""What several processes cannot do, or no longer: said once as by one, and noted where the next start needs it."""

from functools import partial
from pathlib import Path

import no_room
import pytest
import torch
from commands import call_tmt
from marks import slow
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage], documented there
from torchrun import run_together, write_config
from trainings import metrics
from translators import toy_translator

import transformer_mt
from transformer_mt.errors import ToldElsewhereError, UserError
from transformer_mt.machine import world
from transformer_mt.machine.world import ALONE, World
from transformer_mt.training.sharing.fsdp import Sharded

PACKAGE = Path(transformer_mt.__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder of toy.yaml, and of a run that is `there` already."""
    folder = tmp_path_factory.mktemp("refused")
    write_config(folder)
    assert call_tmt(folder, "train", "--config", "toy.yaml", "name=there").returncode == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_memory_that_runs_out_in_one_is_noted_for_the_next_start(folder: Path, sharding: str, monkeypatch) -> None:
    """The others wait for its gradients, so that all stop; torchrun starts them again, and what is too large is split.
    No pair is lost: the losses are those of the training in one piece, but for what dropout draws, which is off here.
    """
    monkeypatch.setenv("SENTENCES", "5")
    train = (
        "train", "--config", "toy.yaml", "model.dropout=0", "model.num_experts=1", "training.max_steps=12",
        "training.proofs=off",  # they copy the model, and what plants the want of memory cannot be copied
    )  # fmt: skip
    name = f"room_{sharding}"
    status, said = run_together(
        2, folder, *train, f"name={name}", f"training.sharding={sharding}",
        "training.grad_accum=1", program=no_room.__file__, options=("--max-restarts", "3"),
    )  # fmt: skip
    assert status == 0
    assert "and the other processes wait for it. This is noted" in said
    assert call_tmt(folder, *train, f"name=straight_{sharding}", "training.grad_accum=2").returncode == 0
    straight, split = (metrics(folder / "runs" / n) for n in (f"straight_{sharding}", name))
    assert sum(line.pop("split_micro_batches", 0) for line in split) > 0
    for a, b in zip(straight, split, strict=True):
        assert a.pop("padding", 0) >= b.pop("padding", 0), "a part has the padding of its own longest sentence"
        assert a == pytest.approx(b, abs=1e-4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("training.grad_acum=2",), "did you mean grad_accum?"),
        (("name=there",), "runs/there exists already."),
        slow(("data.root=nowhere", "name=new"), "nowhere"),
        slow(("--resume", "runs/nowhere"), "runs/nowhere"),
        slow(("training.device=cuda:1", "name=new"), "cuda:1"),
        (("training.precision=fp16", "training.sharding=full", "name=new"), "fp16"),
    ],
)
def test_what_one_process_cannot_do_is_said_once(folder: Path, wrong: tuple[str, ...], message: str) -> None:
    status, said = run_together(2, folder, "train", "--config", "toy.yaml", *wrong)
    assert status != 0
    assert said.count("tmt: ") == 1
    assert message in said
    assert f"{PACKAGE}/" not in said, "no traceback of ours"
    assert not (folder / "runs" / "new").exists()


def test_an_error_is_told_by_one_of_those_that_come_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first process, which others wait for; where it does not come, as where the file of a stream has a broken
    line on another machine alone, by another one. Nobody told that once.
    """
    monkeypatch.setattr(world, "FIRST_SECONDS", 0.1)
    error = UserError("broken")
    for order in ((0, 1, 2), (2, 1), (1, 0, 2)):
        store = HashStore()
        raised = [World(rank, 3, store=store).told_by_one(error) for rank in order]
        assert raised[0] is error
        assert all(isinstance(other, ToldElsewhereError) for other in raised[1:])
    assert World().told_by_one(error) is error


def test_nobody_waits_for_a_process_that_ended_with_an_error() -> None:
    """Such as one whose machine has no room for its cache: it has told that, and another launcher than torchrun does
    not end the others.
    """
    for rank, wait in ((0, World.one_first), (1, World.one_first), (1, partial(World.first, patient=True))):
        store = HashStore()
        store.set("left", "")
        with pytest.raises(ToldElsewhereError):
            wait(World(rank, 2, store=store), lambda: None)


@pytest.mark.slow
def test_a_run_is_not_resumed_for_a_restart_alone(folder: Path) -> None:
    """A start that was refused, and is tried again by torchrun, is refused again."""
    before = metrics(folder / "runs" / "there")
    status, said = run_together(
        2, folder, "train", "--config", "toy.yaml", "name=there", "training.max_steps=30",
        options=("--max-restarts", "1"),
    )  # fmt: skip
    assert status != 0
    assert said.count("runs/there exists already") == 2
    assert metrics(folder / "runs" / "there") == before


def test_half_an_environment_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = call_tmt(folder, "train", "--config", "toy.yaml", "name=half")
    assert said.returncode == 2
    assert "WORLD_SIZE is 2, and RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT is not set" in said.stderr


@pytest.mark.parametrize("sharding", [slow("none"), "full"])
def test_a_loss_that_is_not_finite_is_diagnosed_as_by_one_process(folder: Path, sharding: str) -> None:
    """The first process replays the micro-batches of all, on the whole model, and says it once."""
    name = f"broken_{sharding}"
    train = ("train", "--config", "toy.yaml", "training.factor=1e36", "training.clip_norm=null")
    alone = call_tmt(folder, *train, f"name={name}_alone", "training.grad_accum=4", together=True)
    assert alone.returncode == 2
    status, said = run_together(2, folder, *train, f"name={name}", f"training.sharding={sharding}")
    assert status != 0
    expected = alone.stdout[alone.stdout.index("tmt: The ") : alone.stdout.index("The update is in")]
    assert "The first output that is not finite is that of" in expected
    assert said.count(expected) == said.count("tmt: ") == 1
    (file,) = (folder / "runs" / name / "debug").glob("step_?.safetensors")
    assert call_tmt(folder, "debug", "batch", str(file), "--run", f"runs/{name}").returncode == 0


def test_parts_of_a_model_on_cpus_of_which_torch_is_not_capable(monkeypatch: pytest.MonkeyPatch) -> None:
    model = toy_translator().model
    monkeypatch.setattr(torch.cpu, "Stream", object)  # as of torch 2.6
    with pytest.raises(UserError, match=r"is full, which torch 2.6 does not do on CPUs\. Use training.sharding"):
        Sharded(model, ALONE)
