"""The steps of a search on a GPU as CUDA graphs: one launch for all kernels of a step, which are short and many.

A graph repeats the same launches on the same memory. So a step reads and writes an `Arena`, which outlives steps and
batches. The sizes that a step sees are rounded up to powers of two. Its tokens, their positions and their slots change
from step to step, and are written into the arena before each. The first steps of a size run uncaptured, which also
loads their kernels; a later one is captured. What greedy search without rules does between two steps is part of the
graph; what other searches do stays outside.
"""

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from transformer_mt.decoding.fast_layers.gpu.greedy_choice import KernelGreedyRows
from transformer_mt.decoding.search.greedy_rows import Choice, GreedyRows
from transformer_mt.machine.cuda_graphs import Step, power_of_two
from transformer_mt.model.cache import LANES, DecoderCache, LayerCache
from transformer_mt.model.gpu.triton_works import triton_works
from transformer_mt.model.interface import TranslationModel

UNCAPTURED = 2  # steps of a size: a capture takes as long as a few steps, and many sizes come no more often


class Capture(Protocol):
    """Makes a repeatable step out of a step: it does the same work on the same memory, without Python."""

    def __call__(self, step: Step) -> Step:
        """Nothing is computed yet: a step that chooses tokens is one further each time. Raises RuntimeError where the
        step cannot be captured.
        """
        ...

    def forget(self) -> None:
        """The caller repeats no captured step any more."""
        ...

    def has_room(self, num_bytes: int) -> bool:
        """Whether an arena of this size fits."""
        ...


class Sizes(NamedTuple):
    """The size of an arena, or of the part of it that a step sees."""

    sentences: int
    rows: int  # of a sentence
    slots: int
    src_len: int  # 0 without cross-attention


Kind = tuple[Sizes, Choice | None]  # of a captured step: see `GraphedDecoders.run`


