"""The section `data.noise`: what a model learns from text in one language, of which something is hidden."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.section import Section


@dataclass(frozen=True)
class Hiding:
    """An entry of `NOISES`: the paper's numbers, None where it has no such thing. `masks`: the fewest
    `tokenizer.masks`. `joint`: source and target have words in common.
    """

    share: float | None
    mean_length: float | None
    permutes: bool | None
    masks: int
    joint: bool


NOISES = {
    "infilling": Hiding(share=0.3, mean_length=3.0, permutes=True, masks=1, joint=True),  # BART, Lewis et al. 2020
    "spans": Hiding(share=0.15, mean_length=3.0, permutes=None, masks=2, joint=True),  # T5, Raffel et al. 2020
    "causal": Hiding(share=None, mean_length=None, permutes=None, masks=0, joint=False),  # GPT-2, Radford et al. 2019
}


class NoiseConfig(Section):
    """What a model learns from the sources `{mono: FILE}`."""

    kind: Literal["infilling", "spans", "causal"]
    share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="Of the tokens of a line, hidden; null: 0.3 under infilling, 0.15 under spans."
    )
    mean_length: Annotated[float, Field(ge=1, le=10)] | None = Field(
        default=None, description="Of a hidden span, in tokens; null: 3."
    )
    permute_sentences: bool | None = Field(
        default=None, description="infilling: the sentences of a line change places; null: true."
    )

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        hiding = self.hiding
        for key, of_paper in (
            ("share", hiding.share), ("mean_length", hiding.mean_length), ("permute_sentences", hiding.permutes),
        ):  # fmt: skip
            if of_paper is None and getattr(self, key) is not None:
                raise ValueError(f"{key} has no meaning under kind: {self.kind}; leave it out")
        return self

    @property
    def hiding(self) -> Hiding:
        """The entry of the kind."""
        return NOISES[self.kind]

    @property
    def hidden_share(self) -> float:
        """share, or the paper's; 0 where nothing is hidden."""
        return self.hiding.share or 0.0 if self.share is None else self.share

    @property
    def span_length(self) -> float:
        """mean_length, or the paper's; 1 where there are no spans."""
        return self.hiding.mean_length or 1.0 if self.mean_length is None else self.mean_length

    @property
    def permutes(self) -> bool:
        """permute_sentences, or the paper's."""
        return bool(self.hiding.permutes if self.permute_sentences is None else self.permute_sentences)
