"""Room is looked at before it is needed, and a full disk costs checkpoints and no line of metrics."""

import errno
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from saved_runs import TRAINING, config_of, train, weights
from trainings import metrics

from transformer_mt.decoding.load_model import load_run
from transformer_mt.errors import UserError
from transformer_mt.model.named_parts import freeze
from transformer_mt.storage.checkpoint_files import OPTIMIZER, WEIGHTS
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import read_tensors
from transformer_mt.training import loop
from transformer_mt.training.monitoring.metrics_file import MetricsFile
from transformer_mt.training.resuming import checkpoints
from transformer_mt.training.resuming.checkpoints import SaveError
from transformer_mt.training.resuming.training_state import TrainingState


def test_room_is_looked_at_before_the_first_step(data: Path, tmp_path: Path, monkeypatch) -> None:
    run = RunFolder(tmp_path / "run")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=420_000))
    with pytest.raises(UserError, match=r"5 checkpoints of 0\.1 MB, of which 5 are still .* lies 0\.4 MB are free"):
        train(data, run)
    assert not run.path.exists(), "what is refused leaves nothing"
    assert train(data, run, keep_checkpoints=1).exit_status == 0


def test_a_resumed_run_needs_room_for_what_it_does_not_hold_yet(data: Path, run: RunFolder, monkeypatch) -> None:
    size = checkpoints.checkpoint_bytes(config_of(data), load_run(run, "last")[1])
    missing = TRAINING["keep_checkpoints"] + 2 - len(run.steps())
    assert missing in (1, 2)
    monkeypatch.setattr(checkpoints, "free_bytes", lambda path: missing * size - 1)
    with pytest.raises(UserError, match="hold up to 5 checkpoints"):
        train(data, run, resume=True, max_steps=13)
    monkeypatch.setattr(checkpoints, "free_bytes", lambda path: missing * size)
    assert train(data, run, resume=True, max_steps=13).exit_status == 0


def test_a_short_run_needs_no_room_for_what_it_will_never_write(
    data: Path, tmp_path: Path, straight: RunFolder, monkeypatch
) -> None:
    """Of 12 steps every third is saved, and one after the only validation before the end."""
    size = checkpoints.checkpoint_bytes(config_of(data), load_run(straight, "last")[1])
    monkeypatch.setattr(checkpoints, "free_bytes", lambda path: 9 * size + 2**13)
    run = RunFolder(tmp_path / "run")
    assert train(data, run, keep_checkpoints=10**9).exit_status == 0
    assert {3, 6, 9, 12} <= set(run.steps())
    assert checkpoints.most_checkpoints(config_of(data, keep_checkpoints=10**9)) == 4 + 1 + 2 + 2
    assert checkpoints.most_checkpoints(config_of(data, keep_checkpoints=10**9, max_steps=None, max_epochs=1)) > 10**9


@pytest.mark.parametrize("training", [{}, {"freeze": ["encoder"], "ema_decay": 0.9}])
def test_what_a_checkpoint_weighs_is_known(data: Path, tmp_path: Path, training: dict) -> None:
    """Of what is frozen Adam has no means."""
    run, config = RunFolder(tmp_path / "run"), config_of(data, **training)
    assert train(data, run, max_steps=2, **training).exit_status == 0
    real = sum(path.stat().st_size for path in run.step(2).iterdir())
    model = load_run(run, "last")[1]
    freeze(model, config.training.freeze)
    assert real <= checkpoints.checkpoint_bytes(config, model) <= real + 2**13
    weights, moments = (read_tensors(run.step(2) / name) for name in (WEIGHTS, OPTIMIZER))
    assert real <= checkpoints.bytes_of_files(config, weights, moments) <= real + 2**13


def test_without_room_a_save_is_not_begun(data: Path, straight: RunFolder, tmp_path: Path, monkeypatch) -> None:
    run = RunFolder(tmp_path / "run")
    free = iter([10**9, 10**9, 0])  # at the start, at step 3, at step 6
    monkeypatch.setattr(checkpoints, "free_bytes", lambda path: next(free))
    with pytest.raises(SaveError, match=r"room for .*step_6: it needs 0\.1 MB, and 0\.0 MB are free\. The"):
        train(data, run)
    assert run.steps() == [3]
    monkeypatch.undo()
    assert train(data, run, resume=True).exit_status == 0
    assert weights(run) == weights(straight)


