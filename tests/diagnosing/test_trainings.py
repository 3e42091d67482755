"""Each diagnosis has a training that provokes it, and healthy trainings provoke none."""

import json
import shutil

import pytest
from provoking import GARBAGE, GARBAGE_STEP, PROVOKED, Run, found, prepare, said
from trainings import tensorboard_events

from transformer_mt.config.loading import load_config
from transformer_mt.data.preparation import prepare_data
from transformer_mt.diagnosing.diagnoses import Diagnoses, not_judged
from transformer_mt.diagnosing.history import read_recorded
from transformer_mt.diagnosing.rules import RULES
from transformer_mt.diagnosing.told import in_one_line
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import loop, validation
from transformer_mt.training.monitoring.monitor import StepReport
from transformer_mt.training.resuming.compare_runs import compare_runs
from transformer_mt.training.run import start_or_resume

PROVOKES = {
    "loss_spike": "garbage",
    "lr_too_high": "rate_too_high",
    "lr_too_low": "rate_too_low",
    "dead_heads": "dead_head",
    "saturated_attention": "rate_too_high",
    "unmoved_embeddings": "unused_words",
    "overfitting": "few_pairs",
    "copying": "copies",
    "empty_outputs": "empty",
    "repeating_outputs": "repeating",
    "length_drift": "short",
    "data_wait": "slow",
    "slow_machine": "slow",
}
# What such a training shows beside: one that says the same of everything says too little, and so on.
BESIDE = {
    "few_pairs": {"repeating_outputs", "length_drift"},
    "copies": {"length_drift"},
    "rate_too_high": {"loss_spike"},
    "empty": {"repeating_outputs", "length_drift"},
    "repeating": {"length_drift"},
    "short": {"repeating_outputs"},
}


def test_each_diagnosis_has_a_training_that_provokes_it() -> None:
    assert PROVOKES.keys() == RULES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("training", [name for name in dict.fromkeys(PROVOKES.values()) if name != "garbage"])
def test_a_training_provokes_what_is_wrong_with_it(training: str, provoked: Run) -> None:
    expected = {name for name, other in PROVOKES.items() if other == training}
    names = set(found(provoked(training)))
    assert expected <= names <= expected | BESIDE.get(training, set())


@pytest.mark.slow
def test_the_head_that_is_dead_is_named(provoked: Run) -> None:
    finding = found(provoked("dead_head"))["dead_heads"].finding
    assert finding.figures["dead"] == ["decoder.layers.0.cross_attn head 0"]


def test_a_healthy_training_provokes_none_and_all_rules_were_judged(provoked: Run) -> None:
    run = provoked("healthy")
    assert found(run) == {}
    assert not_judged(read_recorded(run)) == {}


def test_an_hour_in_which_a_training_was_halted_is_not_slow(provoked: Run) -> None:
    """Ctrl-Z, say: the time does not count, neither as that of the run nor for what is left."""
    run = provoked("halted")
    assert found(run) == {}
    assert [entry["elapsed_seconds"] for kind, entry in read_recorded(run).entries if kind == "train"][-1] == 40
    assert "hours" not in said(run)


def test_a_spike_names_the_lines_of_its_update_and_shows_their_texts(provoked: Run) -> None:
    run = provoked("garbage")
    assert set(found(run)) == {"loss_spike"}
    (spike,) = [entry for kind, entry in read_recorded(run).entries if kind == "spike"]
    assert spike["step"] == GARBAGE_STEP
    lines = {int(pair["where"].rpartition("line ")[2]): pair for pair in spike["pairs"]}
    config = load_config(str(run.config)).config
    rows = prepare_data(config).train.plan(64, config.seed, 0).get(GARBAGE_STEP - 1)
    assert rows is not None
    assert sorted(lines) == sorted(int(row) + 1 for row in rows)
    assert spike["num_pairs"] == len(spike["pairs"]) == len(rows)
    assert set(list(lines)[:3]) <= set(GARBAGE)
    train = PROVOKED["garbage"].train
    assert all((pair["src"], pair["tgt"]) == train[number - 1] for number, pair in lines.items())
    losses = [pair["nll"] for pair in spike["pairs"]]
    assert losses == sorted(losses, reverse=True)
    seen = found(run)["loss_spike"].finding.seen
    assert all(f"line {number} " in seen for number in list(lines)[:3])


def test_each_name_is_said_once_and_stands_in_tensorboard(
    provoked: Run, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The spike of this training is judged again in a resumed training, which has said it before."""
    begun = provoked("garbage")
    run = RunFolder(shutil.copytree(begun.path, tmp_path / "run"))
    config = load_config(str(run.config)).config
    longer = config.training.model_copy(update={"max_steps": 61})
    start_or_resume(config.model_copy(update={"training": longer}), run, resume=True, change_lr=True)
    told = in_one_line(found(run)["loss_spike"])
    lines = (said(begun) + capsys.readouterr().out).split("\n")
    assert lines.count(told) == 1
    assert lines.count("diagnoses: loss_spike (step 51)") == 2
    board = tensorboard_events(run.path)
    texts = {tag: [event.step for event in board.Tensors(tag)] for tag in board.Tags()["tensors"] if "diagnosis" in tag}
    assert texts == {"diagnosis loss_spike/text_summary": [GARBAGE_STEP]}


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("killed_after", [GARBAGE_STEP, GARBAGE_STEP + 6])
def test_a_killed_and_resumed_training_records_and_diagnoses_the_same(
    killed_after: int, provoked: Run, tmp_path
) -> None:
    """Killed before the spike is saved, and after that."""
    prepared = prepare(tmp_path / "data", PROVOKED["garbage"])
    run = RunFolder(tmp_path / "run")

    def kill(report: StepReport) -> None:
        if report.step == killed_after:
            raise _KilledError

    with pytest.raises(_KilledError):
        start_or_resume(prepared.config, run, resume=False, watch=kill)
    diagnosed = Diagnoses.of(read_recorded(run).entries).found
    assert set(diagnosed) == {"loss_spike"}
    start_or_resume(prepared.config, run, resume=True)
    straight = provoked("garbage")
    assert compare_runs(straight, run, 60).difference is None
    assert found(run) == found(straight)


def test_nothing_else_of_a_training_depends_on_the_recorder(
    provoked: Run, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, optimizer and metrics are the same bit for bit without what it computes, a spike and its pairs too."""
    recorded = provoked("garbage")  # which another test may not have trained yet
    monkeypatch.setattr(loop, "look", lambda *_: {"vocabulary": 22})
    monkeypatch.setattr(loop, "spiked_pairs", lambda *_: [])
    monkeypatch.setattr(validation, "output_figures", lambda *_: {})
    run = RunFolder(tmp_path / "run")
    start_or_resume(prepare(tmp_path / "data", PROVOKED["garbage"]).config, run, resume=False)
    difference = compare_runs(recorded, run, 60).difference
    assert difference is not None
    assert difference.startswith("recorder.jsonl, line 1")


def test_no_update_is_recorded_where_none_stands_out(provoked: Run) -> None:
    lines = [json.loads(line) for line in provoked("healthy").recorder.read_text().splitlines()]
    assert [(line["kind"], line["step"]) for line in lines] == [("look", step) for step in (30, 60, 90, 120)]
