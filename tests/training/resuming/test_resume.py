"""A run that was stopped goes on as if it had not been: order, random numbers, weights, metrics, bit for bit."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trainings
import yaml
from commands import call_tmt
from toy import toy_config, toy_mapping, write_toy_corpus
from trainings import kill_at, metrics, start, start_anew, tmt, tmt_here, to_the_end, wait_for

from transformer_mt.storage.manifest import write_manifest
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.monitoring.monitor import Monitor
from transformer_mt.training.resuming.training_state import TrainingState

# Dropout, accumulation, checkpoints that do not fall on lines of metrics or validations, and epochs that end between.
SECTIONS = {
    "model": {"dropout": 0.2},
    "training": {"grad_accum": 2, "max_steps": 40, "checkpoint_every_steps": 5, "max_tokens": 48, "log_every_steps": 3},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A corpus and a config; and the run that was never stopped, in a new Python. What is compared with it runs in
    copies or in this process, where Python orders sets by other seeds.
    """
    folder = tmp_path_factory.mktemp("resume")
    write_toy_corpus(folder / "data")
    write_config(folder, "toy.yaml")
    assert tmt(folder, "train", "--config", "toy.yaml", "name=straight").returncode == 0
    return folder


def write_config(folder: Path, name: str, **more: dict) -> None:
    sections = {key: {**SECTIONS.get(key, {}), **more.get(key, {})} for key in SECTIONS.keys() | more.keys()}
    (folder / name).write_text(yaml.safe_dump(toy_mapping(folder / "data", **sections)))


def assert_same_run(folder: Path, name: str) -> None:
    trainings.assert_same_run(folder / "runs" / "straight", folder / "runs" / name, 40)


def test_the_same_seed_twice_is_the_same_run(folder: Path) -> None:
    assert to_the_end(start(folder, "train", "--config", "toy.yaml", "name=twice")).returncode == 0
    assert_same_run(folder, "twice")


def test_killed_and_resumed_is_the_same_run(folder: Path) -> None:
    """SIGKILL twice, at whatever moment follows the checkpoints of steps 10 and 25."""
    for step in (10, 25):
        checkpoint = folder / "runs" / "killed" / "checkpoints" / f"step_{step}"
        kill_at(checkpoint, folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=killed")
    result = to_the_end(start(folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=killed"))
    assert "going on from step" in result.stdout
    assert result.returncode == 0
    assert_same_run(folder, "killed")


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.slow), "bf16"])
def test_attention_that_numba_compiles_is_resumed_to_the_same_run(folder: Path, precision: str) -> None:
    """Whose heads are wider than those of the toy."""
    settings = ("--config", "toy.yaml", "model.num_heads=1", f"training.precision={precision}")
    straight, parts = f"straight_{precision}", f"parts_{precision}"
    assert tmt_here(folder, "train", *settings, f"name={straight}").returncode == 0
    process = start(folder, "train", *settings, f"name={parts}")
    wait_for(folder / "runs" / parts / "checkpoints" / "step_10")
    process.kill()
    process.communicate()
    assert to_the_end(start(folder, "train", *settings, "--resume", "auto", f"name={parts}")).returncode == 0
    trainings.assert_same_run(folder / "runs" / straight, folder / "runs" / parts, 40)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGHUP, 129)],
)
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(
    folder: Path, number: signal.Signals, status: int
) -> None:
    name = f"signal{status}"
    process = start(folder, "train", "--config", "toy.yaml", f"name={name}")
    wait_for(folder / "runs" / name / "checkpoints" / "step_5")
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == status, output
    assert f"go on with: tmt train --resume runs/{name}" in output
    assert "Traceback" not in output
    assert tmt_here(folder, "train", "--resume", f"runs/{name}").returncode == 0
    last = [line for line in metrics(folder / "runs" / "straight") if line["step"] == 39]
    assert [line for line in metrics(folder / "runs" / name) if line["step"] == 39] == last
    one, two = (folder / "runs" / n / "checkpoints" / "step_40" / "model.safetensors" for n in ("straight", name))
    assert one.read_bytes() == two.read_bytes()


