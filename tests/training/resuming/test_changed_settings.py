"""Settings that are others at the next start: the learning rate, the data, the precision of validations."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from saved_runs import TRAINING, train
from toy import toy_config, toy_mapping
from trainings import edit_state, metrics

from transformer_mt.config.loading import parse_run_config
from transformer_mt.errors import UserError
from transformer_mt.machine.world import World
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import validation
from transformer_mt.training.begin import of_other_configs
from transformer_mt.training.run import start_or_resume


def test_the_learning_rate_changes_with_a_flag_and_is_recorded(data: Path, run: RunFolder, capsys) -> None:
    with pytest.raises(UserError, match=r"training\.factor: was 1\.0, is 0\.5\n.*--change-lr lets") as refused:
        train(data, run, resume=True, factor=0.5, max_steps=15)
    assert "max_steps" not in str(refused.value), "what may change is no reason"
    assert not run.changes.exists()
    run.evaluations.mkdir()
    for name, checkpoint in (("kept", "step_12"), ("lost", "step_15"), ("mean", "average")):
        (run.evaluations / f"{name}.json").write_text(json.dumps({"checkpoint": checkpoint}))
        (run.evaluations / f"{name}.jsonl").write_text("")
    assert train(data, run, resume=True, change_lr=True, factor=0.5, max_steps=15).exit_status == 0
    assert "changed: training.factor was 1.0, is 0.5" in capsys.readouterr().out
    assert sorted(path.name for path in run.evaluations.glob("*.json")) == ["kept.json", "mean.json"], (
        "of other weights"
    )
    assert {path.name for path in (run.path / "evaluations_before").iterdir()} == {"lost.json", "lost.jsonl"}
    recorded = [json.loads(line) for line in run.changes.read_text().split("\n")[:-1]]
    assert recorded == [{"step": 12, "changes": {"training.factor": [1.0, 0.5], "training.max_steps": [12, 15]}}]
    assert train(data, run, resume=True, factor=0.5, max_steps=16).exit_status == 0, "it holds from now on"
    recorded.append({"step": 15, "changes": {"training.max_steps": [15, 16]}})
    assert [json.loads(line) for line in run.changes.read_text().split("\n")[:-1]] == recorded
    rates = {line["step"]: line["lr"] for line in metrics(run.path) if line["kind"] == "train"}
    assert rates[15] == pytest.approx(0.5 * 16**-0.5 * 15**-0.5)
    with pytest.raises(UserError, match=r"model\.d_ff: was 32, is 64"):
        start_or_resume(
            parse_run_config(toy_mapping(data, training=TRAINING, model={"dropout": 0.2, "d_ff": 64}), "toy"),
            run, True, True,
        )  # fmt: skip


def test_changed_data_is_named_with_its_counts(data: Path, run: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    for name, line in (("train.en", "one two.\n"), ("train.es", "dos uno.\n")):
        with (tmp_path / "data" / name).open("a") as file:
            file.write(line)
    with pytest.raises(UserError, match=r"train: was 120 pairs \(fingerprint \w+\), is 121 \(\w+\)\n") as refused:
        train(tmp_path / "data", run, resume=True, max_steps=15)
    assert "validation" not in str(refused.value)


def test_other_data_of_another_process_is_named_alike(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(_: World, mine: Any) -> list[Any]:
        return [mine, {**mine, "train": {"fingerprint": "b2", "num_pairs": 119}}] if isinstance(mine, dict) else [mine]

    monkeypatch.setattr(World, "gather", gather)
    said = r"every machine:\n  train: process 0 has 120 pairs \(fingerprint \w+\), process 1 119 \(b2\)$"
    with pytest.raises(UserError, match=said):
        train(data, RunFolder(tmp_path / "run"), resume=False, max_steps=1)


@pytest.mark.parametrize(("device", "second"), [("cpu", "bf16"), ("cuda:1", "fp32")])
def test_the_precision_of_validations_is_measured_once_a_run_and_anew_on_another_device(
    device: str, second: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a CPU is fast at, int8 say, a GPU has not."""
    answers = iter(["bf16", "fp32"])
    monkeypatch.setattr(validation, "choose_search_precision", lambda *_: SimpleNamespace(value=next(answers)))
    run = RunFolder(tmp_path / "run")
    for end, expected in ((3, "bf16"), (6, second)):
        mapping = toy_mapping(data, training={**TRAINING, "max_steps": end}, decoding={"precision": "auto"})
        start_or_resume(parse_run_config(mapping, "toy"), run, resume=True)
        assert json.loads((run.step(end) / "state.json").read_text())["validation_precision"] == expected
        edit_state(run.step(end), device=device)


@pytest.mark.parametrize("precision", ["int8", "auto"])
def test_validations_translate_at_the_precision_of_the_search(
    precision: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """int8 is for weights laid out for a search: the nll beside it is that of fp32. `auto` finds what it finds."""
    if precision == "auto":
        monkeypatch.setattr(
            "transformer_mt.decoding.fast_layers.search_precision.NARROW", 1
        )  # int8 or bf16, where there are any
    found = []
    for wanted in (precision, "fp32"):
        mapping = toy_mapping(data, training={**TRAINING, "max_steps": 3}, decoding={"precision": wanted})
        run = RunFolder(tmp_path / wanted)
        assert start_or_resume(parse_run_config(mapping, "toy"), run, resume=False).exit_status == 0
        found.append([line for line in metrics(run.path) if line["kind"] == "validation"][-1])
    assert found[0]["nll"] == pytest.approx(found[1]["nll"], rel=2e-3)
    assert "bleu" in found[0]


def test_a_process_with_another_config_is_told_of(tmp_path: Path) -> None:
    """Such as one on a machine whose copy of the file is an old one."""
    here = toy_config(tmp_path)
    there = toy_config(
        tmp_path, model={"d_model": 32}, training={"label_smoothing": 0.0, "max_steps": 7, "factor": 0.1}
    )
    assert of_other_configs([here, here]) is None
    said = of_other_configs([here, here, there])
    assert said is not None
    assert said.startswith("process 2 of 3 was given another config (model.d_model 32 instead of 16, training.")
    assert said.endswith(", …), and trains by that of process 0")
