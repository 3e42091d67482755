"""What a run folder survives: damage, a full disk, another process, other settings."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from toy import toy_config, toy_mapping, write_toy_corpus
from trainings import CLOCK

from transformer_mt.config.loading import parse_run_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.errors import UserError
from transformer_mt.storage import manifest
from transformer_mt.storage.checkpoint_files import WEIGHTS
from transformer_mt.storage.manifest import write_manifest
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import loop, validation
from transformer_mt.training.averaging import average_checkpoints
from transformer_mt.training.monitoring.metrics_file import MetricsFile
from transformer_mt.training.resuming import checkpoints
from transformer_mt.training.resuming.checkpoints import SaveError, set_damaged_aside, sweep_half_written
from transformer_mt.training.resuming.run_lock import sole_trainer
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.run import Outcome, start_or_resume

TRAINING = {"max_steps": 12, "checkpoint_every_steps": 3, "keep_checkpoints": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_toy_corpus(tmp_path_factory.mktemp("saving"))


@pytest.fixture(scope="module")
def straight(data: Path, tmp_path_factory) -> RunFolder:
    """A run that nothing happened to."""
    run = RunFolder(tmp_path_factory.mktemp("runs") / "straight")
    assert train(data, run).exit_status == 0
    return run


@pytest.fixture
def run(straight: RunFolder, tmp_path: Path) -> RunFolder:
    """The same run in a folder of the test's own."""
    shutil.copytree(straight.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def config_of(data: Path, **training: object) -> RunConfig:
    return toy_config(data, training={**TRAINING, **training}, model={"dropout": 0.2})


def train(data: Path, run: RunFolder, resume: bool = False, change_lr: bool = False, **training: object) -> Outcome:
    return start_or_resume(config_of(data, **training), run, resume, change_lr)


def weights(run: RunFolder, step: int = 12) -> bytes:
    return (run.step(step) / "model.safetensors").read_bytes()


def metrics(run: RunFolder) -> list[dict]:
    lines = [json.loads(line) for line in run.metrics.read_text().split("\n")[:-1]]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, Path.unlink])
@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "state.json", "settings.yaml", "manifest.json"]
)
def test_a_damaged_checkpoint_costs_its_steps_and_no_more(
    data: Path, straight: RunFolder, run: RunFolder, damage, name: str, capsys
) -> None:
    damage(run.step(12) / name)
    damage(run.step(9) / "model.safetensors")
    assert train(data, run, resume=True).exit_status == 0
    said = capsys.readouterr().out
    assert str(run.step(12)) in said
    assert re.search(rf"warning: {run.step(9)}/model\.safetensors is [^.]*\. It is now {run.checkpoints}/damaged", said)
    assert f"going on from the newest whole checkpoint, {run.step(7)}: 5 steps are computed again" in said
    assert (run.checkpoints / "damaged_step_12").is_dir()
    assert (run.checkpoints / "damaged_step_9").is_dir()
    assert weights(run) == weights(straight)
    assert metrics(run) == metrics(straight)
    assert run.steps() == straight.steps()


def test_where_no_checkpoint_is_whole_nothing_is_touched(data: Path, run: RunFolder) -> None:
    steps = run.steps()
    for step in steps:
        cut_short(run.step(step) / "optimizer.safetensors")
    before = sorted(path.name for path in run.checkpoints.iterdir())
    with pytest.raises(UserError, match=f"None of the {len(steps)} checkpoints of .* is whole.* another name"):
        train(data, run, resume=True)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == before


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json", ""])
def test_a_checkpoint_that_may_not_be_read_is_not_set_aside(folder_without_rights: Path, name: str) -> None:
    """It may well be whole, and then to go on from the one before it would lose steps."""
    run = RunFolder(folder_without_rights / "run")
    names = ["model.safetensors", "optimizer.safetensors", "settings.yaml", "state.json"]
    for step in (9, 12):
        run.step(step).mkdir(parents=True)
        for file in names:
            (run.step(step) / file).write_text(file)
        write_manifest(run.step(step), names)
    assert set_damaged_aside(run) == []
    before, closed = run.steps(), run.step(12) / name
    closed.chmod(0)
    try:
        with pytest.raises(UserError, match=r"may not be read: permission denied\. Have its owner allow it: chmod"):
            set_damaged_aside(run)
    finally:
        closed.chmod(0o755)
    assert run.steps() == before


