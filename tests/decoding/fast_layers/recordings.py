"""Searches over an arena, by steps that are recorded and repeated without a GPU.

There is no CUDA graph on a CPU. A `Recording` has its laws: it repeats operations on the memory of then, without the
Python between them; what is asked of the device while it records is an error; and what it recorded counts as not done.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, is_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from transformer_mt.decoding.fast_layers.cuda_graphs import GraphedDecoders, Step
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction
from transformer_mt.model.interface import TranslationModel

# Of the device, or of what is copied to it from memory that it cannot read by itself.
ASKS = {"_local_scalar_dense", "item", "nonzero", "masked_select", "equal", "is_nonzero", "lift_fresh"}


class Recording(TorchDispatchMode):
    """A step as the operations it came to."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self._before: dict[int, tuple[Tensor, Tensor]] = {}  # what was written on, and what it held
        with self:
            self.result = step()
        for written, held in reversed(self._before.values()):
            written.copy_(held)
        self.result.fill_(-1)  # a capture computes nothing

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(t.dtype == torch.bool for t in tree_leaves(args[1]) if is_tensor(t))
        if name in ASKS or by_mask:
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and id(value) not in self._before:
                self._before[id(value)] = value, value.clone()
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def __call__(self) -> Tensor:
        now: dict[int, Tensor] = {}
        for func, args, kwargs, before in self.calls:
            args, kwargs = tree_map_only(Tensor, lambda tensor: now.get(id(tensor), tensor), (args, kwargs))
            for old, new in zip(tree_leaves(before), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor):
                    now[id(old)] = new
        return self.result.copy_(now[id(self.result)])


class Recordings:
    """What `CudaGraphs` is on a GPU, with room for so many bytes."""

    make: Callable[[Step], Step] = Recording

    def __init__(self, room: int = 2**40) -> None:
        self.room = room
        self.num_forgotten = 0

    def __call__(self, step: Step) -> Step:
        return type(self).make(step)

    def forget(self) -> None:
        self.num_forgotten += 1

    def has_room(self, num_bytes: int) -> bool:
        return num_bytes <= self.room


def recordings_by(record: Callable[[Step], Step]) -> Callable[[], Recordings]:
    class Other(Recordings):
        make = staticmethod(record)

    return Other


def begun(
    decoders: GraphedDecoders, model: TranslationModel, src: Tensor, limits: list[int], beam: int
) -> StepFunction:
    """There is room, and nothing has failed."""
    decoder = decoders.begin(model, src, max(limits), beam)
    assert decoder is not None
    return decoder


# Sentences' lengths and largest lengths, batch by batch: smaller, larger than all before, of other sources, alone.
BATCHES = [
    ([8, 1, 5, 3, 8], [20, 3, 17, 22, 9]),
    ([2, 4, 4], [12, 22, 1]),
    ([17, 3, 2, 9, 9, 4, 1, 5, 16], [22, 4, 4, 13, 13, 22, 22, 3, 2]),
    ([8, 1, 5, 3, 8], [20, 3, 17, 22, 9]),
    ([6], [22]),
]


def assert_same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    for mine, its in zip(ours, theirs, strict=True):
        assert [hypothesis.tokens for hypothesis in mine] == [hypothesis.tokens for hypothesis in its]
        assert [h.log_prob for h in mine] == pytest.approx([h.log_prob for h in its], abs=1e-3, rel=1e-4)
