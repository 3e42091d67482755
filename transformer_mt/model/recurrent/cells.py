"""Recurrent cells a step at a time, over the weights of `torch.nn.GRU` and `torch.nn.LSTM`.

torch's layers take all positions of a sequence at once, and so need all their input before. Where a step's input
depends on the step before, it is made here. What of the products does not is made before the loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from transformer_mt.model.parts.attention import lowered
from transformer_mt.model.parts.dropout import dropout

# (num_layers, rows, d_model) each: the hidden states h, and under LSTM the cell states c.
States = tuple[Tensor, ...]
Layers = nn.GRU | nn.LSTM
_Given = TypeVar("_Given", bound=Tensor | PackedSequence)


def gru_step(given: Tensor, past: Tensor, state: States) -> States:
    """r, z = sigmoid(W x + U h), n = tanh(W x + r * (U h)), h' = n + z * (h - n) (Cho et al. 2014, with the reset gate
    behind the product, as `torch.nn.GRU` and cuDNN have it).

    given and past (rows, 3 * d_model) are the products of x and h with their biases, in the order r, z, n; the state
    is (rows, d_model) -> the new state.
    """
    (h,) = state
    size = h.size(-1)
    r, z = (given[:, : 2 * size] + past[:, : 2 * size]).sigmoid().chunk(2, dim=-1)
    new = (given[:, 2 * size :] + r * past[:, 2 * size :]).tanh()
    return (new + z * (h - new),)


def lstm_step(given: Tensor, past: Tensor, state: States) -> States:
    """i, f, o = sigmoid(W x + U h), g = tanh(W x + U h), c' = f * c + i * g, h' = o * tanh(c') (Hochreiter and
    Schmidhuber 1997, with the forget gate of Gers et al. 2000); as in `gru_step`, in the order i, f, g, o.
    """
    _, c = state
    i, f, g, o = (given + past).chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


@dataclass(frozen=True)
class Cell:
    """An entry of `CELLS`: torch's layers of such cells, the number of states of each, and one step."""

    layers: type[nn.GRU] | type[nn.LSTM]
    num_states: int
    step: Callable[[Tensor, Tensor, States], States]


CELLS = {"gru": Cell(nn.GRU, 1, gru_step), "lstm": Cell(nn.LSTM, 2, lstm_step)}


def all_steps(layers: Layers, given: _Given, states: Tensor | States | None = None) -> tuple[_Given, Tensor | States]:
    """torch's layers over all positions of `given`, in single precision where this processor has no other for them.

    `states` and the results are those of the layers.
    """
    lowers = given.data.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    if not lowers or _has_kernel(type(layers), torch.get_autocast_dtype("cpu")):
        return layers(given, states)
    single = given._replace(data=given.data.float()) if isinstance(given, PackedSequence) else given.float()
    with torch.autocast("cpu", enabled=False):
        return layers(single, states)


@cache
def _has_kernel(layers: type[Layers], dtype: torch.dtype) -> bool:
    """Whether this processor computes such layers in this precision: oneDNN's LSTM wants AVX-512 for bfloat16."""
    try:
        with torch.random.fork_rng(devices=[]), torch.autocast("cpu", dtype), torch.enable_grad():
            layers(2, 2, batch_first=True)(torch.zeros(1, 1, 2))[0].sum().backward()
    except RuntimeError:
        return False
    return True


class Steps:
    """The layers of a decoder, a position at a time. Made once a pass: the weights are sliced and cast here.

    The first layer's input is [word; fed]. Its product with the words of all positions is `of_words`.
    """

    def __init__(self, layers: Layers, cell: Cell, d_embedding: int, dropped: float) -> None:
        self.cell = cell
        self.dropped = dropped  # between layers
        of_input, of_past = (_by_layer(layers, name) for name in ("weight_ih", "weight_hh"))
        self.input_bias, self.past_bias = (
            _by_layer(layers, name) if layers.bias else [None] * layers.num_layers for name in ("bias_ih", "bias_hh")
        )
        self.of_word = lowered(of_input[0][:, :d_embedding])
        self.of_below = [lowered(of_input[0][:, d_embedding:]), *map(lowered, of_input[1:])]
        self.of_past = list(map(lowered, of_past))

    def of_words(self, words: Tensor) -> Tensor:
        """(…, d_embedding) -> (…, num_gates * d_model), to be given to the steps."""
        return F.linear(words, self.of_word, self.input_bias[0])

    def __call__(self, from_word: Tensor, fed: Tensor | None, states: States) -> States:
        """from_word (rows, num_gates * d_model) of `of_words`, fed (rows, d_fed) -> the next states."""
        given = from_word if fed is None else from_word + F.linear(fed, self.of_below[0])
        found: list[States] = []
        for layer, state in enumerate(zip(*(part.unbind() for part in states), strict=True)):
            if layer:
                below = dropout(found[-1][0], self.dropped)
                given = F.linear(below, self.of_below[layer], self.input_bias[layer])
            past = F.linear(state[0], self.of_past[layer], self.past_bias[layer])
            found.append(self.cell.step(given, past, state))
        return tuple(torch.stack(parts) for parts in zip(*found, strict=True))


def _by_layer(layers: Layers, name: str) -> list[Tensor]:
    """The parameter of this name in each layer."""
    return [layers.get_parameter(f"{name}_l{layer}") for layer in range(layers.num_layers)]
