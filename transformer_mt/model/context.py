"""What the layers of a stack need beside their input, the same for each of them in one pass."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from transformer_mt.model.unpadded import BlockDiagonal


class Routing:
    """Where one pass sent its tokens, collected for the load-balancing loss. Owned by the caller.

    No dataclass: FSDP2 hands layers copies of dataclasses and lists with tensors in them, and this must stay one.
    """

    def __init__(self) -> None:
        self.losses: list[Tensor] = []


@dataclass(frozen=True)
class LayerContext:
    """For self-attention: `mask`, boolean (True = may attend) or a float added to the scores, broadcastable to (batch,
    num_heads, query_len, key_len), or that of unpadded tokens, None where every key may be seen; `is_causal`, where it
    hides what comes later and nothing else, for which fused kernels need none; `rotate`, applied to queries and keys.

    For experts: `real` (batch, length), False where there is padding, None where there is none; `routing`, where
    somebody collects what they did.
    """

    mask: Tensor | BlockDiagonal | None
    rotate: Callable[[Tensor], Tensor]
    real: Tensor | None = None
    routing: Routing | None = None
    is_causal: bool = False
