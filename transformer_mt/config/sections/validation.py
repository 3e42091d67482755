"""The section `validation`: how often to look, at what, and when to stop."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.section import LARGEST, PositiveInt, Section

Metric = Literal["nll", "ppl", "bleu", "chrf"]


class ValidationConfig(Section):
    """How often to look, at what, and when to stop."""

    every_steps: PositiveInt | None = None
    every_epochs: PositiveInt | None = None
    num_translated: Annotated[int, Field(ge=0, le=LARGEST)] = Field(
        default=500, description="Pairs of the validation split that are really translated; 0: none."
    )
    metric: Metric = Field(default="bleu", description="What best and patience go by.")
    patience: PositiveInt | None = Field(
        default=None, description="Validations without a better one; null: never stop."
    )

    @property
    def needs_translations(self) -> bool:
        """Whether the metric compares translations, and does not go by the probabilities of the references."""
        return self.metric in ("bleu", "chrf")

    @model_validator(mode="after")
    def _check_when_and_what(self) -> Self:
        if self.every_steps is not None and self.every_epochs is not None:
            raise ValueError(
                "set every_steps or every_epochs, not both; to go by epochs where every_steps is inherited, "
                "set every_steps: null"
            )
        if self.needs_translations and self.num_translated == 0:
            raise ValueError(f"metric: {self.metric} needs translations, and num_translated is 0; use metric: nll")
        return self
