"""The average of a run's newest checkpoints, made and validated when its training ends (`training.average_last`)."""

from collections.abc import Callable

from torch import Tensor

from transformer_mt.config.schema import RunConfig
from transformer_mt.paths import exists
from transformer_mt.plurals import counted
from transformer_mt.storage.checkpoint_files import WEIGHTS, own_steps
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import read_tensors
from transformer_mt.training.averaging import average_checkpoints
from transformer_mt.training.monitoring.metrics_file import read_scores
from transformer_mt.training.monitoring.monitor import Monitor
from transformer_mt.training.resuming.checkpoints import remove_superfluous
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.updates import Updater
from transformer_mt.training.validation import Validator, is_better


def average_is_due(config: RunConfig, run: RunFolder, state: TrainingState) -> bool:
    """Whether the config wants an average of a training that ends at this state, and there is none, or no score of it.
    A kill may have come before either. One that `tmt average` has made since is left alone.
    """
    wants = config.training.average_last is not None
    return wants and not (exists(run.average) and state.step in read_scores(run.metrics, "average"))


def average_at_end(
    config: RunConfig,
    run: RunFolder,
    state: TrainingState,
    updater: Updater,
    validator: Validator,
    monitor: Monitor,
    between_batches: Callable[[], None],
) -> None:
    """Write `checkpoints/average`, validate it, and say whether it is better than the best checkpoint, and where there
    are fewer checkpoints than the config asks for, how many. All processes must call this.

    Raises StopRequestedError as `Validator.validate` does; the next start then makes the average again.
    """
    world, made = updater.world, list[tuple[list[int], dict[str, Tensor]]]()

    def make() -> list[int]:
        remove_superfluous(run, state.best_step, config.training.keep_checkpoints)  # a kill may have come before that
        wanted, there = config.training.average_last or 1, _num_newest(config, run, state)
        if there < wanted:
            kept = counted(there, "newest checkpoint")
            monitor.say(f"training.average_last is {wanted:,}, and the run has only its {kept}")
        steps = average_checkpoints(run, min(wanted, there))
        made.append((steps, read_tensors(run.average / WEIGHTS)))
        return steps

    steps = world.first(make, patient=True)
    weights = updater.sharing.handed_out(made[0][1] if made else {})
    with updater.whole_model({name: weight.to(updater.device) for name, weight in weights}) as model:
        metrics = validator.validate(model, between_batches).metrics
    monitor.average(state.step, steps, metrics, _verdict(config.validation.metric, metrics, state, run))


def _num_newest(config: RunConfig, run: RunFolder, state: TrainingState) -> int:
    """How many of the newest checkpoints there are. The best is none of them where the next one after it was deleted:
    it may be of long before them, and is far from what an average is to smooth.
    """
    steps, every = own_steps(run), config.training.checkpoint_every_steps
    is_apart = len(steps) > 1 and steps[0] == state.best_step and steps[1] > (steps[0] // every + 1) * every
    return len(steps) - is_apart


def _verdict(metric: str, metrics: dict[str, float], state: TrainingState, run: RunFolder) -> str:
    command, best = f"tmt translate --run {run.quoted}", f"step {state.best_step:,}"
    if state.best_metrics is None:  # the best by scores that can no longer be compared
        return f"{best}, the best so far, has no {metric} to compare it with ({command} uses that one)"
    if is_better(metric, metrics, state.best_metrics):
        return f"by {metric} it is better than {best}, the best ({command} --checkpoint average)"
    return f"by {metric} it is not better than {best}, the best ({command} uses that one)"
