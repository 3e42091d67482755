"""What a run folder survives: another process, a kill, a move, a deleted file."""

import errno
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from copies import Copy
from saved_runs import train, weights
from trainings import metrics

from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.storage.checkpoint_files import WEIGHTS
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import loop
from transformer_mt.training.averaging import average_checkpoints
from transformer_mt.training.begin import refuse_unless_writable
from transformer_mt.training.resuming import checkpoints
from transformer_mt.training.resuming.checkpoints import put_back
from transformer_mt.training.resuming.run_lock import is_trained_now, other_trainer, sole_trainer


def test_a_second_trainer_is_refused(data: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    told = rf"{run.path} is being trained by process {os.getpid()} on "
    with sole_trainer(run):
        with pytest.raises(UserError, match=told):
            train(data, run)
        with pytest.raises(UserError, match=told):
            train(data, run, resume=True)
    assert train(data, run, max_steps=1).exit_status == 0


@pytest.mark.parametrize(
    ("resume", "way"), [(True, "Make it writable, or go on with a copy"), (False, "--runs or name=")]
)
def test_a_folder_that_cannot_be_written_is_told_with_a_way_that_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: bool, way: str
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match=way):
        refuse_unless_writable(RunFolder(tmp_path), resume)


NO_LOCKS = "import fcntl\ndef flock(*_): raise OSError(38, 'Function not implemented')\nfcntl.flock = flock\n"


@pytest.mark.parametrize("without", ["", NO_LOCKS], ids=["locks", "no_locks"])
def test_a_killed_process_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str) -> None:
    """Nor where the file system has none, as Lustre mostly."""
    run = RunFolder(tmp_path / "run")
    if without:
        monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    code = without + (
        "import sys, time; from pathlib import Path; from transformer_mt.storage.run_folder import RunFolder\n"
        "from transformer_mt.training.resuming.run_lock import sole_trainer\n"
        "with sole_trainer(RunFolder(Path(sys.argv[1]))): print('inside', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline() != "inside\n":
        assert process.poll() is None
    with pytest.raises(UserError, match=f"process {process.pid} on"), sole_trainer(run):
        pass
    assert is_trained_now(run)
    process.kill()
    process.communicate()
    assert not is_trained_now(run)
    with sole_trainer(run):
        pass
    assert list(run.path.iterdir()) == [run.lock] * (not without)


def test_the_metrics_of_a_checkpoint_are_on_the_disk_before_it(
    data: Path, tmp_path: Path, synced: dict[int, int], monkeypatch
) -> None:
    """After a power cut too, a resumed run finds the lines up to its checkpoint."""
    run = RunFolder(tmp_path / "run")
    sizes: list[int] = []

    def save(run, weights, moments, state, config) -> Path:
        found = run.metrics.stat()
        assert synced.get(found.st_ino) == found.st_size
        sizes.append(found.st_size)
        return checkpoints.save_checkpoint(run, weights, moments, state, config)

    monkeypatch.setattr(loop, "save_checkpoint", save)
    assert train(data, run, max_steps=6).exit_status == 0
    assert 0 < sizes[0] < sizes[1]


def test_on_windows_no_process_is_asked_whether_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal of 0 is Ctrl-C there, for all processes of the console. The lock alone tells."""
    run = RunFolder(tmp_path)
    run.lock.write_text(f"process {os.getpid()} on {socket.gethostname()}")
    asked: list[int] = []
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda pid, _: asked.append(pid))
    assert not is_trained_now(run)
    with sole_trainer(run):
        assert is_trained_now(run)
    assert not asked


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped is read from /proc")
def test_a_resumed_training_lets_go_of_the_files_that_it_read(data: Path, run: RunFolder, monkeypatch) -> None:
    """Windows deletes no file that is mapped into memory, and the old checkpoint is to be deleted."""
    mapped: list[str] = []

    def save(*arguments) -> Path:
        lines = Path("/proc/self/maps").read_text().splitlines()
        mapped.extend(line for line in lines if str(run.path) in line)
        return checkpoints.save_checkpoint(*arguments)

    monkeypatch.setattr(loop, "save_checkpoint", save)
    assert train(data, run, resume=True, max_steps=14).exit_status == 0
    assert run.steps()[-1] == 14
    assert not mapped


def test_whoever_may_read_new_files_may_read_a_checkpoint(straight: RunFolder) -> None:
    mode = (straight.path / "config.yaml").stat().st_mode
    assert {path.stat().st_mode for path in straight.step(straight.steps()[-1]).iterdir()} == {mode}
    average_checkpoints(straight, 1)
    assert {path.stat().st_mode for path in straight.average.iterdir()} == {mode}


def test_a_kill_between_the_renames_of_an_average_loses_nothing(straight: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(straight.path, tmp_path / "run")))
    average_checkpoints(run, 1)
    weights = (run.average / WEIGHTS).read_bytes()
    os.rename(run.average, run.checkpoints / ".aside-average")
    put_back(run.average)
    assert (run.average / WEIGHTS).read_bytes() == weights
    assert not list(run.checkpoints.glob(".*"))


def test_a_kill_between_the_last_save_and_its_tidying_leaves_nothing_too_many(data: Path, run: RunFolder) -> None:
    steps = run.steps()
    shutil.copytree(run.step(steps[0]), run.step(1))
    assert train(data, run, resume=True).exit_status == 0
    assert run.steps() == steps


def test_a_second_ctrl_c_stops_at_once_and_loses_nothing_saved(data: Path, straight: RunFolder, tmp_path: Path) -> None:
    """The first one waits for the step, which here never ends; the second does not."""
    run = RunFolder(tmp_path / "run")
    said = tmp_path / "said"
    said.touch()
    process = Copy(
        tmp_path, str(data), str(run.path), environment=os.environ, together=True, program="endless_step", stdout=said
    )
    while not run.steps():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.5)  # into step 5
    process.send_signal(signal.SIGINT)
    while "Finishing the step" not in said.read_text():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert run.steps() == [3]
    assert train(data, run, resume=True).exit_status == 0
    assert weights(run) == weights(straight)
    assert metrics(run.path) == metrics(straight.path)


def test_a_folder_that_is_moved_away_is_not_made_anew(
    data: Path, straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run would be cut in two, with its config and its newest checkpoints in different places."""
    run, elsewhere = RunFolder(tmp_path / "run"), tmp_path / "elsewhere"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "remove_superfluous", lambda *_: os.rename(run.path, elsewhere))
        with pytest.raises(UserError, match=r"run was moved or deleted while .* put the folder back and go on"):
            train(data, run)
    assert not run.path.exists()
    os.rename(elsewhere, run.path)
    assert train(data, run, resume=True).exit_status == 0
    assert weights(run) == weights(straight)
    assert metrics(run.path) == metrics(straight.path)


