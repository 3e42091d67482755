"""Learning rates as functions of the step, so that a resumed run needs no state for them. Steps count from 1."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

Rate = Callable[[int], float]


@dataclass(frozen=True)
class Schedule:
    """An entry of `SCHEDULES`. `rate` takes d_model and then the `keys` of `training`, in this order. The config asks
    for these keys and refuses those of other schedules. A resumed run cannot change them silently. `needs_warmup` says
    that warmup_steps may not be 0.
    """

    rate: Callable[..., Rate]
    keys: tuple[str, ...]
    needs_warmup: bool = False

    @property
    def needs_end(self) -> bool:
        """Whether the rate depends on max_steps."""
        return "max_steps" in self.keys


def noam(d_model: int, factor: float, warmup_steps: int) -> Rate:
    """factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (Vaswani et al. 2017, equation 3)."""
    scale = factor * d_model**-0.5
    return lambda step: scale * min(step**-0.5, step * warmup_steps**-1.5)


def inverse_sqrt(d_model: int, lr: float, warmup_steps: int) -> Rate:
    """A line up to `lr` at warmup_steps, then lr * sqrt(warmup_steps / step): noam with a stated peak."""
    warmup = max(1, warmup_steps)
    return lambda step: lr * min(step / warmup, math.sqrt(warmup / step))


def cosine(d_model: int, lr: float, warmup_steps: int, max_steps: int) -> Rate:
    """A line up to `lr` at warmup_steps, then half a cosine down to 0 at max_steps."""

    def rate(step: int) -> float:
        if step < warmup_steps:
            return lr * step / warmup_steps
        progress = min(1.0, (step - warmup_steps) / (max_steps - warmup_steps))
        return lr * 0.5 * (1 + math.cos(math.pi * progress))

    return rate


def constant(d_model: int, lr: float, warmup_steps: int) -> Rate:
    """A line up to `lr` at warmup_steps, then `lr`."""
    warmup = max(1, warmup_steps)
    return lambda step: lr * min(1.0, step / warmup)


def linear(d_model: int, lr: float, warmup_steps: int, max_steps: int) -> Rate:
    """A line up to `lr` at warmup_steps, then a line down to 0 at max_steps."""

    def rate(step: int) -> float:
        if step < warmup_steps:
            return lr * step / warmup_steps
        return lr * max(0.0, (max_steps - step) / (max_steps - warmup_steps))

    return rate


def wsd(d_model: int, lr: float, warmup_steps: int, max_steps: int, decay_steps: int | None) -> Rate:
    """Warm-up, stable, decay (Hu et al. 2024, section 4): a line up to `lr` at warmup_steps, then `lr`, and in the last
    decay_steps a line down to 0 at max_steps. decay_steps None: a tenth of max_steps.
    """
    warmup, decay = max(1, warmup_steps), length_of_decay(max_steps, decay_steps)
    return lambda step: lr * max(0.0, min(1.0, step / warmup, (max_steps - step) / decay))


def length_of_decay(max_steps: int, decay_steps: int | None) -> int:
    """The decay of wsd in steps, where the config names it and where it does not."""
    return decay_steps or math.ceil(max_steps / 10)


ScheduleName = Literal["noam", "inverse_sqrt", "cosine", "constant", "linear", "wsd"]
SCHEDULES = {
    "noam": Schedule(noam, ("factor", "warmup_steps"), needs_warmup=True),
    "inverse_sqrt": Schedule(inverse_sqrt, ("lr", "warmup_steps")),
    "cosine": Schedule(cosine, ("lr", "warmup_steps", "max_steps")),
    "constant": Schedule(constant, ("lr", "warmup_steps")),
    "linear": Schedule(linear, ("lr", "warmup_steps", "max_steps")),
    "wsd": Schedule(wsd, ("lr", "warmup_steps", "max_steps", "decay_steps")),
}


def make_schedule(name: str, config: BaseModel, d_model: int) -> Rate:
    """The rate of this schedule; `config` is the section `training`."""
    schedule = SCHEDULES[name]
    return schedule.rate(d_model, *(getattr(config, key) for key in schedule.keys))
