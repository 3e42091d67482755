"""The section `model.patches`: the pieces of a picture of the source that an encoder reads instead of words."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.section import Section


class PatchesConfig(Section):
    """Pieces of a picture of one line, each as high as the picture."""

    height: Annotated[int, Field(ge=8, le=64)] = Field(
        default=16, description="Pixels: that of the picture, and so of a line with its letters' tops and tails."
    )
    width: Annotated[int, Field(ge=2, le=64)] = 8
    step: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="Pixels from one patch to the next; less than width: they overlap; null: width."
    )

    @property
    def pixels(self) -> int:
        """Of a patch."""
        return self.height * self.width

    @property
    def stride(self) -> int:
        """step, or width."""
        return self.step or self.width

    @model_validator(mode="after")
    def _check_step(self) -> Self:
        if self.stride > self.width:
            raise ValueError(
                f"step is {self.step}, more than width {self.width}, so that columns of the picture would be in no "
                "patch; make it width or less"
            )
        return self
