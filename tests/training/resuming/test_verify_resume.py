"""`tmt verify-resume` finds a run the same where resuming is exact, and says what differs where it is not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
import yaml
from copies import Copy
from marks import slow
from safetensors.torch import load_file, save_file
from toy import toy_config, toy_mapping, write_toy_corpus
from trainings import metrics, rewrite_manifest

from transformer_mt.cli.main import main
from transformer_mt.config.loading import load_config
from transformer_mt.config.schedules import SCHEDULES
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.resuming import verify_resume as verify_resume_module
from transformer_mt.training.resuming.compare_runs import Comparison
from transformer_mt.training.resuming.verify_resume import shortening, verify_resume

Verify = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_toy_corpus(tmp_path / "data")
    mapping = toy_mapping(tmp_path / "data", training={"max_minutes": 5, "max_epochs": 1, "log_every_steps": 100})
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(mapping))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Verify:
    """The command in this process; its trainings are processes of their own. Status, standard output, errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tmt", "verify-resume", "--config", "toy.yaml", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capfd.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def as_copies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings are copies of a process that has imported torch."""

    def start(command: list[str], stdin: int, stdout: IO[bytes]) -> Copy:
        return Copy(folder, *command[3:], environment=os.environ, stdout=Path(stdout.name))

    monkeypatch.setattr(verify_resume_module.subprocess, "Popen", start)


def test_several_processes_are_refused(folder: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainings of all of them would join each other, and only the first one would write."""
    for name, value in {
        "WORLD_SIZE": "2",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "x",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    status, output, errors = verify()
    assert (status, output) == (2, "")
    assert "Start it without torchrun" in errors


@pytest.mark.usefixtures("as_copies")
def test_a_run_is_the_same_and_what_was_done_is_said(folder: Path, verify: Verify) -> None:
    status, output, errors = verify("--steps", "12", "--keep", "kept")
    assert status == 0, errors
    for said in (
        "deterministic: nothing needs to be turned on for a CPU",
        "killed after the checkpoint of step 6",
        "went on from step 6",
        "the same, bit for bit: 48 tensors of weights, 144 of the optimizer, ",
    ):
        assert said in output
    assert {path.name for path in (folder / "kept").iterdir()} >= {"straight", "resumed"}
    assert not (folder / "runs").exists()
    lines = metrics(folder / "kept/resumed")
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [6, 12]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [4, 8, 12]
    status, _, errors = verify("--keep", "kept")
    assert status == 2
    assert "kept is not empty" in errors


@pytest.mark.usefixtures("as_copies")
def test_a_checkpoint_that_lost_one_bit_is_found() -> None:
    """A weight, and with it the manifest, so that nothing but the outcome can tell."""

    def tamper(run: RunFolder) -> None:
        path = run.step(4) / "model.safetensors"
        weights = load_file(path)
        weights["decoder.norm.weight"][0] *= 1 + 2**-20
        save_file(weights, path)
        rewrite_manifest(run.step(4))

    said: list[str] = []
    result = verify_resume("toy.yaml", [], 8, None, said.append, tamper)
    assert result.difference is not None
    assert result.difference.startswith("weights: ")
    assert " elements, by " in result.difference
    assert "  went on from step 4" in said


@pytest.mark.parametrize(("difference", "status"), [(None, 0), ("weights: w differs", 1)])
def test_the_verdict_is_the_exit_status(
    difference: str | None, status: int, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "transformer_mt.training.resuming.verify_resume.verify_resume",
        lambda *arguments: Comparison(1, 3, 2, difference),
    )
    found, output, _ = verify()
    assert found == status
    assert ("NOT the same: weights: w differs" in output) == (difference is not None)


def test_what_the_user_can_put_right_exits_2(folder: Path, verify: Verify) -> None:
    for arguments, said in ((["--steps", "7"], "--steps is 7"), (["model.n_heads=2"], "unknown key")):
        status, _, errors = verify(*arguments)
        assert status == 2
        assert said in errors


def test_what_a_training_refuses_exits_2_below_its_own_message(
    folder: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of one line stands in for the training, in which everything but its end is as ever."""
    refusing = [sys.executable, "-c", "import sys; sys.stderr.write('There is no such device.'); sys.exit(2)"]
    start = subprocess.Popen
    monkeypatch.setattr(verify_resume_module.subprocess, "Popen", lambda command, **more: start(refusing, **more))
    status, _, errors = verify()
    assert status == 2
    assert "There is no such device." in errors
    assert "The straight training ended with status 2" in errors


@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), *(slow(number, 128 + number) for number in (signal.SIGTERM, signal.SIGHUP))],
)
def test_a_signal_leaves_no_training_and_no_folder(number: signal.Signals, status: int, folder: Path) -> None:
    """Given as early as there is something to leave; and twice, since the second must not cut short the tidying."""
    temporary = folder / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "verify-resume", "--config", "toy.yaml", "--steps", "1000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    (training,) = _first_child(process)
    assert list(temporary.glob("tmt_verify_*"))
    process.send_signal(number)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, list(temporary.glob("tmt_verify_*"))) == (status, [])
    assert not Path("/proc", training).exists()
    assert "Traceback" not in errors


def _first_child(process: subprocess.Popen[str]) -> list[str]:
    while process.poll() is None:
        if children := Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            return children
        time.sleep(0.01)
    return []


@pytest.mark.parametrize("steps", [2, 4, 6, 12, 20, 24, 120])
def test_it_is_short_whatever_the_config_says(steps: int, folder: Path) -> None:
    """Metrics sums are always cut in two by the kill, and a schedule's warm-up ends before its last step."""
    schedules = [
        [f"training.schedule={name}", "training.max_steps=9000", f"training.warmup_steps={warmup}"]
        + ["training.lr=0.1"] * ("lr" in schedule.keys)
        + ["training.decay_steps=5000"] * ("decay_steps" in schedule.keys)
        for name, schedule in SCHEDULES.items()
        for warmup in (4000, steps - 1)
    ]
    others = [["decoding.precision=auto", "validation.num_translated=2"]]
    others += [["training.average_last=5", "training.keep_checkpoints=5"], ["training.compile=true"]]
    for overrides in ([], *schedules, *others):
        config = load_config("toy.yaml", overrides).config
        short = load_config("toy.yaml", [*overrides, *shortening(config, steps)]).config
        assert (short.training.max_steps, short.training.max_epochs, short.training.max_minutes) == (steps, None, None)
        assert steps // 2 % short.training.log_every_steps
        assert short.training.checkpoint_every_steps == short.validation.every_steps == steps // 2
        assert short.validation.num_translated == min(config.validation.num_translated, 8)
        assert short.decoding.precision != "auto"
        assert short.training.compile == "auto", "true is refused beside deterministic"
    assert toy_config(folder / "data").training.deterministic is False
