"""Trainings on sources with weights, and in the other direction."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import call_tmt
from marks import slow
from toy import toy_mapping, toy_pairs, write_toy_corpus
from trainings import killed_and_resumed, metrics

from transformer_mt.config.loading import load_config
from transformer_mt.data.preparation import prepare_data
from transformer_mt.storage.run_folder import RunFolder


def write_config(folder: Path, name: str, data: dict) -> None:
    mapping = toy_mapping(folder / "data", data=data)
    (folder / name).write_text(yaml.safe_dump(mapping))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The toy corpus with a second, smaller source; `mixed.yaml` takes most pairs of each batch from that."""
    write_toy_corpus(tmp_path / "data")
    (tmp_path / "data" / "more.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in toy_pairs(40, seed=5)))
    train = [{"src": "train.en", "tgt": "train.es", "weight": 1}, {"tsv": "more.tsv", "weight": 2}]
    write_config(tmp_path, "mixed.yaml", {"train": train})
    bare = [{key: value for key, value in source.items() if key != "weight"} for source in train]
    write_config(tmp_path, "temperature.yaml", {"train": bare, "temperature": 3})
    return tmp_path


@pytest.mark.parametrize("config", ["mixed.yaml", slow("temperature.yaml")])
def test_a_mixed_training_is_resumed_to_the_same_run(folder: Path, config: str) -> None:
    """Killed in the second epoch, amid the second pass over the larger source."""
    result = killed_and_resumed(folder, "train", "--config", config, "training.max_tokens=128")
    assert result.returncode == 0


def test_the_order_goes_on_from_every_micro_batch(folder: Path) -> None:
    config = load_config(str(folder / "mixed.yaml")).config
    straight = [prepare_data(config).train.plan(64, 3, epoch).known() for epoch in range(3)]
    again = prepare_data(config).train
    for epoch, batches in enumerate(straight):
        for number in range(len(batches)):
            rest = again.plan(64, 3, epoch).take(number, len(batches))
            assert [rows.tolist() for rows in rest] == [rows.tolist() for rows in batches[number:]]
    assert len(np.concatenate(straight[0])) == 160


def test_other_weights_are_another_training(folder: Path) -> None:
    assert call_tmt(folder, "train", "--config", "mixed.yaml", "training.max_steps=3").returncode == 0
    result = call_tmt(
        folder, "train", "--config", "mixed.yaml", "--resume", "auto", "data.train.1.weight=3", "training.max_steps=6"
    )
    assert result.returncode == 2
    assert "data.train.1.weight: was 2.0, is 3.0\n" in result.stderr
    assert "name=NEW" in result.stderr
    result = call_tmt(folder, "train", "--config", "temperature.yaml", "--resume", "auto")
    assert "data.temperature: was None, is 3.0" in result.stderr


def test_reverse_is_what_exchanged_files_are(folder: Path) -> None:
    """Loss, validation, translations and scores, bit for bit; in a run of its own, which says its own direction."""
    data = {"test": [{"src": "valid.en", "tgt": "valid.es"}]}
    write_config(folder, "toy.yaml", data)
    exchanged = {
        "src_lang": "es", "tgt_lang": "en", "train": [{"src": "train.es", "tgt": "train.en"}],
        **{split: [{"src": "valid.es", "tgt": "valid.en"}] for split in ("validation", "test")},
    }  # fmt: skip
    write_config(folder, "by_hand.yaml", exchanged)
    for arguments in (["toy.yaml", "data.reverse=true"], ["by_hand.yaml", "name=by_hand"]):
        assert call_tmt(folder, "train", "--config", *arguments, "validation.metric=bleu").returncode == 0
    runs = [folder / "runs" / name for name in ("toy-reverse", "by_hand")]
    assert metrics(runs[0]) == metrics(runs[1])
    weights = [run / "checkpoints" / "step_20" / "model.safetensors" for run in runs]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    vocabulary = json.loads((RunFolder(runs[0]).tokenizers / "src.json").read_text())["model"]["vocab"]
    assert "uno" in vocabulary
    assert "one" not in vocabulary
    for arguments in (
        ["evaluate", "--split", "test"],
        ["evaluate", "--split", "validation"],
        ["score", "--src", "data/valid.es", "--ref", "data/valid.en"],
        ["align", "--src", "data/valid.es", "--ref", "data/valid.en"],
        ["translate", "--input", "data/valid.es"],
    ):
        results = [call_tmt(folder, *arguments, "--run", f"runs/{run.name}") for run in runs]
        assert results[0].returncode == 0, results[0].stderr
        said = [re.sub(r"[\d.,]+ a second", "", result.stdout) for result in results]
        assert said[0].replace("toy-reverse", "by_hand") == said[1], arguments
    assert "es to en" in (call_tmt(folder, "card", "--run", "runs/toy-reverse").stdout)


def test_a_reversed_run_is_not_the_forward_one(folder: Path) -> None:
    write_config(folder, "toy.yaml", {})
    train = ("train", "--config", "toy.yaml", "training.max_steps=3")
    assert call_tmt(folder, *train).returncode == 0
    forward = sorted((folder / "runs" / "toy").rglob("*"))
    assert call_tmt(folder, *train, "data.reverse=true", "name=toy").returncode == 2
    result = call_tmt(folder, *train, "data.reverse=true", "name=toy", "--resume", "auto")
    assert result.returncode == 2
    assert "data.src_lang: was 'en', is 'es'" in result.stderr
    assert call_tmt(folder, *train, "data.reverse=true").returncode == 0
    assert sorted((folder / "runs" / "toy").rglob("*")) == forward
    assert (folder / "runs" / "toy-reverse" / "config.yaml").exists()
