"""What may be another at the next start, what that changes, and what is refused."""

import json
import re
import shutil
from pathlib import Path

import pytest
from commands import call_tmt
from toy import toy_config, write_toy_corpus
from trainings import edit_state, metrics, tmt, tmt_here

from transformer_mt.config.loading import read_config
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.begin import begin


def test_another_metric_finds_another_best_and_waits_anew(folder: Path) -> None:
    arguments = [
        "train",
        "--config",
        "toy.yaml",
        "name=judged",
        "validation.every_steps=5",
        "training.keep_checkpoints=9",
    ]
    assert tmt_here(folder, *arguments, "training.max_steps=20", "validation.metric=bleu").returncode == 0
    scores = {line["step"]: line["nll"] for line in metrics(folder / "runs/judged") if line["kind"] == "validation"}
    assert len(scores) == 4
    edit_state(folder / "runs/judged/checkpoints/step_20", best_step=5, num_bad_validations=3)
    more = ["training.max_steps=25", "validation.patience=3", "validation.metric=nll"]
    result = tmt_here(folder, *arguments, *more, "--resume", "auto")
    assert result.returncode == 0
    best = min(scores, key=lambda step: scores[step])
    assert best != 5
    assert f"validation.metric is nll now; of the checkpoints that are left the best is step {best}" in result.stdout
    assert "max_steps 25 reached" in result.stdout


def test_scores_of_other_translations_find_another_best_and_wait_anew(folder: Path) -> None:
    """Two sentences may score higher than twenty ever will. A metric without translations is the same as before."""
    arguments = ["train", "--config", "toy.yaml", "validation.every_steps=5", "training.keep_checkpoints=2"]
    few = ["name=sampled", "validation.metric=chrf", "validation.num_translated=2", "training.max_steps=15"]
    assert call_tmt(folder, *arguments, *few).returncode == 0
    checkpoints = folder / "runs/sampled/checkpoints"
    best_metrics = {"nll": 1.0, "ppl": 2.7, "bleu": 100.0, "chrf": 100.0}
    edit_state(checkpoints / "step_15", best_step=10, best_metrics=best_metrics, num_bad_validations=2)
    copy = folder / "runs/sampled_by_nll"
    shutil.copytree(folder / "runs/sampled", copy)
    more = ["validation.num_translated=20", "validation.patience=3", "training.max_steps=35", "--resume", "auto"]
    result = call_tmt(folder, *arguments, *few, *more)
    assert (
        "validation.num_translated changed, so chrf is of other translations now; of the checkpoints that are left "
        "the best is the next validation's"
    ) in result.stdout
    assert "max_steps 35 reached" in result.stdout, "the two bad validations before are forgotten"
    last = json.loads((checkpoints / "step_35/state.json").read_text())
    scores = {line["step"]: line for line in metrics(folder / "runs/sampled") if line["kind"] == "validation"}
    assert last["comparable_from"] == 16
    assert last["best_step"] == max((step for step in scores if step > 15), key=lambda step: scores[step]["chrf"])
    # By another metric all that is left counts, and by this one again only what came after the change.
    by_bleu = call_tmt(folder, *arguments, *few, *more, "validation.metric=bleu", "training.max_steps=36")
    best = re.findall(
        r"validation.metric is bleu now; of the checkpoints that are left the best is step (\d+)", by_bleu.stdout
    )
    assert int(best[0]) > 15
    by_nll = call_tmt(folder, *arguments, *few, *more, "name=sampled_by_nll", "validation.metric=nll")
    assert "other translations" not in by_nll.stdout
    assert "validation.metric is nll now; of the checkpoints that are left the best is step 1" in by_nll.stdout


