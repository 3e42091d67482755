"""What all sections of a configuration share."""

from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field

SPLITS = ("train", "validation", "test")  # keys of `data`
LARGEST = 2**31 - 1  # of any number that counts something: what every library takes
PositiveInt = Annotated[int, Field(ge=1, le=LARGEST)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


class Section(BaseModel):
    """A frozen section that refuses keys it does not know, nan and infinity, and never converts text to a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def refuse_unless_default(section: Section, keys: tuple[str, ...], when: str) -> None:
    """What has no effect is not set; at its default it may be written, as in the folder of a run, or inherited."""
    for key in keys:
        value, default = getattr(section, key), type(section).model_fields[key].default
        if value != default:
            raise ValueError(
                f"{key} is {as_typed(value)} and has no meaning {when}; leave it out, or at {as_typed(default)}"
            )


def as_typed(value: object) -> str:
    """A value as a person writes it in YAML; of a section what is not at its default."""
    plain = value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, Section) else value
    text = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=10**6, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
