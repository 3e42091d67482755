"""The mean of a run's newest checkpoints (Vaswani et al. 2017, section 6.1): often a little better than each."""

import json
import shlex
import shutil
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.plurals import counted
from transformer_mt.storage.checkpoint_files import AVERAGED_STEPS, SETTINGS, WEIGHTS, only_another_runs, own_steps
from transformer_mt.storage.manifest import check_manifest
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import average_weights, save_tensors
from transformer_mt.training.resuming.checkpoints import put_back, write_folder


def average_checkpoints(run: RunFolder, last: int) -> list[int]:
    """Write the mean of the `last` newest checkpoints to `checkpoints/average`, in place of an earlier average. Returns
    their steps. Raises UserError where the run has fewer checkpoints, or one of them is damaged.
    """
    steps = own_steps(run)
    if not steps:
        raise only_another_runs(run)
    if len(steps) < last:
        raise UserError(
            f"{run.path} has {counted(len(steps), 'checkpoint')}, {last} were asked for. "
            f"Use --last {len(steps)}, or train with a larger training.keep_checkpoints."
        )
    chosen = steps[-last:]
    for step in chosen:
        again = f"`tmt train --resume {run.quoted}` sets it aside and makes it again."
        newer = f"Move {shlex.quote(str(run.step(step)))} away, and average those that are whole."
        check_manifest(run.step(step), [WEIGHTS, SETTINGS], again if step == steps[-1] else newer)
    settings = run.step(chosen[-1]) / SETTINGS
    weights = average_weights([run.step(step) / WEIGHTS for step in chosen])

    def write(folder: Path) -> None:
        save_tensors(weights, folder / WEIGHTS)
        shutil.copyfile(settings, folder / SETTINGS)
        (folder / AVERAGED_STEPS).write_text(json.dumps(chosen) + "\n", encoding="utf-8")

    put_back(run.average)
    write_folder(run.average, write, "The checkpoints are as they were", "average again")
    return chosen
