"""A training with all regularisers, killed and resumed; and what it records."""

import json
from pathlib import Path

import yaml
from commands import call_tmt
from toy import toy_mapping, write_toy_corpus
from trainings import killed_and_resumed, metrics, tensorboard_events

SECTIONS = {
    "model": {"dropout": 0.2, "num_heads": 1, "src_word_dropout": 0.1, "tgt_word_dropout": 0.1, "layer_drop": 0.2},
    "training": {
        "grad_accum": 2, "max_steps": 24, "checkpoint_every_steps": 5, "max_tokens": 48, "log_every_steps": 4,
        "weight_decay": 0.01, "label_smoothing_by": "unigram", "consistency": {"kind": "simcut", "start_step": 14},
    },
}  # fmt: skip


def test_killed_and_resumed_it_is_the_same_run_and_says_how_far_passes_are_apart(tmp_path: Path) -> None:
    write_toy_corpus(tmp_path / "data")
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(toy_mapping(tmp_path / "data", **SECTIONS)))
    assert killed_and_resumed(tmp_path, "train", "--config", "toy.yaml", last=24).returncode == 0

    lines = [line for line in metrics(tmp_path / "runs/straight") if line["kind"] == "train"]
    assert [line["step"] for line in lines if "divergence" in line] == [16, 20, 24]
    assert all(line["divergence"] > 0 for line in lines[3:])
    events = tensorboard_events(tmp_path / "runs/straight")
    assert [event.step for event in events.Scalars("train/divergence")] == [16, 20, 24]

    state = json.loads((tmp_path / "runs/straight/checkpoints/step_24/state.json").read_text())
    assert state["window"] == {}
    refused = call_tmt(
        tmp_path, "train", "--config", "toy.yaml", "name=killed", "--resume", "auto", "training.consistency.alpha=1"
    )
    assert refused.returncode == 2
    assert "training.consistency.alpha: was None, is 1" in refused.stderr