def test_a_finished_run_resumed_by_auto_exits_0_and_changes_nothing(folder: Path) -> None:
    before = (folder / "runs" / "straight" / "metrics.jsonl").read_bytes()
    result = tmt_here(folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=straight")
    assert result.returncode == 0
    assert "max_steps 40 reached" in result.stdout
    assert (folder / "runs" / "straight" / "metrics.jsonl").read_bytes() == before


def test_a_lost_terminal_is_told_like_ctrl_c_unless_nohup_hides_it(folder: Path) -> None:
    command = ["nohup", sys.executable, "-m", "transformer_mt", "train", "--config", "toy.yaml", "name=nohup"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    wait_for(folder / "runs" / "nohup" / "checkpoints" / "step_5")
    process.send_signal(signal.SIGHUP)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "max_steps 40 reached" in output


@pytest.mark.parametrize(
    "closed", [*(pytest.param(c, marks=pytest.mark.slow) for c in (">&-", "2>&-")), "<&- >&- 2>&-"]
)
def test_without_standard_output_or_error_the_training_is_the_same(folder: Path, closed: str) -> None:
    name = f"closed{len(closed)}{closed[0] == '2'}"
    command = f"{sys.executable} -m transformer_mt train --config toy.yaml name={name} training.max_steps=10 {closed}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, env=environment)
    assert (result.returncode, "Traceback" in result.stderr) == (0, False)
    found, expected = (
        [line["nll"] for line in metrics(folder / "runs" / run) if line["step"] <= 9] for run in (name, "straight")
    )
    assert found == expected
    assert len(found) >= 3


def test_minutes_do_not_end_a_training_before_its_first_step(folder: Path) -> None:
    limits = ["training.max_minutes=0.00001", "training.max_steps=3"]
    result = tmt_here(folder, "train", "--config", "toy.yaml", "name=brief", *limits)
    assert result.returncode == 0
    assert "finished at step 1: max_minutes 1e-05 reached" in result.stdout
    assert (folder / "runs/brief/checkpoints/step_1").is_dir()
    assert "max_steps is 3; go on with, say: tmt train --resume runs/brief training.max_minutes=2e-05" in result.stdout
    result = tmt_here(folder, "train", "--resume", "runs/brief", "training.max_minutes=5")
    assert "finished at step 3: max_steps 3 reached\ntranslate with" in result.stdout


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
    state = folder / "runs/judged/checkpoints/step_20/state.json"
    assert len(scores) == 4
    content = json.loads(state.read_text())
    content.update(best_step=5, num_bad_validations=3)
    state.write_text(json.dumps(content))
    write_manifest(state.parent, [path.name for path in state.parent.iterdir() if path.name != "manifest.json"])
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
    state = checkpoints / "step_15/state.json"
    content = json.loads(state.read_text())
    content.update(best_step=10, best_metrics={"nll": 1.0, "ppl": 2.7, "bleu": 100.0, "chrf": 100.0})
    content["num_bad_validations"] = 2
    state.write_text(json.dumps(content))
    write_manifest(state.parent, [path.name for path in state.parent.iterdir() if path.name != "manifest.json"])
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
    assert last["incomparable_until"] == 15
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
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    same = call_tmt(folder, *arguments, "--resume", "auto", "training.keep_checkpoints=2")
    assert "nothing was changed" not in same.stdout


def test_what_was_edited_in_the_folder_of_a_run_is_compared_too(folder: Path) -> None:
    shutil.copytree(folder / "runs/straight", folder / "runs/edited")
    path = folder / "runs/edited/config.yaml"
    config = yaml.safe_load(path.read_text())
    config["seed"] += 1
    config["model"]["dropout"] = 0.5
    config["training"]["max_steps"] = 41
    path.write_text(yaml.safe_dump(config))
    result = tmt_here(folder, "train", "--resume", "runs/edited")
    assert result.returncode == 2
    assert "model.dropout: was 0.2, is 0.5\n  seed: was " in result.stdout
    assert "max_steps" not in result.stdout
    restored = tmt_here(folder, "train", "--resume", "runs/edited", "model.dropout=0.2", f"seed={config['seed'] - 1}")
    assert "finished at step 41" in restored.stdout


def test_a_name_for_a_folder_to_go_on_in_is_refused(folder: Path) -> None:
    result = tmt_here(folder, "train", "--resume", "runs/straight", "name=other")
    assert result.returncode == 2
    assert "tmt train --config" in result.stdout
    assert "straight/config.yaml name=NEW" in result.stdout
    assert "Add --resume, or leave it out" in tmt_here(folder, "train", "--config", "toy.yaml", "--change-lr").stdout


def test_a_run_that_exists_is_never_overwritten(folder: Path) -> None:
    result = tmt_here(folder, "train", "--config", "toy.yaml", "name=straight")
    assert result.returncode == 2
    assert "runs/straight exists already. Go on with it by adding `--resume auto`" in result.stdout


def test_auto_starts_afresh_where_there_is_no_checkpoint(folder: Path) -> None:
    result = tmt_here(folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=fresh", "training.max_steps=4")
    assert result.returncode == 0
    longer = tmt_here(folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=fresh", "training.max_steps=6")
    assert longer.returncode == 0, "the length of a training may be changed"
    assert "going on from step 4" in longer.stdout
    assert "begins anew" not in result.stdout + longer.stdout


def test_a_run_begun_anew_keeps_the_numbers_that_it_had(folder: Path) -> None:
    """Its checkpoints were deleted, say to free space."""
    arguments = "train", "--config", "toy.yaml", "--resume", "auto", "name=anew", "training.max_steps=4"
    assert tmt_here(folder, *arguments).returncode == 0
    before = (folder / "runs/anew/metrics.jsonl").read_bytes()
    shutil.rmtree(folder / "runs/anew/checkpoints")
    result = tmt_here(folder, *arguments)
    assert result.returncode == 0
    aside = "runs/anew/metrics_before.jsonl"
    assert (
        f"runs/anew has no checkpoint, so training begins anew; the numbers so far are now in {aside}" in result.stdout
    )
    assert (folder / aside).read_bytes() == before
    assert metrics(folder / "runs/anew") != []


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


def test_resuming_another_training_is_refused_by_name(folder: Path) -> None:
    result = tmt_here(
        folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=straight", "model.d_ff=64", "seed=4"
    )
    assert result.returncode == 2
    assert "model.d_ff: was 32, is 64" in result.stdout
    assert "seed: was 3, is 4" in result.stdout
    assert "Traceback" not in result.stdout


def test_only_the_newest_and_the_best_are_kept(folder: Path) -> None:
    assert tmt_here(folder, "train", "--config", "toy.yaml", "name=few", "training.keep_checkpoints=2").returncode == 0
    run = folder / "runs" / "few"
    state = json.loads((run / "checkpoints" / "step_40" / "state.json").read_text())
    values = {line["step"]: line["nll"] for line in metrics(run) if line["kind"] == "validation"}
    assert state["best_step"] == min(values, key=lambda step: values[step])
    names = {path.name for path in (run / "checkpoints").iterdir()}
    newest = sorted({*range(5, 41, 5), *best_so_far(values)})[-2:]
    assert names == {f"step_{step}" for step in {*newest, state["best_step"]}}


def best_so_far(values: dict[int, float]) -> list[int]:
    """The steps that were saved because no validation before them was as good."""
    found, best = [], float("inf")
    for step, value in sorted(values.items()):
        if value < best:
            found.append(step)
            best = value
    return found


def test_patience_ends_the_training(folder: Path) -> None:
    result = tmt_here(
        folder, "train", "--config", "toy.yaml", "name=patient", "training.factor=50.0", "training.max_steps=200",
        "validation.patience=2", "validation.every_steps=2",
    )  # fmt: skip
    assert result.returncode == 0
    assert "nll has not improved in 2 validations" in result.stdout
    values = [line["nll"] for line in metrics(folder / "runs" / "patient") if line["kind"] == "validation"]
    assert min(values) == values[-3]


def test_averaging_is_the_mean_and_can_be_translated_with(folder: Path) -> None:
    from safetensors.torch import load_file

    result = tmt_here(folder, "average", "runs/straight", "--last", "3")
    assert result.returncode == 0
    checkpoints = folder / "runs" / "straight" / "checkpoints"
    steps = sorted(int(p.name[5:]) for p in checkpoints.glob("step_*"))[-3:]
    parts = [load_file(checkpoints / f"step_{step}" / "model.safetensors") for step in steps]
    mean = load_file(checkpoints / "average" / "model.safetensors")
    for name, tensor in mean.items():
        expected = sum(part[name].double() for part in parts) / 3
        assert (tensor.double() - expected).abs().max() < 1e-6
    result = tmt_here(folder, "translate", "--run", "runs/straight", "--checkpoint", "average", "one two.")
    assert result.returncode == 0
    assert tmt_here(folder, "average", "runs/straight", "--last", "50").returncode == 2


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


def test_a_full_disk_is_one_sentence_and_leaves_the_checkpoints_whole(folder: Path) -> None:
    """A limit on the size of files stands in for the disk: state and manifest fit, the weights do not."""
    name = ["train", "--config", "toy.yaml", "--resume", "auto", "name=full"]
    assert tmt_here(folder, *name, "training.max_steps=5").returncode == 0
    tokenizers = {p.name: p.read_bytes() for p in (folder / "runs/full/tokenizers").iterdir()}
    limited = f"ulimit -f 4; exec {sys.executable} -m transformer_mt {' '.join(name)}"
    result = subprocess.run(["bash", "-c", limited], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 2, result.stderr
    assert "could not be written: " in result.stderr
    assert "File too large" in result.stderr
    assert "Traceback" not in result.stderr
    assert {p.name: p.read_bytes() for p in (folder / "runs/full/tokenizers").iterdir()} == tokenizers
    assert tmt_here(folder, *name).returncode == 0
    assert_same_model(folder, "full")


def assert_same_model(folder: Path, name: str) -> None:
    one, two = (folder / "runs" / n / "checkpoints" / "step_40" / "model.safetensors" for n in ("straight", name))
    assert one.read_bytes() == two.read_bytes()


def test_a_signal_in_the_last_validation_is_no_end(folder: Path) -> None:
    """The training is over only when its last validation is; until then there is something to go on with."""
    write_config(folder, "long.yaml", validation={"every_steps": 1000})
    with (folder / "data/valid.en").open() as en, (folder / "data/valid.es").open() as es:
        pairs = [en.read() * 300, es.read() * 300]
    (folder / "data/many.en").write_text(pairs[0])
    (folder / "data/many.es").write_text(pairs[1])
    arguments = ["train", "--config", "long.yaml", "name=last", "data.validation=[{src: many.en, tgt: many.es}]",
                 "training.max_steps=9", "validation.num_translated=6000"]  # fmt: skip
    process = start(folder, *arguments)
    metrics_file = folder / "runs/last/metrics.jsonl"
    while not (metrics_file.exists() and '"step": 9' in metrics_file.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "saved at step 9; go on with: tmt train --resume runs/last" in output
    result = tmt_here(folder, "train", "--resume", "runs/last")
    assert result.returncode == 0
    assert "max_steps 9 reached" in result.stdout
    assert [line["step"] for line in metrics(folder / "runs/last") if line["kind"] == "validation"] == [9]
    state = json.loads((folder / "runs/last/checkpoints/step_9/state.json").read_text())
    assert state["last_validation_step"] == state["best_step"] == 9


def test_a_validation_that_is_not_finite_stops_before_it_is_saved(folder: Path) -> None:
    result = tmt_here(
        folder, "train", "--config", "toy.yaml", "name=wild", "training.factor=1e30", "training.keep_checkpoints=1",
        "training.checkpoint_every_steps=1", "validation.every_steps=1", "training.clip_norm=null",
    )  # fmt: skip
    assert result.returncode == 2
    assert "at step 1" in result.stdout
    assert "so the training stops" in result.stdout
    assert not list((folder / "runs/wild/checkpoints").glob("step_*"))


def test_a_run_stopped_before_its_first_step_is_begun_by_resume(folder: Path) -> None:
    run = folder / "runs" / "empty"
    run.mkdir(parents=True)
    (run / "config.yaml").write_bytes((folder / "runs/straight/config.yaml").read_bytes())
    assert (
        "has no checkpoint yet. Train it with `tmt train --resume runs/empty`"
        in tmt_here(folder, "translate", "--run", "runs/empty", "one.").stdout
    )
    assert tmt_here(folder, "train", "--resume", "runs/empty").returncode == 0
    assert_same_model(folder, "empty")
    (run / "config.yaml").unlink()
    result = tmt_here(folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=empty")
    assert result.returncode == 2
    assert "runs/empty/config.yaml is gone" in result.stdout


def test_a_run_folder_that_is_a_file_is_refused_before_the_data_is_read(folder: Path) -> None:
    (folder / "runs" / "file").write_text("")
    result = tmt_here(folder, "train", "--config", "toy.yaml", "name=file")
    assert result.returncode == 2
    assert "runs/file is a file, not a folder" in result.stdout
    assert "train:" not in result.stdout


def test_an_average_that_was_left_behind_is_named(folder: Path) -> None:
    name = ["train", "--config", "toy.yaml", "--resume", "auto", "name=stale"]
    assert tmt_here(folder, *name, "training.max_steps=10").returncode == 0
    assert tmt_here(folder, "average", "runs/stale", "--last", "2").returncode == 0
    use = ["translate", "--run", "runs/stale", "--checkpoint", "average", "one."]
    assert "note" not in tmt_here(folder, *use).stdout
    assert tmt_here(folder, *name, "training.max_steps=15").returncode == 0
    assert "note: the average is of the steps " in tmt_here(folder, *use).stdout


def test_tensorboard_shows_each_step_once_after_a_kill(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    process = start(folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=board")
    wait_for(folder / "runs/board/checkpoints/step_15")
    process.kill()
    process.communicate()
    assert tmt_here(folder, "train", "--resume", "runs/board").returncode == 0
    events = EventAccumulator(str(folder / "runs/board"))
    events.Reload()
    for tag, kind in (("train/loss", "train"), ("validation/nll", "validation")):
        steps = [scalar.step for scalar in events.Scalars(tag)]
        assert steps == [line["step"] for line in metrics(folder / "runs/straight") if line["kind"] == kind]


def test_tensorboard_reads_what_a_resumed_training_writes_last(tmp_path: Path) -> None:
    """It goes by names: a second, a host, a process. The earlier file is of this second and of a later process."""
    (tmp_path / f"events.out.tfevents.{int(time.time()) + 1:010d}.zzz.1.0").write_bytes(b"")
    Monitor(RunFolder(tmp_path), toy_config(tmp_path), TrainingState(step=5)).close()
    assert ".zzz." in sorted(tmp_path.glob("events.*"))[0].name


def test_a_clock_that_was_set_back_is_told_for_tensorboard(folder: Path) -> None:
    name = ["train", "--config", "toy.yaml", "--resume", "auto", "name=future"]
    assert tmt_here(folder, *name, "training.max_steps=5").returncode == 0
    (file,) = (folder / "runs/future").glob("events.out.tfevents.*")
    file.rename(file.with_name(f"events.out.tfevents.{int(time.time()) + 1000:010d}.host.1.0"))
    assert "files of this run are from the future" in tmt_here(folder, *name, "training.max_steps=10").stdout


def test_a_reader_that_dies_of_the_same_ctrl_c_costs_nothing(folder: Path) -> None:
    process = start_anew(folder, "train", "--config", "toy.yaml", "name=teed", "training.checkpoint_every_steps=1000")
    assert process.stdout is not None
    while "three" not in process.stdout.readline():  # the report, so that training is about to begin
        assert process.poll() is None
    metrics_file = folder / "runs/teed/metrics.jsonl"
    while not (metrics_file.exists() and metrics_file.read_text()):
        assert process.poll() is None
        time.sleep(0.005)
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) in (0, 130)
    assert list((folder / "runs/teed/checkpoints").glob("step_*"))


def test_averaging_beside_a_save_leaves_the_save_alone(folder: Path) -> None:
    checkpoints = folder / "runs/straight/checkpoints"
    being_written = checkpoints / ".tmp-step_45-abcd"
    being_written.mkdir()
    assert tmt_here(folder, "average", "runs/straight", "--last", "2").returncode == 0
    assert being_written.exists()
    being_written.rmdir()
