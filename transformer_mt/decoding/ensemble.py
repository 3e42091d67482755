"""Several models with one vocabulary as one: each reads its own past, and their probabilities of the next token become
one distribution.

Every model has a cache of its own. The search sees one step function.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from transformer_mt.decoding.fast_layers.cuda_graphs import GraphedDecoders
from transformer_mt.decoding.model_decoder import ModelDecoder
from transformer_mt.decoding.search.greedy import StepFunction
from transformer_mt.model.cache import SearchCache
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.parts.attention import Attention
from transformer_mt.model.parts.layer_context import Routing
from transformer_mt.model.parts.word_dropout import WordFactors

Combine = Callable[[Sequence[Tensor]], Tensor]


def linear(logits: Sequence[Tensor]) -> Tensor:
    """log of the mean of the models' probabilities; of each model (rows, vocab_size) -> the same shape."""
    # Summed as logarithms, since a probability below 1e-45 would be 0 for good.
    total = reduce(torch.logaddexp, (one.float().log_softmax(dim=-1) for one in logits))
    return total - math.log(len(logits))


def log_linear(logits: Sequence[Tensor]) -> Tensor:
    """The mean of the models' log-probabilities, renormalised: log softmax of (1/n) sum log p_i."""
    # The mean of the logits differs from that of the log-probabilities by one number a row, which the softmax removes.
    return (sum(one.float() for one in logits[1:]) + logits[0].float()).div_(len(logits)).log_softmax(dim=-1)


# Both from --ensemble-mode of Sockeye (Hieber et al. 2017), which has linear as its default, as fairseq does. Marian
# and Eole add up log-probabilities, which ranks tokens as log_linear does.
MODES: dict[str, Combine] = {"linear": linear, "log_linear": log_linear}
DEFAULT_MODE = "linear"


class Ensemble(TranslationModel):
    """Models that agree on the vocabulary, as one that is fed whole translations. Its logits are log-probabilities.

    Its hidden states are those of all models side by side (…, sum of d_hidden). `config` is that of the first model
    with the smallest `max_len`. A search goes by `decoder_of` instead.
    """

    def __init__(self, members: Sequence[TranslationModel], mode: str = DEFAULT_MODE) -> None:
        max_len = min(member.config.max_len for member in members)
        super().__init__(members[0].config.model_copy(update={"max_len": max_len}))
        self._members = nn.ModuleList(members)
        self.mode = mode
        self.combine = MODES[mode]

    @property
    def members(self) -> list[TranslationModel]:
        """The models, in the order in which they were named."""
        return [member for member in self._members if isinstance(member, TranslationModel)]

    def output(self, hidden: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """hidden (…, sum of d_hidden) -> log-probabilities (…, tgt_vocab_size)."""
        parts = hidden.split([member.d_hidden for member in self.members], dim=-1)
        return self.combine([member.output(part) for member, part in zip(self.members, parts, strict=True)])

    def hidden_states(
        self, src: Tensor, tgt_in: Tensor, routing: Routing | None = None, factors: WordFactors | None = None
    ) -> Tensor:
        return torch.cat([member.hidden_states(src, tgt_in, routing, factors) for member in self.members], dim=-1)

    def start(self, src: Tensor) -> SearchCache:
        raise AssertionError("an ensemble has no cache of its own: see decoder_of")

    def next_hidden_states(self, tokens: Tensor, cache: SearchCache) -> Tensor:
        raise AssertionError("an ensemble has no cache of its own: see decoder_of")

    @property
    def source_attentions(self) -> list[Attention]:
        raise AssertionError("an ensemble has as many stacks as models")


class EnsembleDecoder:
    """The step functions of several models as one, whose logits are log-probabilities."""

    def __init__(self, decoders: Sequence[StepFunction], combine: Combine) -> None:
        self._decoders = decoders
        self._combine = combine

    def step(self, tokens: Tensor) -> Tensor:
        """As `StepFunction.step`."""
        return self._combine([decoder.step(tokens) for decoder in self._decoders])

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """As `StepFunction.reorder`."""
        for decoder in self._decoders:
            decoder.reorder(index, sentences)


@dataclass(frozen=True)
class EnsembleGraphs:
    """The graphs of each model of an ensemble; see `GraphedDecoders`."""

    graphs: Sequence[GraphedDecoders]

    @property
    def lock(self) -> threading.Lock:
        """See `GraphedDecoders`."""
        return self.graphs[0].lock

    def begin(self, model: TranslationModel, src: Tensor, max_length: int, rows: int) -> EnsembleDecoder | None:
        """As `GraphedDecoders.begin`, of an ensemble; None where one of its models can have no graphs."""
        assert isinstance(model, Ensemble)
        decoders = []
        for graphs, member in zip(self.graphs, model.members, strict=True):
            decoder = graphs.begin(member, src, max_length, rows)
            if decoder is None:
                return None
            decoders.append(decoder)
        return EnsembleDecoder(decoders, model.combine)


def decoder_of(model: TranslationModel, src: Tensor) -> StepFunction:
    """The step function of a model, or of an ensemble, and of a batch src (sentences, src_len)."""
    if isinstance(model, Ensemble):
        return EnsembleDecoder([ModelDecoder(member, src) for member in model.members], model.combine)
    return ModelDecoder(model, src)


def members_of(model: TranslationModel) -> list[TranslationModel]:
    """The models of an ensemble, or the model itself."""
    return model.members if isinstance(model, Ensemble) else [model]
