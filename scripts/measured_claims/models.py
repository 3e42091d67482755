"""Untrained models of small sizes, and batches of random words, for claims about what a network computes."""

from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.recurrent.rnn import Rnn
from transformer_mt.model.transformer import Transformer

VOCAB_SIZE = 1000
FIRST_WORD = 4  # ids below are special


def transformer(d_model: int = 64, layers: int = 1, max_len: int = 1024, **model: Any) -> Transformer:
    """Without dropout, 4 heads unless told otherwise; the same weights for the same arguments."""
    values: dict[str, Any] = {
        "d_model": d_model, "d_ff": 4 * d_model, "num_heads": 4, "num_encoder_layers": layers,
        "num_decoder_layers": layers, "dropout": 0.0, "max_len": max_len, **model,
    }  # fmt: skip
    torch.manual_seed(1)
    return Transformer(ModelConfig(**values), VOCAB_SIZE, VOCAB_SIZE).eval()


def recurrent(d_model: int = 64, cell: str = "gru", max_len: int = 1024) -> Rnn:
    """The network of Bahdanau et al. 2015 with one layer a side, without dropout."""
    values: dict[str, Any] = {
        "architecture": "rnn", "d_model": d_model, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0,
        "max_len": max_len, "rnn": {"cell": cell},
    }  # fmt: skip
    torch.manual_seed(1)
    return Rnn(ModelConfig(**values), VOCAB_SIZE, VOCAB_SIZE).eval()


def words(*shape: int) -> Tensor:
    """Ids of random words; the same for the same shape."""
    return torch.randint(FIRST_WORD, VOCAB_SIZE, shape, generator=torch.Generator().manual_seed(1))


def encoded(model: Transformer, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The memory of ids (batch, length), and the embeddings with positions that it was computed from, each (batch,
    length, d_model).
    """
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        kept.append(result)

    hook = model.encoder.embedder.register_forward_hook(keep)
    memory, _ = model.encode(ids)
    hook.remove()
    return memory, kept[0]
