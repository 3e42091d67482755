"""Attention of a decoder's state to the encoder's states: additive, general and dot."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from transformer_mt.model.parts.attention import Attention, masked


class SourceAttention(Attention, ABC):
    """A query (batch, query_len, d_model) weighs the memory's vectors (batch, src_len, d_memory) by their keys, which
    are made once a sentence. The mask (batch, 1, src_len) is True where there is a word.
    """

    def keys(self, memory: Tensor) -> Tensor:
        """What `scores` reads of the memory (batch, src_len, d_memory): (batch, src_len, d_key)."""
        return memory

    @abstractmethod
    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """-> (batch, query_len, src_len)."""

    def weights(self, query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """softmax of the scores over the source: (batch, query_len, src_len)."""
        return masked(self.scores(query, keys), mask).softmax(dim=-1)

    def weights_of(self, inputs: tuple) -> Tensor:
        query, keys, _, mask = inputs
        return self.weights(query, keys, mask)[:, None]  # of one head

    def forward(self, query: Tensor, keys: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """-> the contexts, sum over the source of weight * vector (batch, query_len, d_memory)."""
        weights = self.weights(query, keys, mask)
        return weights @ memory.to(weights.dtype)


class AdditiveAttention(SourceAttention):
    """v . tanh(W q + U h) (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, d_model: int, d_memory: int, bias: bool) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_memory, d_model, bias=bias)
        self.score_proj = nn.Linear(d_model, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.k_proj(memory)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.score_proj((self.q_proj(query)[:, :, None] + keys[:, None]).tanh()).squeeze(-1)


class DotAttention(SourceAttention):
    """q . h (Luong et al. 2015, section 3.1)."""

    def __init__(self, d_model: int, d_memory: int, bias: bool) -> None:
        super().__init__()
        assert d_model == d_memory, "a dot product needs vectors of one size"

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return query.to(keys.dtype) @ keys.transpose(1, 2)


class GeneralAttention(DotAttention):
    """q . W h (Luong et al. 2015, section 3.1). W has no bias: it would add the same to all scores of a query."""

    def __init__(self, d_model: int, d_memory: int, bias: bool) -> None:
        super().__init__(d_model, d_memory, bias)
        self.k_proj = nn.Linear(d_memory, d_model, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.k_proj(memory)
