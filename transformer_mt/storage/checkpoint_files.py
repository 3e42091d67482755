"""The files of a checkpoint, and which checkpoint of a run `best`, `last`, `average` or `step_N` means."""

import json
import logging
from functools import cache
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.paths import is_file
from transformer_mt.storage.manifest import check_manifest
from transformer_mt.storage.run_folder import STEP_PREFIX, RunFolder

WEIGHTS = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
SETTINGS = "settings.yaml"  # the config of the steps up to here; that of the run may change later
AVERAGED_STEPS = "steps.json"

LOGGER = logging.getLogger(__name__)


def find_checkpoint(run: RunFolder, choice: str | None) -> Path:
    """The folder of `best`, `last`, `average` or `step_N`; None means best, or last where there is no best. Where the
    best one is missing, its folder or its manifest, a warning says which is used.

    Raises UserError, naming what there is, where there is no such checkpoint.
    """
    steps = run.trained_steps()
    named = {"last": run.step(steps[-1]), **{f"{STEP_PREFIX}{step}": run.step(step) for step in steps}}
    if is_file(run.average / WEIGHTS):
        named["average"] = run.average
    if choice in named:
        return named[choice]
    best = best_step(run)  # read only now, so that a damaged state stops nobody from naming a step
    is_there = best in steps
    if best is not None and is_there and choice in (None, "best"):
        return run.step(best)
    if choice is None:
        if best is not None:
            _tell_missing(run.step(best), named["last"])
        return named["last"]
    hint = ""
    if choice == "average":
        hint = f" {_averaged('Make one', run)}"
    if f"{STEP_PREFIX}{choice}" in named:
        hint = f" Did you mean {STEP_PREFIX}{choice}?"
    there = ", ".join(["best"] * is_there + list(named))
    raise UserError(f"{run.path} has no checkpoint {choice!r}; there are {there}.{hint}")


@cache  # a command may load a model several times
def _tell_missing(best: Path, used: Path) -> None:
    LOGGER.warning("the best checkpoint, %s, is missing; %s is used", best.name, used.name)


def own_steps(run: RunFolder) -> list[int]:
    """The steps of the checkpoints that the run has trained, ascending: all but 0, whose weights are another run's."""
    return [step for step in run.steps() if step > 0]


def only_another_runs(run: RunFolder) -> UserError:
    """What to raise where a run has no checkpoint of its own to average."""
    return UserError(f"There is nothing to average in {run.path}. {_of_another(run)}")


def _averaged(what: str, run: RunFolder) -> str:
    """The sentence that says how an average is made: of no more checkpoints than there are."""
    number = min(5, len(own_steps(run)))
    return f"{what} with `tmt average {run.quoted} --last {number}`." if number else _of_another(run)


def way_out_of_damage(run: RunFolder, checkpoint: Path) -> str:
    """The sentence that says what to do where a file of this checkpoint is damaged."""
    if checkpoint == run.average:
        return _averaged("Make it again", run)
    return "Choose another with --checkpoint; `tmt train --resume` goes on from the newest that is whole."


def _of_another(run: RunFolder) -> str:
    return (
        f"It has only {STEP_PREFIX}0, the weights of another run that it began with. Train it first with "
        f"`tmt train --resume {run.quoted}`."
    )


def stale_average(run: RunFolder, checkpoint: Path) -> str:
    """A note where this checkpoint is an average and there is a newer checkpoint; else nothing."""
    if checkpoint != run.average:
        return ""
    steps = averaged_steps(run)
    if steps[-1] == run.steps()[-1]:
        return ""
    return f"note: the average is of the steps {', '.join(map(str, steps))}; the newest is {run.steps()[-1]}"


def averaged_steps(run: RunFolder) -> list[int]:
    """The steps of the checkpoints that were averaged, the newest last. UserError where they cannot be read."""
    way_out = way_out_of_damage(run, run.average)
    check_manifest(run.average, [AVERAGED_STEPS], way_out)
    try:
        steps = [int(step) for step in json.loads((run.average / AVERAGED_STEPS).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{run.average} is damaged ({error}). {way_out}") from error
    if not steps:
        raise UserError(f"{run.average} is damaged (it is of no checkpoint). {way_out}")
    return steps


def full_name(run: RunFolder, checkpoint: str) -> str:
    """The name of a checkpoint; that of an average says of which it is."""
    if checkpoint != run.average.name:
        return checkpoint
    steps = averaged_steps(run)
    return f"{checkpoint}{len(steps)}_to_{steps[-1]}"


def best_step(run: RunFolder) -> int | None:
    """The step with the best validation so far, as the newest checkpoint says; None where there is none.
    Its checkpoint may be missing.
    """
    steps = run.steps()
    if not steps:
        return None
    path = run.step(steps[-1]) / STATE
    check_manifest(path.parent, [STATE], "Choose a checkpoint with --checkpoint step_N.")
    try:
        best = json.loads(path.read_text(encoding="utf-8"))["best_step"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}). Choose a checkpoint with --checkpoint step_N.") from error
    return best
