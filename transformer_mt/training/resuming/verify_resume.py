"""The proof that resuming is exact on this machine: a straight training against one killed halfway and resumed."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_mt.config.loading import load_config
from transformer_mt.config.schedules import SCHEDULES, length_of_decay
from transformer_mt.config.schema import RunConfig
from transformer_mt.errors import UserError
from transformer_mt.storage.checkpoint_files import STATE
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.resuming.compare_runs import Comparison, compare_runs
from transformer_mt.training.stop_signals import signals_held, unwind_on_signals

MAX_TRANSLATED = 8  # pairs a validation; the proof does not depend on their number
TRIES = 3
SECONDS_BETWEEN_LOOKS = 0.002


@dataclass(frozen=True)
class Verification:
    """The trainings that are compared. `changes` are overrides, with those that make the trainings short."""

    config: str
    changes: tuple[str, ...]
    steps: int
    folder: Path

    @property
    def half(self) -> int:
        """The step after whose checkpoint the second run is killed."""
        return self.steps // 2


def verify_resume(
    config: str,
    overrides: Sequence[str],
    steps: int,
    keep: Path | None,
    say: Callable[[str], None],
    between: Callable[[RunFolder], None] = lambda run: None,
) -> Comparison:
    """Train `steps` straight; train until half of them are saved, SIGKILL, resume; compare.

    Each training is a process of its own. The runs go to `keep`, or else to a temporary folder. `say` gets a line for
    each thing that happens; `between` is called with the killed run before it is resumed. Raises UserError where a
    training fails. A signal ends the running training and deletes the temporary folder.
    """
    if steps < 2 or steps % 2:
        raise UserError(
            f"--steps is {steps}; half of them are trained before the kill: give an even number, 2 or more."
        )
    loaded = load_config(config, overrides)
    short = shortening(loaded.config, steps)
    load_config(config, [*overrides, *short])  # refuses now what the trainings would refuse
    say(loaded.note or f"config: {loaded.path}")
    say(f"changed for this: {' '.join(short)}")
    with unwind_on_signals(), _place(keep) as folder:
        task = Verification(config, (*overrides, *short), steps, folder)
        say(f"1 of 3: {steps:,} steps straight")
        straight = _train_straight(task)
        for line in re.findall(r"^(?:device|deterministic): .*$", _printed(task, "straight"), re.MULTILINE):
            say(f"  {line}")
        # Fixed for the second run, because `auto` may measure, and another process might find another precision.
        precision = json.loads((straight.step(steps) / STATE).read_text(encoding="utf-8"))["precision"]
        task = replace(task, changes=(*task.changes, f"training.precision={precision}"))
        say(f"2 of 3: {task.half:,} steps, then a kill")
        resumed = _train_until_killed(task)
        say(f"  killed after the checkpoint of step {task.half:,}{_last_line(resumed)}")
        between(resumed)
        say(f"3 of 3: resumed, {task.half:,} steps more")
        went_on = _resume(task)
        if went_on != task.half:
            return Comparison(0, 0, 0, f"the killed run went on from step {went_on}, not from step {task.half}")
        say(f"  went on from step {went_on:,}")
        return compare_runs(straight, resumed, steps)


def shortening(config: RunConfig, steps: int) -> list[str]:
    """Overrides that make a training `steps` long, with a checkpoint and a validation halfway and at the end.

    No line of metrics is written halfway, so that the kill cuts the sums for a line in two.
    """
    half = steps // 2
    changes: dict[str, object] = {
        "training.max_steps": steps,
        "training.max_epochs": "null",
        "training.max_minutes": "null",
        "training.checkpoint_every_steps": half,
        "training.keep_checkpoints": 1,
        "training.average_last": "null",
        "training.log_every_steps": next(every for every in range(2, steps + 2) if half % every),
        "training.deterministic": "true",
        "validation.every_steps": half,
        "validation.every_epochs": "null",
        "validation.num_translated": min(config.validation.num_translated, MAX_TRANSLATED),
        "validation.patience": "null",
    }
    decay = length_of_decay(steps, None)  # a tenth of the steps
    if SCHEDULES[config.training.schedule].needs_end and config.training.warmup_steps + decay > steps:
        changes["training.warmup_steps"] = half  # the warm-up must end before the decay, or else before max_steps
    if config.training.decay_steps is not None:
        changes["training.decay_steps"] = "null"
    if config.training.consistency is not None:  # so that both kinds of steps are compared
        changes["training.consistency.start_step"] = min(config.training.consistency.start_step, half)
    if config.training.compile is True:  # refused beside deterministic
        changes["training.compile"] = "auto"
    if config.decoding.precision == "auto":
        changes["decoding.precision"] = "fp32"
    return [f"{key}={value}" for key, value in changes.items()]


@contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    """The folder `keep`, which must be new or empty, or a temporary folder."""
    if keep is None:
        with TemporaryDirectory(prefix="tmt_verify_", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise UserError(f"{keep} is not empty. Give --keep a new folder.")
    except OSError as error:
        raise UserError(f"--keep {keep}: {error.strerror or error}. Give it a new folder.") from error
    yield keep


@contextmanager
def _training(task: Verification, name: str, log: str) -> Iterator[subprocess.Popen[bytes]]:
    """`tmt train` as a process that ends with the context. The user sees its bar and errors; the rest goes to `log`."""
    command = [sys.executable, "-m", "transformer_mt", "train", "--config", task.config, "--resume", "auto"]
    command += ["--runs", str(task.folder), *task.changes, f"name={name}"]
    with (task.folder / f"{log}.txt").open("wb") as output:
        process = None
        try:
            with signals_held():  # a signal between the start and the assignment would leave the process running
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
            yield process
        finally:
            if process is not None:
                process.kill()
                process.wait()


def _printed(task: Verification, log: str) -> str:
    return (task.folder / f"{log}.txt").read_text(encoding="utf-8", errors="replace")


def _train_straight(task: Verification) -> RunFolder:
    with _training(task, "straight", "straight") as process:
        _refuse_unless_done(process.wait(), "straight")
    return RunFolder(task.folder / "straight")


def _train_until_killed(task: Verification) -> RunFolder:
    """Train, and kill the training as soon as the checkpoint is there. A training that ends before is tried again."""
    run = RunFolder(task.folder / "resumed")
    for _ in range(TRIES):
        with _training(task, "resumed", "first_half") as process:
            while process.poll() is None and task.half not in run.steps():
                time.sleep(SECONDS_BETWEEN_LOOKS)
            process.kill()
            status = process.wait()
        if task.half not in run.steps():
            _refuse_unless_done(status, "killed")
        if status != 0 and task.steps not in run.steps():
            return run
        shutil.rmtree(run.path)
    raise UserError(
        f"{task.half} steps are over before they can be killed. Give more, for example --steps {20 * task.steps}."
    )


def _resume(task: Verification) -> int:
    """Resume. Returns the step from which the training says that it goes on; 0 where it says none."""
    with _training(task, "resumed", "second_half") as process:
        _refuse_unless_done(process.wait(), "resumed")
    found = re.search(r"^going on from step ([\d,]+)$", _printed(task, "second_half"), re.MULTILINE)
    return int(found[1].replace(",", "")) if found else 0


def _refuse_unless_done(status: int, which: str) -> None:
    if status != 0:
        raise UserError(
            f"The {which} training ended with status {status}, so there is nothing to compare. "
            "Its own message stands above; try the same with `tmt train`."
        )


def _last_line(run: RunFolder) -> str:
    """Words on how far the metrics had come; a resumed run cuts them back to the checkpoint."""
    with suppress(OSError, ValueError, LookupError):
        newest = json.loads(run.metrics.read_text(encoding="utf-8").split("\n")[-2])["step"]
        return f"; its metrics had come to step {newest:,}"
    return ""
