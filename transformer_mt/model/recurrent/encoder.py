"""The bidirectional encoder, by torch's own layers over packed sequences."""

import math

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.parts.dropout import Dropout
from transformer_mt.model.recurrent.cells import CELLS, all_steps


class WordEmbedder(nn.Module):
    """Token ids to vectors: embedding * sqrt(d_embedding), then dropout. No positions: a recurrence counts itself."""

    def __init__(self, embedding: nn.Embedding, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.scale = math.sqrt(embedding.embedding_dim)
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, factors: Tensor | None = None) -> Tensor:
        """ids and factors of their embeddings (batch, length) -> (batch, length, d_embedding)."""
        x = self.embedding(ids) * self.scale
        return self.dropout(x if factors is None else x * factors[..., None])


class RecurrentEncoder(nn.Module):
    """`num_encoder_layers` layers, each reading the source forwards and backwards (Bahdanau et al. 2015, section 3.2).

    A direction has `d_direction` numbers. A layer above the first reads both directions of the one below.
    """

    def __init__(self, config: ModelConfig, embedding: nn.Embedding, d_direction: int) -> None:
        super().__init__()
        self.embedder = WordEmbedder(embedding, config.dropout)
        num_layers = config.num_encoder_layers
        self.rnn = CELLS[config.recurrent.cell].layers(
            embedding.embedding_dim, d_direction, num_layers, bias=config.bias, batch_first=True, bidirectional=True,
            dropout=config.dropout if num_layers > 1 else 0.0,
        )  # fmt: skip

    def forward(self, src: Tensor, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """src (batch, src_len), padded on the right -> the states of both directions side by side (batch, src_len,
        2 * d_direction), zeros at padding; and the backward state at the first word (batch, d_direction).
        """
        lengths = (src != PAD_ID).sum(dim=1).cpu()
        packed = pack_padded_sequence(self.embedder(src, factors), lengths, batch_first=True, enforce_sorted=False)
        states, last = all_steps(self.rnn, packed)
        memory, _ = pad_packed_sequence(states, batch_first=True, total_length=src.size(1))
        return memory, (last if isinstance(last, Tensor) else last[0])[-1]