def test_of_a_finished_run_nothing_is_changed_and_nothing_deleted(folder: Path) -> None:
    """By another metric, and with fewer to keep, the best checkpoint would be superfluous."""
    arguments = ["train", "--config", "toy.yaml", "name=finished", "validation.every_steps=4", "training.max_steps=10"]
    assert call_tmt(folder, *arguments, "training.keep_checkpoints=2").returncode == 0
    run = folder / "runs/finished"
    state = run / "checkpoints/step_10/state.json"
    assert json.loads(state.read_text())["best_step"] in (8, 10)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result = call_tmt(
        folder, *arguments, "--resume", "auto", "validation.metric=chrf", "training.keep_checkpoints=1",
        "decoding.beam_size=7",
    )  # fmt: skip
    assert result.returncode == 0
    assert (
        "nothing was changed, for the run is finished: decoding.beam_size stays 2, training.keep_checkpoints stays 2, "
        "validation.metric stays 'nll'\n"
    ) in result.stdout
    assert "now" not in result.stdout
    assert "finished at step 10" in result.stdout
    kept = json.loads(state.read_text())
    best, nll = kept["best_step"], kept["best_metrics"]["nll"]
    assert f"best: step {best}, nll {nll:.2f}\n" in result.stdout, "the one that translating takes"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    shorter = call_tmt(folder, *arguments, "--resume", "auto", "training.keep_checkpoints=2", "training.max_steps=6")
    assert "training.max_steps stays 10\nfinished at step 10: max_steps 10 reached" in shorter.stdout
    same = call_tmt(folder, *arguments, "--resume", "auto", "training.keep_checkpoints=2")
    assert "nothing was changed" not in same.stdout


def test_a_finished_run_is_given_its_average_and_nothing_else_changes(folder: Path) -> None:
    """By another metric, and with fewer to keep, the best checkpoint would be superfluous."""
    arguments = ["train", "--config", "toy.yaml", "name=averaged", "validation.every_steps=4", "training.max_steps=10"]
    assert call_tmt(folder, *arguments, "training.keep_checkpoints=9").returncode == 0
    run = folder / "runs/averaged"
    last = run / "checkpoints/step_10"
    best_metrics = json.loads((last / "state.json").read_text())["best_metrics"]
    edit_state(last, best_step=4, best_metrics={**best_metrics, "nll": 0.5})
    before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    others = ["validation.metric=chrf", "decoding.beam_size=7", "training.keep_checkpoints=1"]
    result = call_tmt(folder, *arguments, *others, "--resume", "auto", "training.average_last=1")
    assert result.returncode == 0, result.stderr
    stays = "decoding.beam_size stays 2, training.keep_checkpoints stays 9, validation.metric stays 'nll'\n"
    assert f"nothing else was changed, for the run is finished: {stays}" in result.stdout
    assert "by nll it is not better than step 4, the best" in result.stdout
    assert {path: path.read_bytes() for path in before} == before
    written = read_config(run / "config.yaml")
    assert (written.training.average_last, written.validation.metric) == (1, "nll")
    again = call_tmt(folder, "train", "--resume", "runs/averaged")
    assert "changed" not in again.stdout
    assert "best: step 4, nll 0.50\n" in again.stdout


def test_a_finished_run_is_given_an_average_of_more_than_it_kept(folder: Path) -> None:
    """`keep_checkpoints` goes with it where it must, since a config with fewer is refused by all that read it."""
    few = ["name=more", "training.max_steps=10", "training.checkpoint_every_steps=2", "training.keep_checkpoints=2"]
    assert tmt_here(folder, "train", "--config", "toy.yaml", *few).returncode == 0
    run, config = folder / "runs/more", folder / "runs/more/config.yaml"
    asked = ["training.average_last=4", "training.keep_checkpoints=9", "training.max_minutes=9"]
    result = tmt_here(folder, "train", "--resume", "runs/more", *asked)
    assert result.returncode == 0, result.stdout
    assert "changed: training.keep_checkpoints was 2, is 9\n" in result.stdout
    assert "nothing else was changed, for the run is finished: training.max_minutes stays None\n" in result.stdout
    training = read_config(config).training
    assert (training.average_last, training.keep_checkpoints, training.max_minutes) == (4, 9, None)
    for checkpoint in ("best", "average"):
        use = ["translate", "--run", "runs/more", "--checkpoint", checkpoint, "one."]
        assert tmt_here(folder, *use).returncode == 0
    before = config.read_bytes()
    for lost in (False, True):  # and made again, by the config that was written
        if lost:
            shutil.rmtree(run / "checkpoints/average")
        again = tmt_here(folder, "train", "--resume", "runs/more")
        assert again.returncode == 0, again.stdout
        assert "changed" not in again.stdout
        assert config.read_bytes() == before
    assert (run / "checkpoints/average").is_dir()


