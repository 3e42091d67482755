"""The section `training.consistency`: two passes over each pair, and a loss where their predictions differ."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.section import PositiveInt, Probability, Section

CUT = 0.05  # of Gao et al. 2022


@dataclass(frozen=True)
class PairLoss:
    """An entry of `CONSISTENCIES`. With p the first pass and q the second, the loss is the sum of

        cross_entropy[0] * CE(p) + cross_entropy[1] * CE(q) + alpha * (divergence[0] * KL(p || q) + divergence[1] *
        KL(q || p)).

    `alpha` is the paper's, where the config names none. `cuts`: embeddings of the second pass are cut out.
    """

    cross_entropy: tuple[float, float]
    divergence: tuple[float, float]
    alpha: float
    cuts: bool

    @property
    def shares(self) -> tuple[float, float]:
        """Of each direction in the divergence that is reported: a mean of both, or the one that there is."""
        first, second = self.divergence
        return first / (first + second), second / (first + second)


# R-Drop is half of the paper's loss, so that its cross-entropy is as large as that of one pass.
CONSISTENCIES = {
    "simcut": PairLoss((1.0, 0.0), (1.0, 0.0), alpha=3.0, cuts=True),  # Gao et al. 2022
    "rdrop": PairLoss((0.5, 0.5), (0.25, 0.25), alpha=5.0, cuts=False),  # Wu et al. 2021, section 2
}


class ConsistencyConfig(Section):
    """Two passes over each pair, and a loss where their predictions differ."""

    kind: Literal["simcut", "rdrop"]
    alpha: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Weight of the divergence; null: 3 under simcut, 5 under rdrop."
    )
    cut: Probability | None = Field(
        default=None,
        description="simcut: the probability that a token's embedding is 0 in the second pass; null: 0.05.",
    )
    start_step: PositiveInt = Field(default=1, description="The first update with two passes; those before have one.")

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.cut is not None and not self.pair_loss.cuts:
            raise ValueError(f"cut has no meaning under kind: {self.kind}; leave it out")
        return self

    @property
    def pair_loss(self) -> PairLoss:
        """The entry of the kind."""
        return CONSISTENCIES[self.kind]

    @property
    def weight(self) -> float:
        """alpha, or the paper's."""
        return self.pair_loss.alpha if self.alpha is None else self.alpha

    @property
    def cut_probability(self) -> float:
        """That a token of the second pass is cut out; 0 where this kind cuts nothing."""
        return (CUT if self.cut is None else self.cut) if self.pair_loss.cuts else 0.0
