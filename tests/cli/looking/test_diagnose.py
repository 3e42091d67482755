"""`tmt diagnose` on a healthy run, and on records that are damaged, half written, old or not there."""

import json
from pathlib import Path

import pytest
from commands import call_tmt

from transformer_mt.diagnosing.rules import RULES


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The record of a small healthy run."""
    folder = tmp_path / "toy"
    folder.mkdir()
    train = {"kind": "train", "lr": 1e-3, "tokens_per_second": 100.0, "data_wait": 0.0}
    add(folder / "metrics.jsonl", *({**train, "step": i, "nll": 4.0, "num_tokens": 100 * i} for i in range(1, 13)))
    add(folder / "metrics.jsonl", {"kind": "validation", "step": 12, "nll": 4.0, "bleu": 3.0, "epoch": 1})
    shares = {name: 0.0 for what in ("copies", "empty", "repeating", "same") for name in (what, f"reference_{what}")}
    figures = {"epoch": 1, "vocabulary": 1000, "num_outputs": 8, "length_ratio": 1.0, "relative_update": 1e-3}
    heads = {"sharpness": {"a": [0.5]}, "contributions": {"a": [0.5]}, "unmoved": {"b": 0.0}}
    add(folder / "recorder.jsonl", {"kind": "look", "step": 12, **figures, **shares, **heads})
    return folder


def say(run: Path, *arguments: str) -> str:
    result = call_tmt(run.parent, "diagnose", run.name, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def add(path: Path, *entries: dict) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(entry)}\n" for entry in entries)


SPIKE = {
    "kind": "spike", "step": 13, "nll": 9.0, "usual": 3.0, "spread": 0.1, "num_pairs": 1,
    "pairs": [{"where": "a.en / a.es, line 7", "nll": 9.5, "src": "one", "tgt": "x" * 100}],
}  # fmt: skip


def test_the_healthy_run_that_all_tests_share_has_none(trained: Path) -> None:
    assert say(trained / "runs/toy") == "toy, up to step 1,200: diagnoses: none\n"


def test_a_record_without_faults_has_none(run: Path) -> None:
    assert say(run) == "toy, up to step 12: diagnoses: none\n"
    assert json.loads(say(run, "--json")) == {
        "run": "toy", "step": 12, "diagnoses": [], "silent": list(RULES), "not_judged": {}, "num_broken_lines": 0,
        "not_finite": [],
    }  # fmt: skip


def test_a_diagnosis_is_told_with_what_was_seen_and_what_to_try(run: Path) -> None:
    add(run / "recorder.jsonl", SPIKE, {**SPIKE, "step": 20})
    said = say(run)
    assert said.startswith("toy, up to step 20: diagnoses: loss_spike (steps 13 to 20)\n\nloss_spike: ")
    assert " ".join(said.split()).count("a.en / a.es, line 7 (9.50): 'one' / ") == 1
    assert f"'{'x' * 80}…'" in said
    assert "  try: Look at these pairs" in said
    (told,) = json.loads(say(run, "--json"))["diagnoses"]
    assert (told["name"], told["first_step"], told["last_step"], told["number"]) == ("loss_spike", 13, 20, 2)
    assert told["figures"]["pairs"] == SPIKE["pairs"]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_an_update_that_was_not_finite_is_named_with_the_command_that_replays_it(run: Path, is_recorded: bool) -> None:
    """Even where nothing was recorded before."""
    run = run.rename(run.with_name("my toy"))
    (run / "debug").mkdir()
    for name in ("step_13.safetensors", "step_13_weights.safetensors", "step_7.safetensors", "step_x.safetensors"):
        (run / "debug" / name).touch()
    if not is_recorded:
        (run / "metrics.jsonl").unlink()
    commands = [f"tmt debug batch 'my toy/debug/step_{step}.safetensors' --run 'my toy'" for step in (7, 13)]
    said = say(run)
    assert [line.removeprefix("  try: ") for line in said.split("\n") if "debug batch" in line] == commands
    assert "not finite: the loss or a gradient of update 13, where a training stopped\n  try: " in said
    told = json.loads(say(run, "--json"))["not_finite"]
    assert [(one["step"], one["try"]) for one in told] == list(zip((7, 13), commands, strict=True))


def test_a_run_of_an_older_version_is_judged_as_far_as_its_metrics_go(run: Path) -> None:
    (run / "recorder.jsonl").unlink()
    said = say(run)
    assert "diagnoses: none" in said
    assert "there is no recorder.jsonl, as in runs of older versions" in " ".join(said.split())
    told = json.loads(say(run, "--json"))
    assert told["silent"] == ["lr_too_high", "overfitting", "data_wait", "slow_machine"]
    assert set(told["silent"]) | set(told["not_judged"]) == set(RULES)


def test_a_run_in_training_may_be_read_at_any_moment(run: Path) -> None:
    """Its last line may be half written; and a training that has only begun has no lines."""
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    assert say(run) == "toy, up to step 12: diagnoses: none\n"
    for name in ("metrics.jsonl", "recorder.jsonl"):
        (run / name).write_text("")
    told = json.loads(say(run, "--json"))
    assert told["silent"] == ["loss_spike"]
    assert told["not_judged"]["overfitting"] == "there is no validation with `nll` yet"


@pytest.mark.parametrize(
    "line",
    [
        "", "null", "[]", "1", '{"kind": "train"}', '{"kind": "train", "step": "x"}',
        '{"kind": "train", "step": 1, "nll": "x"}',
        '{"kind": "look", "step": 3}', '{"kind": "look", "step": 3, "epoch": 1, "vocabulary": 1}',
        '{"kind": "look", "step": 3, "epoch": 1, "vocabulary": 9, "copies": "x"}',
        '{"kind": "look", "step": 3, "epoch": 1, "vocabulary": 9, "unmoved": [1]}', '{"kind": "spike", "step": 3}',
        "\0\ufffd{",
    ],
)  # fmt: skip
def test_lines_that_are_none_of_ours_are_passed_over_and_counted(run: Path, line: str) -> None:
    with (run / "recorder.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    said = say(run)
    assert "diagnoses: none" in said
    assert ("1 recorded line cannot be read: passed over" in said) is bool(line)


def test_without_metrics_there_is_one_sentence_and_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, what in (("empty", "has no metrics.jsonl"), ("gone", "is no folder")):
        result = call_tmt(tmp_path, "diagnose", name)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == (
            f"tmt: {name} {what}, so no training is recorded there. Give the folder of a run, runs/NAME.\n"
        )