class ArenaLayer(LayerCache):
    """A layer's part of an arena; `slots` (rows,) are those that the step fills."""

    def __init__(self, memory_k: Tensor | None, memory_v: Tensor | None, k: Tensor, v: Tensor, slots: Tensor) -> None:
        super().__init__(memory_k, memory_v, k, v)
        self.slots = slots

    def write(self, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """As `LayerCache.write`. The place is read from memory, since a graph would keep a number for ever."""
        assert self.k is not None
        assert self.v is not None
        self.k.index_copy_(2, self.slots, k)
        self.v.index_copy_(2, self.slots, v)
        return self.k, self.v


@dataclass
class ArenaCache(DecoderCache):
    """The cache that a step sees, made of parts of an arena. It never grows."""

    slots: Tensor | None = None

    def feed(self, rows: int) -> tuple[Tensor, int]:
        """As `DecoderCache.feed`, with the slots that the arena names."""
        assert self.slots is not None
        if rows == 1:  # in one kernel
            self.visible.index_fill_(2, self.slots, True)
        else:
            own = torch.eye(rows, dtype=torch.bool, device=self.slots.device)
            self.visible.index_copy_(2, self.slots, own.expand(self.num_sentences, -1, -1))
        self.slot_at.index_copy_(1, self.slots, self.next_at.expand(-1, rows))
        return self.next_at, 0


class Arena:
    """The memory of the caches of one batch after another, and of each step's tokens.

    The layout is that of `DecoderCache`. heads (2 * layers, sentences, num_kv_heads, slots, head_dim) holds the keys
    and values of each layer; memory holds those of the source, with its length instead of slots. A place without a
    sentence keeps its earlier numbers, which are finite.
    """

    def __init__(self, like: DecoderCache, sizes: Sizes) -> None:
        """`like` is the cache of a batch: the arena takes its heads and types."""
        self.sizes = sizes
        pattern = _pattern(like)
        shape = 2 * len(like.layers), sizes.sentences, pattern.size(1)
        self.heads = pattern.new_zeros(*shape, sizes.slots, pattern.size(3))
        self.memory = pattern.new_zeros(*shape, sizes.src_len, pattern.size(3))

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=pattern.device)

        self.memory_bias = zeros(sizes.sentences, 1, 1, sizes.src_len, dtype=torch.float32)
        self.visible = zeros(sizes.sentences, sizes.rows, sizes.slots, dtype=torch.bool)
        self.slot_at = zeros(sizes.sentences, sizes.slots)
        self.at = zeros(sizes.sentences, 1)
        self.tokens = zeros(sizes.sentences, sizes.rows)
        self.slots = zeros(sizes.rows)
        kind = KernelGreedyRows if triton_works(pattern.device) else GreedyRows
        greedy = kind.begin(zeros(sizes.sentences), sizes.slots, scored=True)
        self.greedy = replace(greedy, tokens=self.tokens[:, 0])  # where the next step reads them

    @staticmethod
    def num_bytes(like: DecoderCache, sizes: Sizes) -> int:
        """The bytes of an arena's keys and values."""
        pattern = _pattern(like)
        numbers = 2 * len(like.layers) * sizes.sentences * pattern.size(1) * pattern.size(3)
        return numbers * (sizes.slots + sizes.src_len) * pattern.element_size()

    def load(self, cache: DecoderCache) -> None:
        """Begin a batch: copy its cache, which has fed nothing yet and has one row a sentence."""
        n, filled = cache.num_sentences, cache.num_slots
        self.heads[:, :n].zero_()  # slots that nobody sees must be finite
        self.memory[:, :n].zero_()
        self.memory_bias[:n] = -torch.inf
        for place, layer in enumerate(cache.layers):
            for i, (heads, memory) in enumerate(((layer.k, layer.memory_k), (layer.v, layer.memory_v))):
                if heads is not None:
                    self.heads[2 * place + i, :n, :, :filled] = heads[:, :, :filled]
                if memory is not None:
                    self.memory[2 * place + i, :n, :, : memory.size(2)] = memory
        if cache.memory_bias is not None:
            self.memory_bias[:n, :, :, : cache.memory_bias.size(3)] = cache.memory_bias
        self.visible[:n] = False
        self.visible[:n, :1, :filled] = cache.visible[:, :, :filled]
        self.slot_at[:n, :filled] = cache.slot_at[:, :filled]
        self.at.zero_()  # what fills up a size has a position, too
        self.at[:n] = cache.next_at - 1  # `tell` goes on by one

    def tell(self, tokens: Tensor, start: int) -> None:
        """Write down for the next step its tokens (sentences, rows), which take the slots from `start` on."""
        n, rows = tokens.shape
        self.tokens[:n, :rows] = tokens
        self.at[:n] += 1
        torch.arange(start, start + rows, out=self.slots[:rows])

    def go_on(self, num_sentences: int) -> None:
        """As `tell`, where a greedy search chose the tokens; `choosing` says with which slot it begins. Rows that have
        ended stand still: what fills up a size would go beyond the positions.
        """
        self.at[:num_sentences].add_(~self.greedy.is_over[:num_sentences, None])
        self.slots[:1].add_(1)

    def reorder(self, now: Sizes, index: Tensor, sentences: Tensor | None) -> None:
        """See `DecoderCache.reorder`; `now` is the part in use."""
        visible = self.visible[: now.sentences, : now.rows, : now.slots]
        moved = visible.flatten(0, 1).index_select(0, index)
        moved = moved.unflatten(0, (now.sentences if sentences is None else len(sentences), -1))
        self.visible[: moved.size(0), : moved.size(1), : now.slots] = moved
        if sentences is None:
            return
        to = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero().squeeze(1)
        if len(to):
            origin = sentences[to]
            for heads in (self.heads[:, :, :, : now.slots], self.memory[:, :, :, : now.src_len]):
                heads[:, to] = heads.index_select(1, origin)
            for tensor in (self.memory_bias, self.slot_at, self.at):
                tensor[to] = tensor.index_select(0, origin)

    def part(self, sizes: Sizes) -> tuple[Tensor, ArenaCache]:
        """The tokens (sentences * rows,) and the cache that a step of these sizes sees."""
        n, slots = sizes.sentences, self.slots[: sizes.rows]
        heads = self.heads[:, :n, :, : sizes.slots].unflatten(0, (-1, 2))
        memory = self.memory[:, :n, :, : sizes.src_len].unflatten(0, (-1, 2))
        layers: list[LayerCache] = []
        for place, (k, v) in enumerate(heads):
            memory_k, memory_v = memory[place] if sizes.src_len else (None, None)
            layers.append(ArenaLayer(memory_k, memory_v, k, v, slots))
        return self.tokens[:n, : sizes.rows].reshape(-1), ArenaCache(
            layers,
            self.memory_bias[:n, :, :, : sizes.src_len] if sizes.src_len else None,
            self.visible[:n, : sizes.rows, : sizes.slots],
            self.slot_at[:n, : sizes.slots],
            self.at[:n],
            slots=slots,
        )


def _pattern(cache: DecoderCache) -> Tensor:
    """Keys of the first layer, whose shape and type all others have."""
    layer = cache.layers[0]
    keys = layer.memory_k if layer.memory_k is not None else layer.k
    assert keys is not None
    return keys


