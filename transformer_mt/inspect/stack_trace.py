"""The parts of a trace that hold the vectors of a stack of layers, or of a recurrent network."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class ExpertsTrace:
    """The experts of each token, the one with the highest score first, and their weights; both (length,
    experts_per_token).
    """

    chosen: Tensor
    weights: Tensor


@dataclass(frozen=True)
class SublayerTrace:
    """One residual connection; vectors are (length, d_model).

    `norm_position` is `pre`: normed = norm(input), sum = input + added, output = sum; or `post`: sum = input + added,
    normed = norm(sum), output = normed. `weights` are those of an attention, (num_heads, length, keys); in `cross_attn`
    the keys are those of the memory.
    """

    name: str
    norm_position: str
    input: Tensor
    normed: Tensor
    added: Tensor
    sum: Tensor
    output: Tensor
    weights: Tensor | None
    experts: ExpertsTrace | None


@dataclass(frozen=True)
class StackTrace:
    """An encoder or a decoder; vectors are (length, d_model).

    `scaled` is embedding * sqrt(d_model), and of patches the embedding itself. `position` is None where nothing is
    added to the embedding. `output` comes after the final norm, if there is one; the output of an encoder is the
    memory.
    """

    name: str
    ids: list[int]
    tokens: list[str]
    embedding: Tensor
    scaled: Tensor
    position: Tensor | None
    sum: Tensor
    layers: list[list[SublayerTrace]]
    final_norm: bool
    output: Tensor


@dataclass(frozen=True)
class RecurrentTrace(StackTrace):
    """An encoder or a decoder of a recurrent network. It has no `layers`; `states` are its vectors of each position by
    name, (length, size) each, and `weights` those of its attention to the source, (1, length, src_len), None in an
    encoder.
    """

    states: dict[str, Tensor]
    weights: Tensor | None
