"""The settings of a search as one object: the section `decoding`, with the changes of a caller."""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from transformer_mt.config.messages import problems_of
from transformer_mt.config.schema import DecodingConfig, PositiveInt
from transformer_mt.decoding.long_lines import TooLong
from transformer_mt.errors import UserError


@dataclass(frozen=True)
class LengthNorm:
    """The divisor of a log-probability, for a hypothesis of `length` tokens, EOS counted."""

    kind: str = "gnmt"
    alpha: float = 0.0

    def __call__(self, length: int) -> float:
        """`gnmt`: ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14); `average`: length^alpha."""
        return LENGTH_NORMS[self.kind](length) ** self.alpha


LENGTH_NORMS = {
    "gnmt": lambda length: (5 + length) / 6,
    "average": lambda length: float(length),
}


class SearchOptions(DecodingConfig):
    """The keys of the section `decoding`, with a caller's changes for one translation, and what only a caller decides.

    Where `scored` is false, greedy search may leave scores and log-probabilities at nan, and is faster.
    """

    n_best: PositiveInt = 1
    too_long: TooLong = TooLong.BLANK
    scored: bool = True

    @property
    def norm(self) -> LengthNorm:
        """The divisor of log-probabilities."""
        return LengthNorm(self.length_norm, self.length_penalty)

    def largest_length(self, src_len: int, positions: int) -> int:
        """The largest length of a translation of `src_len` tokens, EOS counted on both sides."""
        asked = positions if self.max_length is None else self.max_length + 1
        return min(int(self.max_length_ratio * src_len) + self.max_length_extra, positions, asked)


def search_options(config: DecodingConfig, **changes: Any) -> SearchOptions:
    """The config's options with the changes that are not None, by the names of `SearchOptions`.

    Raises UserError for a name that is none, and for values that make no sense. Where more hypotheses are asked for
    than the config's beam holds, and no beam size is given, the beam grows.
    """
    given = {key: value for key, value in changes.items() if value is not None}
    plain = {key: value.item() if hasattr(value, "item") else value for key, value in given.items()}  # numpy's numbers
    try:
        options = SearchOptions.model_validate(config.model_dump() | plain)
    except ValidationError as error:
        said = "; ".join(problems_of(error, SearchOptions))
        raise UserError(said if said.endswith("?") else f"{said}.") from None
    if "beam_size" not in given:
        return options.model_copy(update={"beam_size": max(options.beam_size, options.n_best)})
    if options.n_best > options.beam_size:
        raise UserError(
            f"n_best is {options.n_best}, and beam_size {options.beam_size} finds no more than {options.beam_size}. "
            f"Use beam_size {options.n_best} or more."
        )
    return options