class GraphedDecoders:
    """Makes the step functions of one batch after another. They share an arena and the graphs over it.

    The next step function makes the one before it useless, so threads take turns by `lock`.
    """

    def __init__(self, make_capture: Callable[[], Capture]) -> None:
        """`make_capture` makes the `CudaGraphs` of a device, or a test's stand-in."""
        self._make_capture = make_capture
        self.capture = make_capture()
        self.lock = threading.Lock()
        self.arena: Arena | None = None
        self.num_captured = 0
        self.has_failed = False
        self._times: dict[Kind, int] = {}
        self._steps: dict[Kind, Step] = {}

    def __reduce__(self) -> tuple[type["GraphedDecoders"], tuple[Callable[[], Capture]]]:
        return GraphedDecoders, (self._make_capture,)  # a copy begins without arena and graphs

    def begin(self, model: TranslationModel, src: Tensor, max_length: int, rows: int) -> "GraphedDecoder | None":
        """The step function of the batch src (sentences, src_len). All batches have the same model.

        A sentence has at most `rows` hypotheses, and at most `max_length` steps. Returns None where the memory has no
        room for that, and where nothing can be captured.
        """
        if self.has_failed:
            self.arena = None
            self._steps.clear()
            return None
        # Copies by an index then check it on the device, which a capture does not allow.
        if torch.are_deterministic_algorithms_enabled():
            return None
        if not model.goes_in_slots:
            return None
        cache = model.start(src)
        assert isinstance(cache, DecoderCache)
        needed = Sizes(
            power_of_two(len(src)),
            rows,
            power_of_two(cache.num_slots + rows * max_length, LANES),
            0 if cache.memory_bias is None else power_of_two(cache.memory_bias.size(3), LANES),
        )
        arena = self._arena_for(cache, needed)
        return None if arena is None else GraphedDecoder(self, model, arena, cache)

    def _arena_for(self, cache: DecoderCache, needed: Sizes) -> Arena | None:
        """The arena that is there, or a larger one, which has no captured steps yet."""
        if self.arena is not None:
            if all(have >= need for have, need in zip(self.arena.sizes, needed, strict=True)):
                return self.arena
            wanted = Sizes(*map(max, self.arena.sizes, needed))
            self.arena = None
            self._steps.clear()
            self.capture.forget()
        else:
            wanted = needed
        sizes = next((s for s in (wanted, needed) if self.capture.has_room(Arena.num_bytes(cache, s))), None)
        if sizes is not None:
            self.arena = Arena(cache, sizes)
        return self.arena

    def run(self, model: TranslationModel, arena: Arena, sizes: Sizes, choice: Choice | None = None) -> Tensor:
        """A step over a part of the arena -> hidden states (sentences * rows, d_model), or with a `choice` of the next
        tokens what `GreedyRows.choose` returns; valid until the next step.
        """

        def step() -> Tensor:
            if choice is None:
                return model.next_hidden_states(*arena.part(sizes))
            arena.go_on(sizes.sentences)
            logits = model.output(model.next_hidden_states(*arena.part(sizes)))
            return arena.greedy.first(sizes.sentences).choose(logits, choice)

        kind = sizes, choice
        captured = self._steps.get(kind)
        if captured is not None:
            return captured()
        self._times[kind] = self._times.get(kind, 0) + 1
        if self._times[kind] <= UNCAPTURED or self.has_failed:
            return step()
        try:
            captured = self._steps[kind] = self.capture(step)
        except RuntimeError as error:
            self.has_failed = True
            reason = str(error).strip().partition("\n")[0]
            warnings.warn(f"searching without CUDA graphs, which is slower: {reason}", stacklevel=2)
            return step()
        self.num_captured += 1
        return captured()


class GraphedDecoder:
    """A model and a batch in an arena, as the step function that search asks for."""

    def __init__(self, owner: GraphedDecoders, model: TranslationModel, arena: Arena, cache: DecoderCache) -> None:
        self.owner = owner
        self.model = model
        self.arena = arena
        src_len = 0 if cache.memory_bias is None else cache.memory_bias.size(3)
        self.now = Sizes(cache.num_sentences, 1, cache.num_slots, src_len)  # the part in use
        arena.load(cache)

    def step(self, tokens: Tensor) -> Tensor:
        """As `StepFunction.step`."""
        rows, start = len(tokens) // self.now.sentences, self.now.slots
        self.now = self.now._replace(rows=rows, slots=start + rows)
        self.arena.tell(tokens.view(-1, rows), start)
        hidden = self.owner.run(self.model, self.arena, self._rounded())
        return self.model.output(hidden[: len(tokens)])

    def choosing(self, rows: GreedyRows, choice: Choice) -> Callable[[], Tensor]:
        """As `ChoosesItself.choosing`: the choice is captured with the step."""
        rows.move_to(self.arena.greedy)
        self.arena.slots[0] = self.now.slots - 1  # `Arena.go_on` goes on by one

        def step() -> Tensor:
            self.now = self.now._replace(slots=self.now.slots + 1)
            return self.owner.run(self.model, self.arena, self._rounded(), choice)

        return step

    def _rounded(self) -> Sizes:
        """The part in use, in sizes that come again."""
        return Sizes(
            power_of_two(self.now.sentences),
            self.now.rows,
            power_of_two(self.now.slots, LANES),
            power_of_two(self.now.src_len, LANES) if self.now.src_len else 0,
        )

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """As `StepFunction.reorder`."""
        self.arena.reorder(self.now, index, sentences)
        num_sentences = self.now.sentences if sentences is None else len(sentences)
        self.now = self.now._replace(sentences=num_sentences, rows=len(index) // num_sentences)
