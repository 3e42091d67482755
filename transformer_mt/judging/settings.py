"""Which settings differ between runs."""

from collections.abc import Sequence
from typing import Any

from transformer_mt.config.schema import RunConfig

NOT_TOLD = ("name",)  # which differs by its nature


def flat_settings(config: RunConfig) -> dict[str, Any]:
    """The settings by their full names, such as `model.d_model`. A list is one setting."""
    found: dict[str, Any] = {}

    def walk(prefix: str, values: dict[str, Any]) -> None:
        for key, value in values.items():
            if isinstance(value, dict):
                walk(f"{prefix}{key}.", value)
            else:
                found[prefix + key] = value

    walk("", config.model_dump(mode="json"))
    return found


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
