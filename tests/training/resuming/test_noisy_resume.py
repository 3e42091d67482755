"""BPE-dropout, both directions at first, a moving average and the average at the end: one run, come what may."""

from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from torchrun import run_together
from toy import toy_mapping, write_toy_corpus
from trainings import assert_same_run, kill_at, metrics, start, tmt_here, to_the_end

TRAIN = ("train", "--config", "toy.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One straight training of some 60 updates, 2 micro-batches each. The direction changes after update 33 or so."""
    folder = tmp_path_factory.mktemp("noisy")
    mapping = toy_mapping(
        write_toy_corpus(folder / "data"),
        data={"both_directions_epochs": 1, "cache_dir": str(folder / "cache")},
        tokenizer={"kind": "bpe", "vocab_size": 320, "joint": True, "bpe_dropout": 0.3},
        model={"max_len": 60},
        training={
            "max_steps": None, "max_epochs": 2, "grad_accum": 2, "ema_decay": 0.9, "max_tokens": 100,
            "factor": 0.1, "checkpoint_every_steps": 6, "average_last": 3, "log_every_steps": 1,
        },
        validation={"every_steps": 20},
    )  # fmt: skip
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping), encoding="utf-8")
    assert tmt_here(folder, *TRAIN, "name=straight").returncode == 0
    return folder


def last_step(run: Path) -> int:
    return metrics(run)[-1]["step"]


def test_killed_in_either_part_it_is_the_same_run(folder: Path) -> None:
    straight = folder / "runs" / "straight"
    last = last_step(straight)
    epochs = {line["step"]: line["epoch"] for line in metrics(straight) if line["kind"] == "train"}
    switch = min(step for step in epochs if epochs[step] == 1)
    before, after = 6 * ((switch - 1) // 6), 6 * ((switch + 11) // 6)
    assert 6 < before < switch < after < last
    for step in (6, before, after):
        kill_at(folder / f"runs/killed/checkpoints/step_{step}", folder, *TRAIN, "--resume", "auto", "name=killed")
    result = to_the_end(start(folder, *TRAIN, "--resume", "auto", "name=killed"))
    assert result.returncode == 0
    assert "average of the steps" in result.stdout
    assert_same_run(straight, folder / "runs" / "killed", last)
    averages = [folder / "runs" / name / "checkpoints/average/model.safetensors" for name in ("straight", "killed")]
    assert averages[0].read_bytes() == averages[1].read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_two_processes_train_as_one(folder: Path, sharding: str) -> None:
    """The same pieces, the same moving average, the same average at the end."""
    status, _ = run_together(
        2, folder, *TRAIN, f"name={sharding}", f"training.sharding={sharding}", "training.grad_accum=1"
    )
    assert status == 0
    one, two = (folder / "runs" / name for name in ("straight", sharding))
    assert len(metrics(one)) == len(metrics(two))
    for a, b in zip(metrics(one), metrics(two), strict=True):
        assert a == pytest.approx(b, abs=1e-3)
        assert (a["kind"], a.get("num_tokens"), a.get("padding")) == (b["kind"], b.get("num_tokens"), b.get("padding"))
    for place in (f"step_{last_step(one)}", "average"):
        a, b = (load_file(run / "checkpoints" / place / "model.safetensors") for run in (one, two))
        assert max((a[name] - b[name]).abs().max() for name in a) < 1e-3