def test_a_training_goes_on_without_a_checkpoint_where_asked(
    data: Path, straight: RunFolder, tmp_path: Path, monkeypatch, capsys
) -> None:
    run = RunFolder(tmp_path / "run")

    def save(run, weights, moments, state, config) -> Path:
        if state.step in (6, 7):
            raise SaveError("The disk is full.")
        return checkpoints.save_checkpoint(run, weights, moments, state, config)

    monkeypatch.setattr(loop, "save_checkpoint", save)
    assert train(data, run, on_save_error="continue").exit_status == 0
    said = capsys.readouterr().out
    assert said.count("warning: The disk is full. Training goes on, as training.on_save_error says.") == 2
    assert weights(run) == weights(straight)
    assert metrics(run.path) == metrics(straight.path)
    assert run.steps() == [3, 9, 12], "step 7 was the best of its validation, and could not be saved"
    assert json.loads((run.step(9) / "state.json").read_text())["best_step"] is None


def test_the_last_checkpoint_is_always_needed(data: Path, tmp_path: Path, monkeypatch) -> None:
    def save(*_: object) -> None:
        raise SaveError("The disk is full.")

    monkeypatch.setattr(loop, "save_checkpoint", save)
    with pytest.raises(SaveError):
        train(data, RunFolder(tmp_path / "run"), on_save_error="continue")


class FullFile:
    """A file on a disk that takes half of what is written and then no more, until there is room."""

    def __init__(self, path: Path) -> None:
        self.real = path.open("ab", buffering=0)
        self.has_room = False
        self.num_calls = 0

    def write(self, content: bytes) -> int:
        self.num_calls += 1
        if self.has_room:
            return self.real.write(content)
        if self.num_calls % 2:
            return self.real.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    def fileno(self) -> int:
        return self.real.fileno()


def test_metrics_wait_for_room_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, TrainingState())
    file.add("train", 1, {"nll": 1.0})
    before = path.read_bytes()
    full = FullFile(path)
    file.file = full  # type: ignore[assignment]  # stands in for a raw file
    for step in (2, 3):
        with pytest.raises(OSError, match="No space left"):
            file.add("train", step, {"nll": 1.0})
        assert path.read_bytes() == before, "no half line"
    with pytest.raises(OSError, match="No space left"):
        file.sync()
    full.has_room = True
    file.add("train", 4, {"nll": float("nan")})
    assert [json.loads(line)["step"] for line in path.read_text().split("\n")[:-1]] == [1, 2, 3, 4]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 600 kB, where one can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1000))


def test_a_disk_that_is_full_for_a_while(
    data: Path, straight: RunFolder, small_disk: Path, monkeypatch, capsys
) -> None:
    """Checkpoints of steps 6 to 9 meet ENOSPC, and so do metrics and curves; then there is room again."""
    run, filler = RunFolder(small_disk / "run"), small_disk / "filler"

    def save(run, weights, moments, state, config) -> Path:
        saved = checkpoints.save_checkpoint(run, weights, moments, state, config)
        if state.step == 3:
            fill(filler)
        return saved

    update = loop.Updater.update

    def updated(self, split, micro_batches, step, place, batch_of):
        if step == 11:
            filler.unlink()
        return update(self, split, micro_batches, step, place, batch_of)

    monkeypatch.setattr(checkpoints, "bytes_of_files", lambda *_: 0)  # let it try
    monkeypatch.setattr(loop, "save_checkpoint", save)
    monkeypatch.setattr(loop.Updater, "update", updated)
    assert train(data, run, on_save_error="continue", keep_checkpoints=1, log_every_steps=1).exit_status == 0
    said = capsys.readouterr().out
    assert said.count("its metrics wait for room") == 1
    assert said.count("Training goes on, as training.on_save_error says.") == 3  # steps 6, 7 (a validation) and 9
    assert run.steps() == [12]
    assert weights(run) == weights(straight)
    assert [line["step"] for line in metrics(run.path) if line["kind"] == "train"] == list(range(1, 13))
    assert not list(run.checkpoints.glob(".*")), "no rubbish stays"
