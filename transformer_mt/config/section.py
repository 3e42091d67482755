"""What all sections of a configuration share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

LARGEST = 2**31 - 1  # of any number that counts something: what every library takes
PositiveInt = Annotated[int, Field(ge=1, le=LARGEST)]


class Section(BaseModel):
    """A frozen section that refuses keys it does not know, nan and infinity, and never converts text to a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
