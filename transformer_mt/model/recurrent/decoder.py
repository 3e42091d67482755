"""The decoders of Bahdanau et al. 2015 and Luong et al. 2015, for all positions at once and one at a time.

Both ways go through the same `advance`, so that they agree.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.cache import SearchCache
from transformer_mt.model.parts.dropout import Dropout
from transformer_mt.model.recurrent.attention import AdditiveAttention, DotAttention, GeneralAttention, SourceAttention
from transformer_mt.model.recurrent.cells import CELLS, States, Steps, all_steps
from transformer_mt.model.recurrent.encoder import WordEmbedder


@dataclass(frozen=True)
class Memory:
    """What a decoder reads of the source: the encoder's vectors (sentences, src_len, d_memory), their keys, and the
    mask (sentences, 1, src_len), True where there is a word.
    """

    vectors: Tensor
    keys: Tensor
    mask: Tensor

    def of(self, sentences: Tensor) -> "Memory":
        """The memory of these sentences."""
        return Memory(*(part.index_select(0, sentences) for part in (self.vectors, self.keys, self.mask)))


@dataclass
class RecurrentCache(SearchCache):
    """The states of each row, and what is fed to its next step; None where nothing is. All of the past is in them, so
    a step costs the same at any length. The rows of a sentence lie together.
    """

    memory: Memory
    states: States
    fed: Tensor | None
    length: int = 0

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        self.states = tuple(part.index_select(1, index) for part in self.states)
        self.fed = None if self.fed is None else self.fed.index_select(0, index)
        if sentences is not None:
            self.memory = self.memory.of(sentences)


class RecurrentDecoder(nn.Module, ABC):
    """`num_decoder_layers` layers of cells, and one attention. Subclasses say where the attention stands."""

    def __init__(
        self,
        config: ModelConfig,
        embedding: nn.Embedding,
        attention: type[SourceAttention],
        d_direction: int,
        d_fed: int,
    ) -> None:
        super().__init__()
        self.d_embedding, d_memory = embedding.embedding_dim, 2 * d_direction
        num_layers = config.num_decoder_layers
        self.cell = CELLS[config.recurrent.cell]
        self.embedder = WordEmbedder(embedding, config.dropout)
        self.bridge = nn.Linear(d_direction, self.cell.num_states * num_layers * config.d_model, config.bias)
        self.cross_attn = attention(config.d_model, d_memory, config.bias)
        self.rnn = self.cell.layers(
            self.d_embedding + d_fed, config.d_model, num_layers, bias=config.bias, batch_first=True,
            dropout=config.dropout if num_layers > 1 else 0.0,
        )  # fmt: skip
        self.readout = self.make_readout(config, d_memory)
        self.dropout = Dropout(config.dropout)

    @abstractmethod
    def make_readout(self, config: ModelConfig, d_memory: int) -> nn.Linear:
        """The product before the output projection."""

    @abstractmethod
    def advance(
        self, steps: Steps, from_word: Tensor, fed: Tensor | None, states: States, memory: Memory
    ) -> tuple[tuple[Tensor, ...], Tensor | None, States]:
        """One position of every row -> what `read` needs of it, (rows, …) each; what is fed to the next; the states."""

    @abstractmethod
    def read(self, words: Tensor, *kept: Tensor) -> Tensor:
        """words (rows, length, d_embedding), and of `advance` (rows, length, …) -> (rows, length, d_readout)."""

    def first_fed(self, rows: Tensor) -> Tensor | None:
        """What is fed to the first position; `rows` (rows, …) has its number and type."""
        return None

    def start(self, vectors: Tensor, last: Tensor, mask: Tensor) -> RecurrentCache:
        """The cache before the first token, of the encoder's results and the mask (sentences, 1, src_len). The states
        begin at tanh(W h) of the backward state h at the first word.
        """
        states = self.bridge(last).tanh().to(self.rnn.weight_hh_l0.dtype)
        states = states.unflatten(1, (self.cell.num_states, self.rnn.num_layers, -1)).permute(1, 2, 0, 3).contiguous()
        memory = Memory(vectors, self.cross_attn.keys(vectors), mask)
        return RecurrentCache(memory, tuple(states.unbind()), self.first_fed(states[0, 0]))

    def forward(self, tgt_in: Tensor, start: RecurrentCache, factors: Tensor | None) -> Tensor:
        """tgt_in (batch, tgt_len), factors of its embeddings or None -> hidden states (batch, tgt_len, d_readout)."""
        words = self.embedder(tgt_in, factors)
        return self.dropout(self.all_positions(words, start))

    def all_positions(self, words: Tensor, start: RecurrentCache) -> Tensor:
        """words (batch, length, d_embedding) -> (batch, length, d_readout): a loop over the positions."""
        steps, states, fed = self._steps(), start.states, start.fed
        every = []
        for from_word in steps.of_words(words).unbind(dim=1):
            kept, fed, states = self.advance(steps, from_word, fed, states, start.memory)
            every.append(kept)
        return self.read(words, *(torch.stack(parts, dim=1) for parts in zip(*every, strict=True)))

    def step(self, tokens: Tensor, cache: RecurrentCache) -> Tensor:
        """tokens (rows,), the newest of each row -> hidden states (rows, d_readout); the cache goes on by one."""
        words, steps = self.embedder(tokens[:, None]), self._steps()
        from_word = steps.of_words(words)[:, 0]
        kept, cache.fed, cache.states = self.advance(steps, from_word, cache.fed, cache.states, cache.memory)
        cache.length += 1
        return self.read(words, *(part[:, None] for part in kept))[:, 0]

    def attend(self, query: Tensor, memory: Memory) -> Tensor:
        """query (rows, d_model) -> contexts (rows, d_memory)."""
        queries = query.unflatten(0, (len(memory.mask), -1))  # (sentences, rows of a sentence, d_model)
        return self.cross_attn(queries, memory.keys, memory.vectors, memory.mask).flatten(0, 1)

    def _steps(self) -> Steps:
        return Steps(self.rnn, self.cell, self.d_embedding, self.rnn.dropout if self.training else 0.0)


class BahdanauDecoder(RecurrentDecoder):
    """The state before a step asks for the context that the step reads. A maxout layer reads the new state, the word
    and the context (Bahdanau et al. 2015, appendix A.2.2).
    """

    def __init__(
        self, config: ModelConfig, embedding: nn.Embedding, attention: type[SourceAttention], d_direction: int
    ) -> None:
        super().__init__(config, embedding, attention, d_direction, d_fed=2 * d_direction)

    def make_readout(self, config: ModelConfig, d_memory: int) -> nn.Linear:
        return nn.Linear(config.d_model + self.d_embedding + d_memory, 2 * readout_size(config), config.bias)

    def advance(
        self, steps: Steps, from_word: Tensor, fed: Tensor | None, states: States, memory: Memory
    ) -> tuple[tuple[Tensor, ...], Tensor | None, States]:
        context = self.attend(states[0][-1], memory)
        states = steps(from_word, context, states)
        return (states[0][-1], context), None, states

    def read(self, words: Tensor, *kept: Tensor) -> Tensor:
        top, context = kept
        pairs = self.readout(torch.cat((top, words, context.to(top.dtype)), dim=-1)).unflatten(-1, (-1, 2))
        return pairs.amax(dim=-1)


class LuongDecoder(RecurrentDecoder):
    """The new state asks for a context, and both make the attentional vector tanh(W [c; h]), from which the next word
    is chosen (Luong et al. 2015, equation 5). With input feeding the next step reads that vector too (section 3.3).
    """

    def __init__(
        self, config: ModelConfig, embedding: nn.Embedding, attention: type[SourceAttention], d_direction: int
    ) -> None:
        self.d_fed = readout_size(config) if config.recurrent.input_feeding else 0
        super().__init__(config, embedding, attention, d_direction, self.d_fed)

    def make_readout(self, config: ModelConfig, d_memory: int) -> nn.Linear:
        return nn.Linear(d_memory + config.d_model, readout_size(config), config.bias)

    def first_fed(self, rows: Tensor) -> Tensor | None:
        return rows.new_zeros(len(rows), self.d_fed) if self.d_fed else None

    def advance(
        self, steps: Steps, from_word: Tensor, fed: Tensor | None, states: States, memory: Memory
    ) -> tuple[tuple[Tensor, ...], Tensor | None, States]:
        states = steps(from_word, fed, states)
        vector = self._vectors(self.attend(states[0][-1], memory), states[0][-1])
        return (vector,), vector if self.d_fed else None, states

    def read(self, words: Tensor, *kept: Tensor) -> Tensor:
        return kept[0]

    def all_positions(self, words: Tensor, start: RecurrentCache) -> Tensor:
        if self.d_fed:
            return super().all_positions(words, start)
        # Nothing that is chosen goes back into the cells, so no position waits for another's attention.
        states = start.states[0] if isinstance(self.rnn, nn.GRU) else start.states
        tops, _ = all_steps(self.rnn, words, states)
        memory = start.memory
        return self._vectors(self.cross_attn(tops, memory.keys, memory.vectors, memory.mask), tops)

    def _vectors(self, context: Tensor, top: Tensor) -> Tensor:
        return self.readout(torch.cat((context.to(top.dtype), top), dim=-1)).tanh()


def readout_size(config: ModelConfig) -> int:
    """Of what the output projection is given."""
    return config.recurrent.d_readout or config.d_model


@dataclass(frozen=True)
class RnnAttention:
    """An entry of `RNN_ATTENTIONS`. `halves`: a direction of the encoder has half of d_model, so that the vectors of
    the memory are as large as the decoder's states, whose dot product is taken. `d_pair` in units of d_model is kept
    of each pair of positions for the backward pass.
    """

    decoder: type[BahdanauDecoder] | type[LuongDecoder]
    attention: type[SourceAttention]
    halves: bool
    d_pair: int

    def d_direction(self, config: ModelConfig) -> int:
        """The size of a direction of the encoder."""
        return config.d_model // 2 if self.halves else config.d_model


RNN_ATTENTIONS = {
    "bahdanau": RnnAttention(BahdanauDecoder, AdditiveAttention, halves=False, d_pair=1),
    "luong_general": RnnAttention(LuongDecoder, GeneralAttention, halves=True, d_pair=0),
    "luong_dot": RnnAttention(LuongDecoder, DotAttention, halves=True, d_pair=0),
}
