"""The sizes of a small plain model, and random ids of its vocabulary."""

import torch
from torch import Tensor

VOCAB = 60
PLAIN = {
    "d_model": 32, "d_ff": 48, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 3, "max_len": 24,
    "activation": "gelu",
}  # fmt: skip


def random_ids(*size: int, seed: int = 1, vocab_size: int = VOCAB) -> Tensor:
    """Of real tokens: none is padding, UNK, BOS or EOS."""
    return torch.randint(4, vocab_size, size, generator=torch.Generator().manual_seed(seed))
