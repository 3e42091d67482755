"""A decoder without a cache: the oracle of the one with a cache, and the baseline of its benchmark."""

import torch
from torch import Tensor

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.interface import TranslationModel


class PlainDecoder:
    """A `StepFunction` that sends source and whole prefix of every row through the model at each step."""

    def __init__(self, model: TranslationModel, src: Tensor) -> None:
        """src (sentences, src_len)."""
        self.model = model
        self.src = src  # of each row
        self.tgt_in = src.new_empty(len(src), 0)

    def step(self, tokens: Tensor) -> Tensor:
        """tokens (rows,), the newest of each row -> logits of the next (rows, tgt_vocab_size)."""
        self.tgt_in = torch.cat((self.tgt_in, tokens[:, None]), dim=1)
        longest = int((self.src != PAD_ID).sum(dim=1).max())
        return self.model.output(self.model.hidden_states(self.src[:, :longest], self.tgt_in)[:, -1])

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """Let new row i continue old row index[i]."""
        self.src, self.tgt_in = self.src[index], self.tgt_in[index]