def test_a_checkpoint_that_a_disk_cannot_read_is_not_set_aside(run: RunFolder, monkeypatch) -> None:
    def fail(path: Path) -> str:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    before = run.steps()
    monkeypatch.setattr(manifest, "digest", fail)
    with pytest.raises(UserError, match=rf"step_12/\S+ cannot be read: .* move '?{run.step(12)}'? away and go on"):
        set_damaged_aside(run)
    assert run.steps() == before


def test_whole_checkpoints_stay_where_they_are(run: RunFolder) -> None:
    steps = run.steps()
    assert set_damaged_aside(run) == []
    assert run.steps() == steps


def test_a_second_trainer_is_refused(data: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    told = rf"{run.path} is being trained by process {os.getpid()} on "
    with sole_trainer(run):
        with pytest.raises(UserError, match=told):
            train(data, run)
        with pytest.raises(UserError, match=told):
            train(data, run, resume=True)
    assert train(data, run, max_steps=1).exit_status == 0


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    code = (
        "import sys, time; from pathlib import Path; from transformer_mt.storage.run_folder import RunFolder\n"
        "from transformer_mt.training.resuming.run_lock import sole_trainer\n"
        "with sole_trainer(RunFolder(Path(sys.argv[1]))): print('inside', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(run.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    with pytest.raises(UserError, match=f"process {process.pid} on"), sole_trainer(run):
        pass
    process.kill()
    process.communicate()
    with sole_trainer(run):
        pass


def test_room_is_looked_at_before_the_first_step(data: Path, tmp_path: Path, monkeypatch) -> None:
    run = RunFolder(tmp_path / "run")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4 * 2**18))
    with pytest.raises(UserError, match=r"hold up to 5 checkpoints of 0 MB, and where .* lies 1 MB are free"):
        train(data, run)
    assert not run.path.exists(), "what is refused leaves nothing"
    assert train(data, run, keep_checkpoints=1).exit_status == 0


def test_a_resumed_run_needs_room_for_what_it_does_not_hold_yet(data: Path, run: RunFolder, monkeypatch) -> None:
    from transformer_mt.decoding.load_model import load_run

    size = checkpoints.checkpoint_bytes(load_run(run, "last")[1].parameters())
    missing = TRAINING["keep_checkpoints"] + 2 - len(run.steps())
    assert missing in (1, 2)
    monkeypatch.setattr(checkpoints, "free_bytes", lambda path: missing * size - 1)
    with pytest.raises(UserError, match="hold up to 5 checkpoints"):
        train(data, run, resume=True, max_steps=13)
    monkeypatch.setattr(checkpoints, "free_bytes", lambda path: missing * size)
    assert train(data, run, resume=True, max_steps=13).exit_status == 0


def test_the_metrics_of_a_checkpoint_are_on_the_disk_before_it(data: Path, tmp_path: Path, monkeypatch) -> None:
    """After a power cut too, a resumed run finds the lines up to its checkpoint."""
    run = RunFolder(tmp_path / "run")
    synced: dict[int, int] = {}
    sizes: list[int] = []

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced[found.st_ino] = found.st_size

    def save(run, weights, moments, state, config) -> Path:
        found = run.metrics.stat()
        assert synced.get(found.st_ino) == found.st_size
        sizes.append(found.st_size)
        return checkpoints.save_checkpoint(run, weights, moments, state, config)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(loop, "save_checkpoint", save)
    assert train(data, run, max_steps=6).exit_status == 0
    assert 0 < sizes[0] < sizes[1]


def test_what_a_checkpoint_weighs_is_known(data: Path, straight: RunFolder) -> None:
    from transformer_mt.decoding.load_model import load_run

    real = sum(path.stat().st_size for path in straight.step(12).iterdir())
    expected = checkpoints.checkpoint_bytes(load_run(straight, "last")[1].parameters())
    assert real <= expected <= real + 2**18


