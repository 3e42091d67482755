"""What is known of each run in a folder: its settings, how far it is, its scores and curves, and what is wrong."""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from transformer_mt.config.loading import read_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.errors import UserError
from transformer_mt.judging.runs.own_test import own_test_bleu
from transformer_mt.paths import exists, is_dir, is_file
from transformer_mt.plurals import counted
from transformer_mt.storage.checkpoint_files import SETTINGS, WEIGHTS, way_out_of_damage
from transformer_mt.storage.files import permission_to_read
from transformer_mt.storage.manifest import check_manifest
from transformer_mt.storage.run_folder import TOKENIZERS, RunFolder
from transformer_mt.training.monitoring.metrics_file import Curve, add_to_curves, best_scores
from transformer_mt.training.resuming.run_lock import is_trained_now
from transformer_mt.training.resuming.training_state import checked_state


@dataclass
class RunSummary:
    """A run. `state` is finished, stopped, training, new (without a checkpoint) or damaged, which `problems` explain.

    `curves` have the names of TensorBoard, such as `validation/bleu`. `best` has the best value of each score of a
    validation with its step, and `test_bleu` is that of `own_test_bleu`. `minutes` are those of training, and
    `num_bytes` is the size of the folder.
    """

    name: str
    state: str = "new"
    problems: list[str] = field(default_factory=list)
    config: RunConfig | None = None
    step: int | None = None
    minutes: float | None = None
    num_parameters: int | None = None
    num_bytes: int = 0
    best: dict[str, tuple[float, int]] = field(default_factory=dict)
    test_bleu: float | None = None
    curves: dict[str, Curve] = field(default_factory=dict)


def summaries_of(folder: Path) -> list[RunSummary]:
    """Every run directly in a folder, in the order of their names; or the one run that the folder itself is. UserError
    where there is none.
    """
    with permission_to_read(folder):
        if not is_dir(folder):
            raise UserError(f"There is no folder {folder}. Give the one that `tmt train` writes its runs to.")
        if _is_run(folder):
            return [summary_of(folder)]
        found = [path for path in sorted(folder.iterdir(), key=lambda path: path.name) if _is_run(path)]
    if not found:
        raise UserError(f"There is no run in {folder.resolve()}. Train one with `tmt train --config quickstart.yaml`.")
    return [summary_of(path) for path in found]


def _is_run(path: Path) -> bool:
    """Whether something of a run is in it; a folder that may not be read is taken for one, so that it is told."""
    try:
        return is_dir(path) and any(exists(path / name) for name in ("config.yaml", "checkpoints", "metrics.jsonl"))
    except PermissionError:
        return True


def summary_of(path: Path) -> RunSummary:
    """What is known of a run. Whatever is damaged or may not be read is among its problems."""
    name = Path(os.path.abspath(path)).name  # of `.`, from inside a run, and of `..`
    summary = RunSummary(name if name.isprintable() else ascii(name)[1:-1])
    try:
        run = RunFolder(path)
        with permission_to_read(path):
            list(path.iterdir())
            _read_metrics(run, summary)
            summary.num_bytes = sum(map(_num_bytes, path.rglob("*")))
            is_training = is_trained_now(run)
            summary.config = read_config(run.config)
            _read_checkpoint(run, summary)
    except (UserError, OSError) as error:
        summary.problems.append(str(error).split("\n")[0])
        summary.state = "damaged"
        return summary
    summary.state = "training" if is_training else summary.state
    return summary


def _num_bytes(path: Path) -> int:
    """The size of a file; nothing of a folder, nor of a file that the training has just taken away."""
    try:
        return path.stat().st_size if is_file(path) else 0
    except FileNotFoundError:
        return 0


def _read_checkpoint(run: RunFolder, summary: RunSummary) -> None:
    """The step, the minutes and the state of the newest checkpoint, the number of its weights, and the BLEU that
    stands for the run.

    Raises UserError where what the verbs load is not whole: tokenizers, and the settings and the weights' head of the
    newest checkpoint and of the best. The weights themselves are not read, since those of all runs would take long.
    """
    if not (steps := run.steps()):
        return
    assert summary.config is not None
    summary.step = steps[-1]
    state = checked_state(run, steps[-1])
    summary.minutes = state.elapsed_seconds / 60
    summary.state = "stopped" if state.reason_of_the_end(summary.config) is None else "finished"
    best = state.best_step if state.best_step in steps else steps[-1]  # the one that verbs take
    summary.test_bleu = own_test_bleu(run, summary.config, run.step(best).name, summary.problems)
    for step in sorted({steps[-1], best}):
        summary.num_parameters = _num_parameters(run.step(step) / WEIGHTS)
        check_manifest(run.step(step), [SETTINGS], way_out_of_damage(run, run.step(step)))
    check_manifest(run.tokenizers, TOKENIZERS, "Put back a copy of it, or train again.")


def _num_parameters(path: Path) -> int:
    """The number of weights, by the head of the file alone."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118, no mapping
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is missing or damaged ({error}).") from error


def _read_metrics(run: RunFolder, summary: RunSummary) -> None:
    """The curves, and the best of each score. Lines that cannot be read are counted."""
    curves = summary.curves
    lines = run.metrics.read_text(encoding="utf-8", errors="replace").split("\n") if exists(run.metrics) else []
    if num_broken := [add_to_curves(line, curves) for line in filter(None, lines)].count(None):
        summary.problems.append(f"{run.metrics.name}: {counted(num_broken, 'line')} cannot be read")
    summary.best = best_scores(curves)