def test_auto_starts_afresh_where_there_is_no_checkpoint(folder: Path) -> None:
    result = tmt_here(folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=fresh", "training.max_steps=4")
    assert result.returncode == 0
    longer = tmt_here(folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=fresh", "training.max_steps=6")
    assert longer.returncode == 0, "the length of a training may be changed"
    assert "going on from step 4" in longer.stdout
    assert "begins anew" not in result.stdout + longer.stdout


def test_a_run_begun_anew_keeps_the_numbers_that_it_had(folder: Path) -> None:
    """Its checkpoints were deleted, say to free space. Scores and origin of the old weights are not the new ones'."""
    arguments = "train", "--config", "toy.yaml", "--resume", "auto", "name=anew", "training.max_steps=4"
    assert tmt_here(folder, *arguments).returncode == 0
    run = folder / "runs/anew"
    before = (run / "metrics.jsonl").read_bytes()
    shutil.rmtree(run / "checkpoints")
    for name in ("evaluations", "evaluations_before"):
        (run / name).mkdir()
        (run / name / "test.json").write_text(name)
    (run / "changes.jsonl").write_text("{}\n")
    (run / "origin.json").write_text("{}")
    result = tmt_here(folder, *arguments)
    assert result.returncode == 0
    aside = [f"runs/anew/{name}" for name in ("metrics_before.jsonl", "evaluations_before", "changes_before.jsonl")]
    said = "runs/anew has no checkpoint, so training begins anew; the numbers so far are now in "
    assert f"{said}{', '.join(aside)}\n" in result.stdout
    assert (folder / aside[0]).read_bytes() == before
    assert (run / "evaluations_before/test.json").read_text() == "evaluations"
    assert not any((run / name).exists() for name in ("evaluations", "changes.jsonl", "origin.json"))
    assert metrics(run) != []


def test_what_was_set_aside_before_is_kept_at_the_next_start_without_a_checkpoint(tmp_path: Path) -> None:
    """Such as one that died before its first save: the numbers of the first training are all that is left of it."""
    run = RunFolder(tmp_path / "run")
    for number in range(1, 4):
        run.debug.mkdir(parents=True)
        for file in (run.metrics, run.debug / "step_7.safetensors"):
            file.write_text(f"training {number}")
        begin(toy_config(tmp_path), run, resume=True, change_lr=False, num_processes=1)
    kept = {path.relative_to(run.path).as_posix(): path.read_text() for path in run.path.rglob("*") if path.is_file()}
    assert kept == {
        name.format(aside): f"training {number}"
        for name in ("metrics_before{}.jsonl", "debug_before{}/step_7.safetensors")
        for aside, number in (("_1", 1), ("_2", 2), ("", 3))
    }


@pytest.mark.slow
def test_going_on_without_numba_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With which it began: what dropout drops is not the same without."""
    wide = "model.d_model=16", "model.num_heads=1"  # enough for numba's attention, which needs no padding
    arguments = "train", "--config", "toy.yaml", "--resume", "auto", "name=other", *wide
    assert "numba" not in tmt_here(folder, *arguments, "training.max_steps=2").stdout
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    result = tmt(folder, *arguments, "training.max_steps=4")
    assert result.returncode == 0
    assert "numba does not work here" in result.stdout
    assert "note: numba was True and is False: dropout draws others, and the last digits may differ" in result.stdout
    assert "note: unpadded was True and is False: dropout draws others, and the last digits may differ" in result.stdout
    monkeypatch.delenv("NUMBA_DISABLE_JIT")
    result = tmt_here(folder, *arguments, "training.max_steps=6")
    assert result.returncode == 0
    assert "note: numba was False and is True: dropout draws others, and the last digits may differ" in result.stdout


def test_the_end_of_a_cosine_schedule_may_not_move(folder: Path) -> None:
    arguments = ["train", "--config", "toy.yaml", "--resume", "auto", "name=cosine", "training.schedule=cosine",
                 "training.lr=0.01"]  # fmt: skip
    assert tmt_here(folder, *arguments, "training.max_steps=12").returncode == 0
    result = tmt_here(folder, *arguments, "training.max_steps=20")
    assert result.returncode == 2
    assert "training.max_steps: was 12, is 20" in result.stdout


def test_changed_data_is_refused(folder: Path, tmp_path: Path) -> None:
    write_toy_corpus(tmp_path / "data")
    (tmp_path / "toy.yaml").write_text((folder / "toy.yaml").read_text().replace(str(folder), str(tmp_path)))
    assert tmt_here(tmp_path, "train", "--config", "toy.yaml", "training.max_steps=5").returncode == 0
    path = tmp_path / "data" / "train.en"
    path.write_text(path.read_text().replace("one", "two", 1))
    result = tmt_here(tmp_path, "train", "--config", "toy.yaml", "--resume", "auto", "training.max_steps=9")
    assert result.returncode == 2
    assert "The data changed since this run was begun" in result.stdout
