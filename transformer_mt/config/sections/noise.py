"""The section `data.noise`: what a model learns from text in one language, of which something is hidden."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.section import Section


@dataclass(frozen=True)
class Hiding:
    """An entry of `NOISES`: the paper's numbers, None where it has no such thing. `masks`: the fewest
    `tokenizer.masks`. `joint`: source and target have words in common. `in_place`: what is hidden is told at its own
    place, which is for an encoder alone; `mask_share` and `random_share` say what it becomes.
    """

    share: float | None
    mean_length: float | None
    permutes: bool | None
    masks: int
    joint: bool
    mask_share: float | None = None
    random_share: float | None = None
    in_place: bool = False


NOISES = {
    "infilling": Hiding(share=0.3, mean_length=3.0, permutes=True, masks=1, joint=True),  # BART, Lewis et al. 2020
    "spans": Hiding(share=0.15, mean_length=3.0, permutes=None, masks=2, joint=True),  # T5, Raffel et al. 2020
    "masked": Hiding(  # BERT, Devlin et al. 2019
        share=0.15, mean_length=None, permutes=None, masks=1, joint=True, mask_share=0.8, random_share=0.1,
        in_place=True,
    ),
    "causal": Hiding(share=None, mean_length=None, permutes=None, masks=0, joint=False),  # GPT-2, Radford et al. 2019
}  # fmt: skip


class NoiseConfig(Section):
    """What a model learns from the sources `{mono: FILE}`."""

    kind: Literal["infilling", "spans", "masked", "causal"]
    share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="Of the tokens of a line, hidden; null: 0.3 under infilling, 0.15 under spans and masked.",
    )
    mean_length: Annotated[float, Field(ge=1, le=10)] | None = Field(
        default=None, description="Of a hidden span, in tokens; null: 3."
    )
    permute_sentences: bool | None = Field(
        default=None, description="infilling: the sentences of a line change places; null: true."
    )
    mask_share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="masked: of the tokens that are hidden, those that become a mask; null: 0.8."
    )
    random_share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="masked: of them, those that become another word by chance; null: 0.1."
    )

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        hiding = self.hiding
        for key, of_paper in (
            ("share", hiding.share), ("mean_length", hiding.mean_length), ("permute_sentences", hiding.permutes),
            ("mask_share", hiding.mask_share), ("random_share", hiding.random_share),
        ):  # fmt: skip
            if of_paper is None and getattr(self, key) is not None:
                raise ValueError(f"{key} has no meaning under kind: {self.kind}; leave it out")
        if sum(self.replaced_shares) > 1:
            raise ValueError(
                "mask_share {} and random_share {} are more than all that is hidden; lower one of them".format(
                    *self.replaced_shares
                )
            )
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

    @property
    def replaced_shares(self) -> tuple[float, float]:
        """mask_share and random_share, or the paper's."""
        hiding = self.hiding
        mask, by_chance = (
            (of_paper or 0.0) if own is None else own
            for own, of_paper in ((self.mask_share, hiding.mask_share), (self.random_share, hiding.random_share))
        )
        return mask, by_chance
