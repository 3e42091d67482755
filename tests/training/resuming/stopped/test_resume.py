"""A run that was stopped goes on as if it had not been: order, random numbers, weights, metrics, bit for bit."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trainings
import yaml
from commands import call_tmt, full_disk
from marks import slow
from trainings import kill_at, metrics, start, tmt, tmt_here, to_the_end
from waiting import wait_until


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    """And the run that was never stopped, in a new Python. What is compared with it runs in copies or in this process,
    where Python orders sets by other seeds.
    """
    assert tmt(folder, "train", "--config", "toy.yaml", "name=straight").returncode == 0
    return folder


def assert_same_run(folder: Path, name: str) -> None:
    trainings.assert_same_run(folder / "runs" / "straight", folder / "runs" / name, 40)


@pytest.mark.slow
def test_the_same_seed_twice_is_the_same_run(folder: Path) -> None:
    assert to_the_end(start(folder, "train", "--config", "toy.yaml", "name=twice")).returncode == 0
    assert_same_run(folder, "twice")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_attention_that_numba_compiles_is_resumed_to_the_same_run(folder: Path, precision: str) -> None:
    """Whose heads are wider than those of the toy."""
    settings = ("--config", "toy.yaml", "model.num_heads=1", f"training.precision={precision}")
    straight, parts = f"straight_{precision}", f"parts_{precision}"
    assert tmt_here(folder, "train", *settings, f"name={straight}").returncode == 0
    kill_at(folder / "runs" / parts / "checkpoints/step_10", folder, "train", *settings, f"name={parts}")
    assert to_the_end(start(folder, "train", *settings, "--resume", "auto", f"name={parts}")).returncode == 0
    trainings.assert_same_run(folder / "runs" / straight, folder / "runs" / parts, 40)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), slow(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(
    folder: Path, number: signal.Signals, status: int
) -> None:
    name = f"signal{status}"
    process = start(folder, "train", "--config", "toy.yaml", f"name={name}")
    wait_until((folder / "runs" / name / "checkpoints" / "step_5").exists)
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


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
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
    shutil.copytree(folder / "runs/straight", folder / "my runs/straight")
    result = tmt_here(folder, "train", "--resume", "my runs/straight", "name=other")
    assert result.returncode == 2
    assert "tmt train --config" in result.stdout
    assert "straight/config.yaml' name=NEW" in result.stdout
    assert "Add --resume, or leave it out" in tmt_here(folder, "train", "--config", "toy.yaml", "--change-lr").stdout


def test_a_run_that_exists_is_never_overwritten(folder: Path) -> None:
    result = tmt_here(folder, "train", "--config", "toy.yaml", "name=straight")
    assert result.returncode == 2
    assert "runs/straight exists already. Go on with it by adding `--resume auto`" in result.stdout


def test_resuming_another_training_is_refused_by_name(folder: Path) -> None:
    result = tmt_here(
        folder, "train", "--config", "toy.yaml", "--resume", "auto", "name=straight", "model.d_ff=64", "seed=4"
    )
    assert result.returncode == 2
    assert "model.d_ff: was 32, is 64" in result.stdout
    assert "seed: was 3, is 4" in result.stdout
    assert "Traceback" not in result.stdout


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


def test_a_full_disk_is_one_sentence_and_leaves_the_checkpoints_whole(folder: Path) -> None:
    """State and manifest fit, the weights do not."""
    name = ["train", "--config", "toy.yaml", "--resume", "auto", "name=full"]
    assert tmt_here(folder, *name, "training.max_steps=5").returncode == 0
    tokenizers = {p.name: p.read_bytes() for p in (folder / "runs/full/tokenizers").iterdir()}
    with full_disk(4096):
        result = call_tmt(folder, *name)
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


def test_averaging_beside_a_save_leaves_the_save_alone(folder: Path) -> None:
    checkpoints = folder / "runs/straight/checkpoints"
    being_written = checkpoints / ".tmp-step_45-abcd"
    being_written.mkdir()
    assert tmt_here(folder, "average", "runs/straight", "--last", "2").returncode == 0
    assert being_written.exists()
    being_written.rmdir()
