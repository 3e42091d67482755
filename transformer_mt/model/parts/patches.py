"""Patches of a picture to vectors (Dosovitskiy et al. 2021, section 3.1; of text, Salesky et al. 2021)."""

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.patches import PatchesConfig
from transformer_mt.config.special_ids import EOS_ID, SPECIAL_TOKENS

WHITE = 255  # the level of paper; black is the first level that is no special id
# Of the ink of printed lines, 0 where there is none and 1 at black. So about half of what a layer is given is below 0.
MEAN_INK = 0.15
SPREAD = 0.3


class PatchEmbedding(nn.Module):
    """A patch's pixels through one matrix; the patch of EOS, whose levels are its id, has a vector of its own."""

    scale = 1.0  # the projection has no reason to be multiplied by sqrt(d_model), unlike embeddings of words

    def __init__(self, patches: PatchesConfig, d_model: int) -> None:
        super().__init__()
        self.projection = nn.Linear(patches.pixels, d_model)
        self.eos = nn.Embedding(1, d_model)

    def forward(self, patches: Tensor) -> Tensor:
        """patches (batch, length, pixels), levels of 0 to 255 -> (batch, length, d_model)."""
        end = self.eos.weight[0]
        ink = (WHITE - patches.to(end.dtype)) / (WHITE - len(SPECIAL_TOKENS))
        return torch.where(patches[..., :1] == EOS_ID, end, self.projection((ink - MEAN_INK) / SPREAD))
