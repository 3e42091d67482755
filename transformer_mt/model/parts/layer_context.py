"""The arguments that all layers of a stack share in one pass: mask, rotation, padding, routing."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from transformer_mt.model.unpadded import BlockDiagonal


class Routing:
    """Collects where one pass sends its tokens, for the load-balancing loss. The caller owns it.

    It is no dataclass: FSDP2 gives layers copies of dataclasses and lists that hold tensors, and this must stay one.
    """

    def __init__(self) -> None:
        self.losses: list[Tensor] = []


@dataclass(frozen=True)
class LayerContext:
    """For self-attention: `mask`, boolean (True = may attend) or a float added to the scores, broadcastable to (batch,
    num_heads, query_len, key_len), or the mask of unpadded tokens; None where every key may be seen. `is_causal`: the
    mask hides later keys and nothing else, so that fused kernels need none. `rotate` is applied to queries and keys.

    For experts: `real` (batch, length), False at padding, None where there is none; `routing`, where somebody collects
    it.
    """

    mask: Tensor | BlockDiagonal | None
    rotate: Callable[[Tensor], Tensor]
    real: Tensor | None = None
    routing: Routing | None = None
    is_causal: bool = False
