"""A loss or a gradient that is not finite."""

from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.errors import UserError
from transformer_mt.training.memory.memory_parts import Part


class NotFiniteError(UserError):
    """Raised by an update before it changes any weight. Holds everything that a replay of the update needs.

    `what` is the loss or the gradient norm, and `value` its value. `num_tokens` are the update's target tokens, `parts`
    its parts in the order in which they were computed. `loss_scale` is the scale of fp16, else 1.
    """

    def __init__(
        self,
        what: str,
        value: float,
        step: int,
        place: str,
        split: TrainingSplit,
        parts: list[Part],
        num_tokens: int,
        loss_scale: float,
    ) -> None:
        self.step = step
        self.split = split
        self.parts = parts
        self.num_tokens = num_tokens
        self.loss_scale = loss_scale
        first = split.where(int(parts[0].rows[0]))
        self.reason = f"The {what} is {value} at step {step:,} ({place}; its first pair is {first})"
        super().__init__(f"{self.outcome} {ADVICE}")

    @property
    def outcome(self) -> str:
        """One sentence: what was not finite, where, and what becomes of the run."""
        return (
            f"{self.reason}, so the training stops; nothing was changed by this step and the checkpoints are as they "
            "were."
        )


ADVICE = "Lower the learning rate (training.factor or training.lr), or lengthen training.warmup_steps."
