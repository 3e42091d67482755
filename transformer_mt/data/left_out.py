"""Warns of a split with many pairs too long for the model, or refuses it, and says how many positions would do."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.schema import RunConfig
from transformer_mt.errors import UserError

WORTH_A_WARNING = 0.05
MOST = 0.5  # unless data.allow_left_out
HELD = 99  # per cent of the pairs fit the length that is proposed


class LeftOut(NamedTuple):
    """`num` of `num_pairs` pairs are left out; a `model.max_len` of `enough` would hold 99 % of them all."""

    num: int
    num_pairs: int
    enough: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.num / max(1, self.num_pairs)


def positions_for_most(num_src: NDArray[np.integer], num_tgt: NDArray[np.integer]) -> int:
    """The positions that 99 % of the pairs need; 1 where there are none. The numbers of tokens are without EOS."""
    longest = np.maximum(num_src, num_tgt) + 1
    return int(np.percentile(longest, HELD, method="inverted_cdf")) if len(longest) else 1


def refuse_to_leave_out(name: str, left: LeftOut, config: RunConfig) -> None:
    """UserError where more than half of a split is left out and nobody asked for it."""
    if left.share > MOST and not config.data.allow_left_out:
        raise UserError(
            f"{left.num:,} of the {left.num_pairs:,} {name} pairs are longer than model.max_len "
            f"{config.model.max_len}. "
            f"model.max_len={left.enough} would hold 99 % of them; data.allow_left_out=true goes on with the others."
        )


def left_out_lines(left: LeftOut) -> list[str]:
    """A warning, where it is worth one."""
    if left.share <= WORTH_A_WARNING:
        return []
    return [
        f"  warning: {left.share:.0%} of these pairs are too long for model.max_len and left out; "
        f"model.max_len={left.enough} would hold 99 % of them"
    ]
