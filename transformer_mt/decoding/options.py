"""What a search is asked to do."""

from dataclasses import dataclass
from numbers import Integral, Real

from transformer_mt.config.schema import MAX_LENGTH_PENALTY, DecodingConfig
from transformer_mt.decoding.search import LengthNorm
from transformer_mt.decoding.splitting import TooLong
from transformer_mt.errors import UserError


@dataclass(frozen=True)
class SearchOptions:
    """The section `decoding` of a config, with what a caller changes for one translation.

    Not `scored`: greedy search may leave scores and log-probabilities out, nan, and is faster for it.
    """

    beam_size: int
    n_best: int
    norm: LengthNorm
    allow_unk: bool
    max_length_ratio: float
    max_length_extra: int
    batch_size: int
    too_long: TooLong = TooLong.BLANK
    scored: bool = True

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise UserError(f"{name} is {value!r}. Use a whole number, 1 or more.")
        if not isinstance(self.norm.alpha, Real) or not 0 <= self.norm.alpha <= MAX_LENGTH_PENALTY:
            raise UserError(f"length_penalty is {self.norm.alpha!r}. Use a number, 0 to {MAX_LENGTH_PENALTY:g}.")
        if self.n_best > self.beam_size:
            raise UserError(
                f"n_best is {self.n_best}, and beam_size {self.beam_size} finds no more than {self.beam_size}. "
                f"Use beam_size {self.n_best} or more."
            )

    def max_length(self, src_len: int, positions: int) -> int:
        """The largest length of a translation of `src_len` tokens, EOS counted on both sides."""
        return min(int(self.max_length_ratio * src_len) + self.max_length_extra, positions)


def search_options(
    config: DecodingConfig,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    n_best: int = 1,
    batch_size: int | None = None,
    too_long: TooLong = TooLong.BLANK,
    scored: bool = True,
) -> SearchOptions:
    """The config's options; what is not None replaces them. Raises UserError for values that make no sense.

    Where more hypotheses are asked for than the config's beam holds, and no beam size is given, the beam grows.
    """
    if beam_size is None:
        beam_size = max(config.beam_size, n_best)
    return SearchOptions(
        beam_size=beam_size,
        n_best=n_best,
        norm=LengthNorm(config.length_norm, config.length_penalty if length_penalty is None else length_penalty),
        allow_unk=config.allow_unk,
        max_length_ratio=config.max_length_ratio,
        max_length_extra=config.max_length_extra,
        batch_size=config.batch_size if batch_size is None else batch_size,
        too_long=too_long,
        scored=scored,
    )
