"""The rows of a greedy search on a GPU, whose next tokens one kernel chooses."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.search.greedy_rows import Choice, GreedyRows

_BLOCK, _WARPS = 2048, 8  # logits that a program looks at together


class KernelGreedyRows(GreedyRows):
    """Where Triton works. Of equal logits it takes that of the first token."""

    def choose(self, logits: Tensor, choice: Choice, forbid: Callable[[Tensor], None] | None = None) -> Tensor:
        """As `GreedyRows.choose`, some thirty operations in one."""
        assert forbid is None, "a search with rules chooses outside of its steps"
        assert logits.stride(1) == 1
        from transformer_mt.decoding.fast_layers.gpu import step_kernels  # it imports Triton

        self.length += 1
        report = self.length.new_zeros(2)
        kernel: Any = step_kernels.choose
        with torch.cuda.device_of(logits):  # Triton goes by the thread's device
            kernel[(len(logits),)](
                logits, self.tokens, self.limits, self.totals, self.is_over, self.history, self.length, report,
                logits.size(1), logits.stride(0), self.tokens.stride(0), self.history.stride(0),
                allow_unk=choice.allow_unk, scored=choice.scored, block=_BLOCK,
                pad=PAD_ID, unk=UNK_ID, bos=BOS_ID, eos=EOS_ID, num_warps=_WARPS,
            )  # fmt: skip
        return report
