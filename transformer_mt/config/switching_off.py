"""How a caller switches off, for one call, what a config says: `none`, for each key that is null by default."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_mt.config.sections.section import Section

NONE = "none"


def switched_off(section: "type[Section]", given: Mapping[str, Any]) -> dict[str, Any]:
    """What a caller gives for keys of a section, null where that is `none` and the key is null by default. For any
    other key `none` is a value like others, which the section refuses.
    """
    return {key: None if _is_none(value) and can_be_none(section, key) else value for key, value in given.items()}


def how_to_switch_off(section: "type[Section]", key: str) -> str:
    """The option that switches a key off; nothing where there is none."""
    if can_be_none(section, key):
        return f"{option_of(key)} {NONE}"
    return option_of(f"no_{key}") if section.model_fields[key].annotation is bool else ""


def in_config(section: "type[Section]", key: str, where: str = "decoding") -> str:
    """A key that has its value from the run's config, as a message calls it."""
    return f"{where}.{key} (in the run's config, {how_to_switch_off(section, key)} switches it off)"


def named_by(config: "Section", key: str, value: str, where: str = "decoding") -> str:
    """What a value in use is from, as a message calls it: the config, where that says the same, or else the option."""
    if getattr(config, key) == value:
        return in_config(type(config), key, where)
    return option_of(key)


def option_of(key: str) -> str:
    """The option of the command line that stands for a key."""
    return f"--{key.replace('_', '-')}"


def can_be_none(section: "type[Section]", key: str) -> bool:
    """Whether the key is one that is null by default."""
    return key in section.model_fields and section.model_fields[key].default is None


def _is_none(value: Any) -> bool:
    return isinstance(value, str) and value == NONE