def test_a_training_whose_folder_another_has_made_anew_writes_nothing_there(
    data: Path, straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, elsewhere, other = RunFolder(tmp_path / "run"), tmp_path / "elsewhere", "process 1 on another_machine"

    def replace(*_: object) -> None:
        os.rename(run.path, elsewhere)
        run.path.mkdir()
        run.lock.write_text(other)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "remove_superfluous", replace)
        with pytest.raises(
            UserError, match=rf"run was moved or deleted while .*, and {other} trains another run there"
        ):
            train(data, run)
    assert not exists(run.checkpoints)
    assert run.lock.read_text() == other
    assert train(data, RunFolder(elsewhere), resume=True).exit_status == 0
    assert weights(RunFolder(elsewhere)) == weights(straight)


def test_a_machine_that_gets_another_name_has_no_other_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a laptop does in another network."""
    run = RunFolder(tmp_path / "run")
    with sole_trainer(run):
        monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
        assert other_trainer(run) is None
        run.lock.write_text("process 1 on renamed")
        assert other_trainer(run) == "process 1 on renamed"


def test_a_checkpoint_that_cannot_be_deleted_yet_ends_no_training(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, while another program translates with it."""

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    run = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "remove", refuse)
        assert train(data, run, keep_checkpoints=1).exit_status == 0
    assert {3, 6, 9, 12} <= set(run.steps())
    train(data, run, resume=True, keep_checkpoints=1)
    assert len(run.steps()) <= 2, "the newest, and the best"


def test_a_deleted_metrics_file_is_told_and_begun_anew(
    data: Path, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(data, run, resume=True, max_steps=14).exit_status == 0
    assert "is gone" not in capsys.readouterr().out
    run.metrics.unlink()
    assert train(data, run, resume=True, max_steps=16, log_every_steps=1).exit_status == 0
    said = f"warning: {run.metrics} is gone, and with it the numbers of the steps up to 14, which TensorBoard's"
    assert capsys.readouterr().out.count(said) == 1
    assert [line["step"] for line in metrics(run.path) if line["kind"] == "train"] == [15, 16]
