"""Which settings differ between runs."""

from collections.abc import Sequence
from typing import Any

from transformer_mt.config.schema import RunConfig
from transformer_mt.training.resuming.resume_rules import flat_settings

NOT_TOLD = ("name",)  # which differs by its nature


def differing_settings(configs: Sequence[RunConfig]) -> dict[str, list[str]]:
    """By the full name of a setting that differs: its value in each config, as text."""
    each = [flat_settings(config) for config in configs]
    names = [name for name in dict.fromkeys(name for one in each for name in one) if name not in NOT_TOLD]
    values = {name: [as_text(one.get(name)) for one in each] for name in names}
    return {name: some for name, some in values.items() if len(set(some)) > 1}


def as_text(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, list):
        return "; ".join(map(as_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {as_text(one)}" for key, one in value.items() if one is not None)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "–"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