def test_whoever_may_read_new_files_may_read_a_checkpoint(straight: RunFolder) -> None:
    mode = (straight.path / "config.yaml").stat().st_mode
    assert {path.stat().st_mode for path in straight.step(straight.steps()[-1]).iterdir()} == {mode}
    average_checkpoints(straight, 1)
    assert {path.stat().st_mode for path in straight.average.iterdir()} == {mode}


def test_what_a_kill_left_of_an_average_is_swept(straight: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(straight.path, tmp_path / "run")))
    average_checkpoints(run, 1)
    weights = (run.average / WEIGHTS).read_bytes()
    os.rename(run.average, run.checkpoints / ".aside-average")
    for name, age in (("old", 7200), ("new", 60)):
        left = run.checkpoints / f".tmp-average-{name}"
        left.mkdir()
        os.utime(left, (time.time() - age, time.time() - age))
    sweep_half_written(run.average)
    assert (run.average / WEIGHTS).read_bytes() == weights
    assert [path.name for path in run.checkpoints.glob(".*")] == [".tmp-average-new"]
    os.utime(run.checkpoints / ".tmp-average-new", (time.time() - 7200, time.time() - 7200))
    average_checkpoints(run, 1)
    assert not list(run.checkpoints.glob(".*"))


def test_without_room_a_save_is_not_begun(data: Path, straight: RunFolder, tmp_path: Path, monkeypatch) -> None:
    run = RunFolder(tmp_path / "run")
    free = iter([10**9, 10**9, 0])  # at the start, at step 3, at step 6
    monkeypatch.setattr(checkpoints, "free_bytes", lambda path: next(free))
    with pytest.raises(SaveError, match=r"no room for the checkpoint .*step_6: it needs 0 MB, and 0 MB are free\. The"):
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
    assert metrics(run) == metrics(straight)
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

    monkeypatch.setattr(checkpoints, "checkpoint_bytes", lambda *_: 0)  # let it try
    monkeypatch.setattr(loop, "save_checkpoint", save)
    monkeypatch.setattr(loop.Updater, "update", updated)
    assert train(data, run, on_save_error="continue", keep_checkpoints=1, log_every_steps=1).exit_status == 0
    said = capsys.readouterr().out
    assert said.count("its metrics wait for room") == 1
    assert said.count("Training goes on, as training.on_save_error says.") == 3  # steps 6, 7 (a validation) and 9
    assert run.steps() == [12]
    assert weights(run) == weights(straight)
    assert [line["step"] for line in metrics(run) if line["kind"] == "train"] == list(range(1, 13))
    assert not list(run.checkpoints.glob(".*")), "no rubbish stays"


def test_the_learning_rate_changes_with_a_flag_and_is_recorded(data: Path, run: RunFolder, capsys) -> None:
    with pytest.raises(UserError, match=r"training\.factor: was 1\.0, is 0\.5\n.*--change-lr lets") as refused:
        train(data, run, resume=True, factor=0.5, max_steps=15)
    assert "max_steps" not in str(refused.value), "what may change is no reason"
    assert not run.changes.exists()
    assert train(data, run, resume=True, change_lr=True, factor=0.5, max_steps=15).exit_status == 0
    assert "changed: training.factor was 1.0, is 0.5" in capsys.readouterr().out
    recorded = [json.loads(line) for line in run.changes.read_text().split("\n")[:-1]]
    assert recorded == [
        {"step": 12, "changes": {"training.factor": [1.0, 0.5], "training.max_steps": [12, 15]}},
    ]
    assert train(data, run, resume=True, factor=0.5, max_steps=16).exit_status == 0, "it holds from now on"
    recorded.append({"step": 15, "changes": {"training.max_steps": [15, 16]}})
    assert [json.loads(line) for line in run.changes.read_text().split("\n")[:-1]] == recorded
    rates = {line["step"]: line["lr"] for line in metrics(run) if line["kind"] == "train"}
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


