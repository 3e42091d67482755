"""The average that a training makes at its end: of the newest checkpoints, validated, and the same after any kill."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from marks import slow
from safetensors.torch import load_file
from toy import toy_config
from trainings import assert_same_run, edit_state, metrics

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.preparation import prepare_data
from transformer_mt.decoding.load_model import load_run
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import final_average, loop
from transformer_mt.training.monitoring.monitor import StepReport
from transformer_mt.training.resuming import checkpoints
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.stop_signals import StopRequestedError
from transformer_mt.training.validation import Validator

TRAINING = {"checkpoint_every_steps": 4, "keep_checkpoints": 3, "average_last": 3}


@pytest.fixture(scope="module")
def config(corpus: Path) -> RunConfig:
    return toy_config(corpus, training=TRAINING, validation={"every_steps": 8})


@pytest.fixture(scope="module")
def run(config: RunConfig, tmp_path_factory) -> RunFolder:
    return start_or_resume(config, RunFolder(tmp_path_factory.mktemp("average") / "run"), resume=False).run


def test_it_is_the_mean_of_the_newest_and_its_score_is_recorded(run: RunFolder) -> None:
    kept = [load_file(run.step(step) / "model.safetensors") for step in (12, 16, 20)]
    average = load_file(run.average / "model.safetensors")
    for name, weight in average.items():
        mean = torch.stack([weights[name].double() for weights in kept]).mean(dim=0)
        torch.testing.assert_close(weight.double(), mean, rtol=0, atol=1e-7)
    *_, line = metrics(run.path)
    assert (line["kind"], line["step"], line["num_averaged"]) == ("average", 20, 3)
    config, model, *_ = load_run(run, "average")
    result = Validator(config, prepare_data(config), "fp32").validate(model, lambda: None)
    assert line["nll"] == pytest.approx(result.metrics["nll"], abs=1e-6)


def lose_all(run: RunFolder) -> None:
    shutil.rmtree(run.average)
    lose_line(run)


def lose_line(run: RunFolder) -> None:
    lines = run.metrics.read_text().split("\n")
    run.metrics.write_text("".join(f"{line}\n" for line in lines if line and '"average"' not in line))


def tear_line(run: RunFolder) -> None:
    """As a kill may, and an editor beside it: half the line, and lines that are none."""
    written = run.metrics.read_bytes()
    run.metrics.write_bytes(b"[]\n{}\nnull\n\xff\n" + written[:-20])


@pytest.mark.parametrize("lose", [lose_all, lose_line, tear_line])
def test_after_a_kill_it_is_made_again(
    run: RunFolder, config: RunConfig, tmp_path: Path, lose: Callable[[RunFolder], None]
) -> None:
    """Before the average was written, or before its score was."""
    killed = RunFolder(tmp_path / "killed")
    shutil.copytree(run.path, killed.path)
    lose(killed)
    start_or_resume(config, killed, resume=True)
    assert_same_run(run.path, killed.path, 20)
    for file in ("model.safetensors", "steps.json"):
        assert (killed.average / file).read_bytes() == (run.average / file).read_bytes()


def test_a_signal_leaves_it_to_the_next_start(
    run: RunFolder, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise StopRequestedError

    monkeypatch.setattr(loop, "average_at_end", stop)
    other = RunFolder(tmp_path / "other")
    outcome = start_or_resume(config, other, resume=False)
    assert (outcome.reason, outcome.step, outcome.exit_status) == (None, 20, 143)
    monkeypatch.undo()
    assert start_or_resume(config, other, resume=True).exit_status == 0
    assert_same_run(run.path, other.path, 20)


@pytest.mark.parametrize("stops", [slow((10,)), (14, 15, 18, 19)])
def test_checkpoints_of_stops_have_no_part_in_it(
    run: RunFolder, config: RunConfig, tmp_path: Path, stops: tuple[int, ...]
) -> None:
    """And take no place of those that the run would have had."""
    stopped = RunFolder(tmp_path / "stopped")
    for step in stops:
        stop_at(step, config, stopped)
        there = [4, 8, 12, 16, 20]
        assert stopped.steps()[-4:] == [*[at for at in there if at < step][-3:], step]
    assert start_or_resume(config, stopped, resume=True).exit_status == 0
    assert stopped.steps() == run.steps()
    assert_same_run(run.path, stopped.path, 20)
    for file in ("model.safetensors", "steps.json"):
        assert (stopped.average / file).read_bytes() == (run.average / file).read_bytes()


def stop_at(step: int, config: RunConfig, run: RunFolder) -> None:
    def interrupt(report: StepReport) -> None:
        if report.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = start_or_resume(config, run, resume=True, watch=interrupt)
    assert (outcome.step, outcome.exit_status) == (step, 130)


def test_what_a_kill_left_between_a_save_and_its_deletions_has_no_part_in_it(
    run: RunFolder, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = RunFolder(tmp_path / "killed")
    stop_at(18, config, killed)
    monkeypatch.setattr(checkpoints, "remove_superfluous", lambda *_: None)
    monkeypatch.setattr(loop, "average_at_end", lambda *_: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        start_or_resume(config, killed, resume=True)
    monkeypatch.undo()
    assert 18 in killed.steps()
    start_or_resume(config, killed, resume=True)
    assert killed.steps() == run.steps()
    assert (killed.average / "steps.json").read_bytes() == (run.average / "steps.json").read_bytes()


def test_a_finished_one_is_left_alone(run: RunFolder, config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an average that `tmt average` made since."""
    monkeypatch.setattr(final_average, "average_checkpoints", lambda *_: pytest.fail("it was made again"))
    start_or_resume(config, run, resume=True)
    assert json.loads((run.average / "steps.json").read_text()) == [12, 16, 20]


def test_fewer_checkpoints_than_asked_for_are_averaged_and_named(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = toy_config(corpus, training={**TRAINING, "max_steps": 2})
    start_or_resume(config, RunFolder(tmp_path / "short"), resume=False)
    said = capsys.readouterr().out
    assert "average of the steps 2: nll" in said
    assert "training.average_last is 3, and the run has only its 1 newest checkpoint\n" in said


@pytest.mark.parametrize(("best", "averaged"), [(4, [16, 20]), (12, [12, 16, 20])])
def test_the_best_has_a_part_in_it_only_beside_the_newest(
    best: int, averaged: list[int], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A finished run that kept two, and the best, is asked for four."""
    keeps_two = toy_config(
        corpus, training={"checkpoint_every_steps": 4, "keep_checkpoints": 2}, validation={"every_steps": 8}
    )
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "remove_superfluous", lambda *_: None)
        run = start_or_resume(keeps_two, RunFolder(tmp_path / "run"), resume=False).run
    edit_state(run.step(20), best_step=best)
    checkpoints.remove_superfluous(run, best, 2)
    assert run.steps() == [best, 16, 20]
    asked = keeps_two.training.model_copy(update={"keep_checkpoints": 5, "average_last": 4})
    start_or_resume(keeps_two.model_copy(update={"training": asked}), run, resume=True)
    assert json.loads((run.average / "steps.json").read_text()) == averaged
    said = f"training.average_last is 4, and the run has only its {len(averaged)} newest checkpoints\n"
    assert said in capsys.readouterr().out


def test_what_is_not_kept_cannot_be_averaged(corpus: Path) -> None:
    with pytest.raises(UserError, match=r"average_last is 6.*keep_checkpoints 5 are kept"):
        toy_config(corpus, training={"average_last": 6})
