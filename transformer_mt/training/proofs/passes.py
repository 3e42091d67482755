"""Two passes through a model that must agree, and the first module in which they do not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.data.batches.batching import Batch
from transformer_mt.inspect.hooks import hooked
from transformer_mt.machine.device import DTYPES, autocast
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.masks import is_real
from transformer_mt.training.debugging.replay import MEMORY_READERS, SOURCE_STACK, TABLE
from transformer_mt.training.proofs.subject import Subject

Way = Callable[[TranslationModel, Batch], Tensor]  # -> logits of all target tokens (num_tokens, vocab_size)


def as_trained(model: TranslationModel, batch: Batch) -> Tensor:
    """All positions at once, by the way that training takes, mostly without padding."""
    return model.train().output(model.real_hidden_states(batch.src, batch.tgt_in, batch.real))


def as_scored(model: TranslationModel, batch: Batch) -> Tensor:
    """All positions at once, by the way of validation and scoring."""
    return model.eval().output(model.real_hidden_states(batch.src, batch.tgt_in, batch.real))


def as_searched(model: TranslationModel, batch: Batch) -> Tensor:
    """One position after another, over a cache."""
    cache = model.eval().start(batch.src)
    steps = [model.decode_step(tokens, cache) for tokens in batch.tgt_in.unbind(dim=1)]
    return torch.stack(steps, dim=1).flatten(0, 1)[batch.real]


BOTH_WAYS = {"in training": as_trained, "in validation and scoring": as_scored}


@dataclass(frozen=True)
class Pass:
    """A pass and its places that are compared: `kept` (batch, tgt_len), True at target tokens; `order` names the
    sentences in their order. Of a stream of source and target, the target is compared.
    """

    way: Way
    batch: Batch
    kept: Tensor
    order: list[int]

    @classmethod
    def whole(cls, way: Way, batch: Batch) -> "Pass":
        """A pass of which every target token is compared."""
        return cls(way, batch, batch.tgt_in != PAD_ID, list(range(len(batch.src))))

    def rows(self, name: str, x: Tensor) -> Tensor | None:
        """What is compared of the output (batch, length, size) of the module of this name, or of one over tokens
        without padding, (1, length, size) or (length, size) -> (places, size). None where its places are not known.
        """
        src, tgt = is_real(self.batch.src), self.batch.tgt_in != PAD_ID
        of_src, of_tgt = (src, src), (tgt, self.kept)
        of_stream = torch.cat((src, tgt), dim=1), torch.cat((torch.zeros_like(src), self.kept), dim=1)
        is_source = name.startswith(SOURCE_STACK) or name.endswith(MEMORY_READERS)
        for real, kept in (of_src,) if is_source else (of_tgt, of_stream, of_src):
            if x.dim() == 3 and x.shape[:2] == real.shape:
                return torch.cat([x[row][kept[row]] for row in self.order])
            tokens = x[0] if x.dim() == 3 and len(x) == 1 else x
            ends = real.sum(dim=1).cumsum(dim=0).tolist()
            if tokens.dim() == 2 and 0 <= len(tokens) - ends[-1] < (1 if x.dim() == 2 else 64):
                firsts = [0, *ends[:-1]]
                return torch.cat([tokens[firsts[row] : ends[row]][kept[row][real[row]]] for row in self.order])
        return None


class Call(NamedTuple):
    """Of a module in a pass: what it was given, and what it returned."""

    given: Tensor | None
    result: Tensor


def first_difference(subject: Subject, one: Pass, other: Pass) -> str | None:
    """The module where two passes begin to differ by more than rounding; None where their logits agree."""
    for precision in subject.precisions:
        with torch.no_grad(), autocast(precision, subject.device):
            result, expected = (p.rows("output", p.way(subject.model, p.batch)) for p in (one, other))
            if _differ(result, expected, precision):
                return _begins(subject.model, one, other, precision)
    return None


def tolerance(precision: str) -> float:
    """The part of a vector's length by which rounding may change it: half of the digits."""
    return torch.finfo(DTYPES.get(precision, torch.float32)).eps ** 0.5


def _differ(one: Tensor | None, other: Tensor | None, precision: str) -> bool:
    """Whether any of the vectors (places, size) is another one; where places are not known, nobody can say."""
    if one is None or other is None or one.shape != other.shape:
        return False
    one, other = one.float(), other.float()
    limit = tolerance(precision) * one.norm(dim=-1)
    return not bool(((one - other).norm(dim=-1) <= limit).all())  # nan differs from everything


def _begins(model: TranslationModel, one: Pass, other: Pass, precision: str) -> str:
    """The module where they begin to differ: the first whose result differs, or where its input does too, the module
    around it that was given the same.
    """
    calls, others = (_calls(model, each) for each in (one, other))

    def rows(p: Pass, found: dict[str, list[Call]], name: str, part: int) -> Tensor | None:
        x = _joined([call[part] for call in found[name]])
        return None if x is None else p.rows(name, x)

    def differs(name: str, part: int) -> bool:
        return _differ(rows(one, calls, name, part), rows(other, others, name, part), precision)

    def is_known(name: str) -> bool:
        return name in calls and name in others

    for name in calls:
        if is_known(name) and not name.endswith(TABLE) and differs(name, 1):
            while is_known(name) and differs(name, 0):
                name = name.rpartition(".")[0]
            return name or "the model"
    return "the model"


def _calls(model: TranslationModel, one: Pass) -> dict[str, list[Call]]:
    """The calls of every module in the pass, in the order in which the modules returned first."""
    with _recorded(model) as calls:
        one.way(model, one.batch)
    return calls


@contextmanager
def _recorded(model: nn.Module) -> Iterator[dict[str, list[Call]]]:
    calls: dict[str, list[Call]] = {}

    def record(name: str, module: nn.Module, inputs: tuple, output: object) -> None:
        if isinstance(output, Tensor):
            given = inputs[0] if inputs and isinstance(inputs[0], Tensor) else None
            calls.setdefault(name, []).append(Call(given, output))

    with hooked([(name, module) for name, module in model.named_modules() if name], record):
        yield calls


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    """The tensors of several calls, one a position or a stretch of them, one after the other."""
    tensors = [x for x in parts if x is not None]
    if len(tensors) <= 1 or len(tensors) < len(parts):
        return tensors[0] if len(tensors) == len(parts) else None
    tensors = [x[:, None] if x.dim() == 2 else x for x in tensors]
    alike = {(x.dim(), x.size(0), x.size(-1)) for x in tensors}
    return torch.cat(tensors, dim=1) if len(alike) == 1 and tensors[0].dim() == 3 else None
