"""The state of a training: all that a checkpoint holds beside weights and optimizer."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformer_mt.config.schema import RunConfig
from transformer_mt.errors import UserError
from transformer_mt.storage.checkpoint_files import STATE
from transformer_mt.storage.manifest import check_manifest
from transformer_mt.storage.run_folder import RunFolder


@dataclass
class TrainingState:
    """Everything that a resumed run needs to know. Random numbers are functions of (seed, step), so none is here.

    `epoch` and `micro_batch` say where the next micro-batch is in the data. `precision`, `compiled`, `device`,
    `num_threads`, `torch_version`, `numba` and `unpadded` say how the numbers so far were computed (see
    `computed_with`). Scores of translations before step `comparable_from` cannot be compared with later ones.
    """

    step: int = 0
    epoch: int = 0
    micro_batch: int = 0
    num_tokens: int = 0
    elapsed_seconds: float = 0.0
    last_validation_step: int = 0
    best_step: int | None = None
    best_metrics: dict[str, float] | None = None
    num_bad_validations: int = 0
    comparable_from: int = 0
    micro_batches_per_update: int = 1  # of all processes
    max_tokens: int = 0  # of a micro-batch; 0: still to be chosen
    precision: str = ""
    compiled: bool = False
    device: str = ""
    num_threads: int = 0
    torch_version: str = ""
    numba: bool = False
    unpadded: bool = False
    data: dict[str, dict[str, str | int]] = field(default_factory=dict)  # a split's fingerprint and number of pairs
    stream: dict[str, int | str] | None = None  # of a stream: the window of `micro_batch` (see `Stream.go_on_from`)
    loss_scale: dict[str, float] | None = None
    only_for_a_stop: bool = False  # an unstopped run has no checkpoint at this step
    memory_limit: int | None = None  # MemoryLimit.smallest_failed: larger micro-batches are computed in parts
    validation_precision: str = ""  # the precision that was found where decoding.precision is auto
    window: dict[str, float] = field(default_factory=dict)  # sums since the last line of metrics
    updates: dict[str, Any] = field(default_factory=dict)  # what is usual in them (see `note_update`)

    @property
    def num_epochs(self) -> int:
        """How many epochs were begun."""
        return self.epoch + (self.micro_batch > 0)

    def reason_to_stop(self, config: RunConfig) -> str | None:
        """Why the training is over, in words; None while it is not."""
        training, patience = config.training, config.validation.patience
        if training.max_steps is not None and self.step >= training.max_steps:
            return f"max_steps {training.max_steps:,} reached"
        if training.max_epochs is not None and self.epoch >= training.max_epochs:
            return f"max_epochs {training.max_epochs:,} reached"
        # Only after a step, so that there is something to save: the start takes time too.
        if training.max_minutes is not None and self.step and self.elapsed_seconds >= 60 * training.max_minutes:
            return f"max_minutes {training.max_minutes:g} reached"
        if patience is not None and self.num_bad_validations >= patience:
            return f"{config.validation.metric} has not improved in {patience} validations"
        return None

    def reason_of_the_end(self, config: RunConfig) -> str | None:
        """`reason_to_stop`, where the last validation is done too: a signal may have cut it short."""
        return self.reason_to_stop(config) if self.last_validation_step == self.step else None

    def validation_is_due(self, config: RunConfig) -> bool:
        """Whether the last step is to be validated: at regular steps or epochs, at the end of the training, and before
        the first step where all weights are those of another run, whose scores the later ones are compared with.
        """
        validation, begun_from = config.validation, config.training.init_from
        if self.step == 0 and begun_from is not None and begun_from.parts is None:
            return self.best_metrics is None
        if self.step in (0, self.last_validation_step):
            return False
        if validation.every_steps is not None:
            regular = self.step % validation.every_steps == 0
        else:
            regular = self.micro_batch == 0 and self.epoch % (validation.every_epochs or 1) == 0
        return regular or self.reason_to_stop(config) is not None

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "TrainingState":
        """What `write` wrote; UserError where it is missing or damaged, or another version of tmt wrote it."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            unknown = sorted(content.keys() - cls.__dataclass_fields__.keys())
        except (OSError, ValueError, AttributeError) as error:
            raise UserError(
                f"{path} is missing or damaged ({error}). Delete {path.parent} to go on from the checkpoint before it."
            ) from error
        if unknown:
            raise UserError(
                f"Another version of tmt wrote {path}: it holds {' and '.join(unknown)}, which this version does not "
                "know. Go on with that version, or train from the start under another name (name=NEW)."
            )
        return cls(**content)


def checked_state(run: RunFolder, step: int) -> TrainingState:
    """The state in this checkpoint; UserError where it is not what was written."""
    check_manifest(run.step(step), [STATE], f"`tmt train --resume {run.quoted}` sets it aside.")
    return TrainingState.read(run.step(step) / STATE)