def test_a_kill_between_the_last_save_and_its_tidying_leaves_nothing_too_many(data: Path, run: RunFolder) -> None:
    steps = run.steps()
    shutil.copytree(run.step(steps[0]), run.step(1))
    assert train(data, run, resume=True).exit_status == 0
    assert run.steps() == steps


def test_another_device_has_the_precision_of_validations_measured_anew(data: Path, tmp_path: Path, monkeypatch) -> None:
    """One that a CPU is fast at, int8 say, a GPU has not."""
    answers = iter(["bf16", "fp32"])
    monkeypatch.setattr(validation, "choose_search_precision", lambda *_: SimpleNamespace(value=next(answers)))
    run = RunFolder(tmp_path / "run")
    for end, expected in ((3, "bf16"), (6, "fp32")):
        mapping = toy_mapping(data, training={**TRAINING, "max_steps": end}, decoding={"precision": "auto"})
        start_or_resume(parse_run_config(mapping, "toy"), run, resume=True)
        state = run.step(end) / "state.json"
        content = json.loads(state.read_text())
        assert content["validation_precision"] == expected
        content["device"] = "cuda:1"
        state.write_text(json.dumps(content))
        write_manifest(state.parent, [path.name for path in state.parent.iterdir() if path.name != "manifest.json"])


def test_the_precision_of_validations_is_measured_once_a_run(data: Path, tmp_path: Path, monkeypatch) -> None:
    answers = iter(["bf16", "fp32"])
    monkeypatch.setattr(validation, "choose_search_precision", lambda *_: SimpleNamespace(value=next(answers)))
    run = RunFolder(tmp_path / "run")
    for end in (3, 6):
        mapping = toy_mapping(data, training={**TRAINING, "max_steps": end}, decoding={"precision": "auto"})
        start_or_resume(parse_run_config(mapping, "toy"), run, resume=True)
        assert json.loads((run.step(end) / "state.json").read_text())["validation_precision"] == "bf16"


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
        lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        found.append([line for line in lines if line["kind"] == "validation"][-1])
    assert found[0]["nll"] == pytest.approx(found[1]["nll"], rel=2e-3)
    assert "bleu" in found[0]


def test_a_second_ctrl_c_stops_at_once_and_loses_nothing_saved(data: Path, straight: RunFolder, tmp_path: Path) -> None:
    """The first one waits for the step, which here never ends; the second does not."""
    run = RunFolder(tmp_path / "run")
    code = (
        "import sys, time; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from test_saving import train; from transformer_mt.storage.run_folder import RunFolder\n"
        "from transformer_mt.training import loop\n"
        "update = loop.Updater.update\n"
        "def slow(self, split, micro_batches, step, place, batch_of):\n"
        "    while step == 5: time.sleep(0.01)\n"
        "    return update(self, split, micro_batches, step, place, batch_of)\n"
        "loop.Updater.update = slow\n"
        "train(Path(sys.argv[2]), RunFolder(Path(sys.argv[3])))\n"
    )
    tests = Path(__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tests), str(data), str(run.path)], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": f"{tests.parent}{os.pathsep}{tests.parent.parent}"},
    )  # fmt: skip
    assert process.stderr is not None
    while not run.steps():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.5)  # into step 5
    process.send_signal(signal.SIGINT)
    while "Finishing the step" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert run.steps() == [3]
    assert train(data, run, resume=True).exit_status == 0
    assert weights(run) == weights(straight)
    assert metrics(run) == metrics(straight)


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
    assert metrics(run) == metrics(straight)


def test_a_deleted_metrics_file_is_told_and_begun_anew(
    data: Path, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(data, run, resume=True, max_steps=14).exit_status == 0
    assert "is gone" not in capsys.readouterr().out
    run.metrics.unlink()
    assert train(data, run, resume=True, max_steps=16, log_every_steps=1).exit_status == 0
    said = f"warning: {run.metrics} is gone, and with it the numbers of the steps up to 14, which TensorBoard's"
    assert capsys.readouterr().out.count(said) == 1
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [15, 16]
