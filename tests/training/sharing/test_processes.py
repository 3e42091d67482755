"""Several processes are one: the same gradients, losses, scores and checkpoints."""

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import gradients
import pytest
import torch
from commands import call_tmt
from marks import slow
from safetensors.torch import load_file
from torchrun import run_together, write_config
from toy import toy_config, write_toy_corpus
from trainings import metrics

from transformer_mt.errors import UserError
from transformer_mt.machine.world import World, merge
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.resuming.resume_rules import adapted_grad_accum

SHARDINGS = ("none", "full")


class Runs(NamedTuple):
    """The folder of toy.yaml and of `runs`, in which 20 steps were trained with 4 micro-batches an update: `one` by one
    process, `none` and `full` by two, under that `training.sharding`. `said` is what was printed.
    """

    folder: Path
    said: dict[str, str]

    def copy(self, name: str, new: str) -> RunFolder:
        shutil.copytree(self.folder / "runs" / name, self.folder / "runs" / new)
        return RunFolder(self.folder / "runs" / new)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    write_config(folder)
    train = ("train", "--config", "toy.yaml")
    said = {"one": call_tmt(folder, *train, "name=one", "training.grad_accum=4", together=True).stdout}
    for sharding in SHARDINGS:
        status, said[sharding] = run_together(2, folder, *train, f"name={sharding}", f"training.sharding={sharding}")
        assert status == 0
    return Runs(folder, said)


@pytest.fixture(scope="module")
def gradients_of_two(tmp_path_factory) -> Path:
    """The corpus and, in a folder for each sharding, what two processes have of it."""
    folder = tmp_path_factory.mktemp("gradients")
    corpus = write_toy_corpus(folder / "toy")
    for sharding in SHARDINGS:
        (folder / sharding).mkdir()
    assert run_together(2, folder, str(corpus), str(folder), *SHARDINGS, program=gradients.__file__)[0] == 0
    return folder


@pytest.fixture(scope="module")
def gradients_of_one(gradients_of_two: Path) -> list[tuple[str, dict[str, torch.Tensor]]]:
    return list(gradients.gradients(gradients_of_two / "toy", "none"))


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_two_processes_have_the_gradients_of_one(
    gradients_of_two: Path, gradients_of_one: list[tuple[str, dict[str, torch.Tensor]]], sharding: str
) -> None:
    """With the same micro-batches, dropout on, also where there are too few for both."""
    for name, alone in gradients_of_one:
        if sharding == "full" and name.startswith(("skipping", "rnn")):
            continue
        together = load_file(gradients_of_two / sharding / f"{name}.safetensors")
        assert alone.keys() == together.keys()
        torch.testing.assert_close(together["sums"], alone["sums"], rtol=1e-6, atol=1e-5)
        alone = {parameter: gradient for parameter, gradient in alone.items() if parameter != "sums"}
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
    of_one = r"[^\n]*(?:grad_accum|runs?/|seconds|processes:)[^\n]*\n|\(\d+\.\d s\)"  # lines, and times within lines
    both = [re.sub(of_one, "", runs.said[name]) for name in ("one", sharding)]
    said = [line for line in both[0].split("\n") if line and not line.startswith("step ")]
    assert len(said) > 10
    assert any(line.startswith("proofs: ") for line in said), "the first proves for all"
    assert all(both[1].count(line) == 1 for line in said), "one process speaks"


@pytest.mark.parametrize(("sharding", "number"), [slow("none", 4), ("full", 1), slow("none", 1), slow("full", 4)])
def test_a_checkpoint_goes_on_with_any_number_of_processes(runs: Runs, sharding: str, number: int) -> None:
    """And under either sharding, and translates: the format knows of neither."""
    name = f"{sharding}_{number}"
    run = runs.copy(sharding, name)
    straight = runs.copy("one", f"one_for_{name}")
    more = ("training.max_steps=24", "validation.num_translated=0")
    assert call_tmt(runs.folder, "train", "--resume", str(straight.path), *more).returncode == 0
    resume = ("train", "--resume", str(run.path), f"training.sharding={sharding}", *more)
    if number == 1:
        assert call_tmt(runs.folder, *resume).returncode == 0
    else:
        status, said = run_together(number, runs.folder, *resume)
        assert status == 0
        assert "training.grad_accum is 1 for 4 processes" in said
    assert [line["step"] for line in metrics(run.path)] == [line["step"] for line in metrics(straight.path)]
    for a, b in zip(metrics(straight.path), metrics(run.path), strict=True):
        assert a == pytest.approx(b, abs=1e-4)
    texts = [call_tmt(runs.folder, "translate", "--run", str(r.path), "one two three.").stdout for r in (straight, run)]
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
    alone = toy_config(tmp_path, training={"grad_accum": 1})
    with pytest.raises(UserError, match=r"is 1 micro-batch \(.*2 processes cannot share them evenly"):
        adapted_grad_accum(alone, alone, 1, 2)


def test_shares_are_put_together_again() -> None:
    for size in (1, 2, 3, 7):
        items = list(range(5))
        parts = [World(rank, size).share(items) for rank in range(size)]
        assert merge(parts) == items
