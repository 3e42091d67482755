"""What all sections of a configuration share."""

from typing import Annotated

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
            raise ValueError(f"{key} is {value} and has no meaning {when}; leave it out, or at {default}")
