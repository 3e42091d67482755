"""Learning rates as functions of the step, so that a resumed run needs no state for them. Steps count from 1."""

import math
from collections.abc import Callable

from transformer_mt.config.schema import TrainingConfig

Schedule = Callable[[int], float]


def noam(config: TrainingConfig, d_model: int) -> Schedule:
    """factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (Vaswani et al. 2017, equation 3)."""
    scale = config.factor * d_model**-0.5
    return lambda step: scale * min(step**-0.5, step * config.warmup_steps**-1.5)


def inverse_sqrt(config: TrainingConfig, d_model: int) -> Schedule:
    """Up in a line to `lr` at warmup_steps, then lr * sqrt(warmup_steps / step): noam with a stated peak."""
    peak, warmup = _peak(config), max(1, config.warmup_steps)
    return lambda step: peak * min(step / warmup, math.sqrt(warmup / step))


def cosine(config: TrainingConfig, d_model: int) -> Schedule:
    """Up in a line to `lr` at warmup_steps, then half a cosine down to 0 at max_steps."""
    peak, warmup, end = _peak(config), config.warmup_steps, config.max_steps or 0

    def rate(step: int) -> float:
        if step < warmup:
            return peak * step / warmup
        progress = min(1.0, (step - warmup) / (end - warmup))
        return peak * 0.5 * (1 + math.cos(math.pi * progress))

    return rate


def constant(config: TrainingConfig, d_model: int) -> Schedule:
    """Up in a line to `lr` at warmup_steps, then `lr`."""
    peak, warmup = _peak(config), max(1, config.warmup_steps)
    return lambda step: peak * min(1.0, step / warmup)


def _peak(config: TrainingConfig) -> float:
    assert config.lr is not None, "the config refuses this schedule without lr"
    return config.lr


SCHEDULES = {"noam": noam, "inverse_sqrt": inverse_sqrt, "cosine": cosine, "constant": constant}


def make_schedule(config: TrainingConfig, d_model: int) -> Schedule:
    """The schedule that the config names."""
    return SCHEDULES[config.schedule](config, d_model)
