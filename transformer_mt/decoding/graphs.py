"""The steps of a search on a GPU as CUDA graphs: one launch for all kernels of a step, which are short and many.

A graph repeats what was launched once, on the same memory. So what a step reads and writes lies in an `Arena` that
outlives steps and batches, sizes are rounded up to powers of two, and what changes from step to step (the tokens, their
positions, the slots that they take) is written there before. A step of a size that came before is captured; the first
one of its size runs as it is, which also loads what its kernels need. Everything that a search itself does between two
steps stays outside.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_mt.model.cache import LANES, DecoderCache, LayerCache, keep_rows
from transformer_mt.model.interface import TranslationModel

# What computes a step, and what makes of it something that does the same again: to the same memory, without Python.
Step = Callable[[], Tensor]
Capture = Callable[[Step], Step]


class Sizes(NamedTuple):
    """Of an arena, or of the part of it that a step sees."""

    sentences: int
    rows: int  # of a sentence
    slots: int
    src_len: int


class ArenaLayer(LayerCache):
    """A layer's part of an arena; `slots` (rows,) are those that the step fills."""

    def __init__(self, memory_k: Tensor | None, memory_v: Tensor | None, k: Tensor, v: Tensor, slots: Tensor) -> None:
        super().__init__(memory_k, memory_v, k, v)
        self.slots = slots

    def write(self, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """As `LayerCache.write`; where to is read from memory, since a graph would keep the number for ever."""
        assert self.k is not None
        assert self.v is not None
        self.k.index_copy_(2, self.slots, k)
        self.v.index_copy_(2, self.slots, v)
        return self.k, self.v


@dataclass
class ArenaCache(DecoderCache):
    """The cache that a step sees: parts of an arena, of which it does not take more. A step run twice leaves what it
    leaves when it is run once.
    """

    slots: Tensor | None = None

    def feed(self, rows: int) -> tuple[Tensor, int]:
        """As `DecoderCache.feed`, of the slots that the arena says."""
        assert self.slots is not None
        own = torch.eye(rows, dtype=torch.bool, device=self.slots.device)
        self.visible.index_copy_(2, self.slots, own.expand(self.num_sentences, -1, -1))
        self.slot_at.index_copy_(1, self.slots, self.next_at.expand(-1, rows))
        return self.next_at, 0


class Arena:
    """Memory for the caches of one batch after another, as `DecoderCache` lays it out, and for what a step is told.

    Of a sentence that a batch has not, or no longer, there is what was there before: finite positions and tokens.
    """

    def __init__(self, like: DecoderCache, sizes: Sizes) -> None:
        """`like` is a batch's cache, whose heads and types are taken."""
        self.sizes = sizes
        device = like.visible.device

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        def heads(old: Tensor, length: int) -> Tensor:
            return old.new_zeros(sizes.sentences, old.size(1), length, old.size(3))

        assert like.layers
        self.memories: list[tuple[Tensor, Tensor] | None] = []
        self.keys: list[tuple[Tensor, Tensor]] = []
        for layer in like.layers:
            memory = layer.memory_k, layer.memory_v
            self.memories.append(
                None
                if memory[0] is None or memory[1] is None
                else (heads(memory[0], sizes.src_len), heads(memory[1], sizes.src_len))
            )
            pattern = layer.k if layer.k is not None else memory[0]
            assert pattern is not None
            self.keys.append((heads(pattern, sizes.slots), heads(pattern, sizes.slots)))
        self.memory_mask = (
            None if like.memory_mask is None else zeros(sizes.sentences, 1, 1, sizes.src_len, dtype=torch.bool)
        )
        self.visible = zeros(sizes.sentences, sizes.rows, sizes.slots, dtype=torch.bool)
        self.slot_at = zeros(sizes.sentences, sizes.slots, dtype=torch.long)
        self.at = zeros(sizes.sentences, 1, dtype=torch.long)
        self.tokens = zeros(sizes.sentences, sizes.rows, dtype=torch.long)
        self.slots = zeros(sizes.rows, dtype=torch.long)

    def tensors(self) -> list[Tensor]:
        """Everything, in a fixed order."""
        pairs = [pair for pair in (*self.memories, *self.keys) if pair is not None]
        mask = [] if self.memory_mask is None else [self.memory_mask]
        whole = [tensor for pair in pairs for tensor in pair]
        return [*whole, *mask, self.visible, self.slot_at, self.at, self.tokens, self.slots]

    def load(self, cache: DecoderCache) -> None:
        """Begin a batch with what is in its cache, which has fed nothing yet, one row a sentence."""
        n, filled = cache.num_sentences, cache.num_slots
        for layer, memory, pair in zip(cache.layers, self.memories, self.keys, strict=True):
            if memory is not None:
                assert layer.memory_k is not None
                assert layer.memory_v is not None
                for ours, theirs in zip(memory, (layer.memory_k, layer.memory_v), strict=True):
                    ours[:n].zero_()
                    ours[:n, :, : theirs.size(2)] = theirs
            for ours, theirs in zip(pair, (layer.k, layer.v), strict=True):
                ours[:n].zero_()  # unseen slots must be finite
                if theirs is not None:
                    ours[:n, :, :filled] = theirs[:, :, :filled]
        if self.memory_mask is not None:
            assert cache.memory_mask is not None
            self.memory_mask[:n] = False
            self.memory_mask[:n, :, :, : cache.memory_mask.size(3)] = cache.memory_mask
        self.visible[:n] = False
        self.visible[:n, :1, :filled] = cache.visible[:, :, :filled]
        self.slot_at[:n, :filled] = cache.slot_at[:, :filled]
        self.at[:n] = cache.next_at - 1  # `tell` goes on by one

    def tell(self, tokens: Tensor, start: int) -> None:
        """What the next step is to know: tokens (sentences, rows), which take the slots from `start` on."""
        n, rows = tokens.shape
        self.tokens[:n, :rows] = tokens
        self.at[:n] += 1
        torch.arange(start, start + rows, out=self.slots[:rows])

    def reorder(self, now: Sizes, index: Tensor, sentences: Tensor | None) -> None:
        """See `DecoderCache.reorder`; `now` is how much is in use."""
        visible = self.visible[: now.sentences, : now.rows, : now.slots]
        moved = visible.flatten(0, 1).index_select(0, index)
        moved = moved.unflatten(0, (now.sentences if sentences is None else len(sentences), -1))
        self.visible[: moved.size(0), : moved.size(1), : now.slots] = moved
        if sentences is None:
            return
        changed = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero().squeeze(1)
        for memory in self.memories:
            for tensor in memory or ():
                keep_rows(tensor[:, :, : now.src_len], sentences, changed)
        for pair in self.keys:
            for tensor in pair:
                keep_rows(tensor[:, :, : now.slots], sentences, changed)
        if self.memory_mask is not None:
            keep_rows(self.memory_mask, sentences, changed)
        keep_rows(self.slot_at, sentences, changed)
        keep_rows(self.at, sentences, changed)

    def part(self, sizes: Sizes) -> tuple[Tensor, ArenaCache]:
        """The tokens (sentences * rows,) and the cache that a step of these sizes sees."""
        n, slots = sizes.sentences, self.slots[: sizes.rows]
        layers: list[LayerCache] = []
        for memory, (k, v) in zip(self.memories, self.keys, strict=True):
            memory_k, memory_v = (None, None) if memory is None else (m[:n, :, : sizes.src_len] for m in memory)
            layers.append(ArenaLayer(memory_k, memory_v, k[:n, :, : sizes.slots], v[:n, :, : sizes.slots], slots))
        return self.tokens[:n, : sizes.rows].reshape(-1), ArenaCache(
            layers,
            None if self.memory_mask is None else self.memory_mask[:n, :, :, : sizes.src_len],
            self.visible[:n, : sizes.rows, : sizes.slots],
            self.slot_at[:n, : sizes.slots],
            self.at[:n],
            slots=slots,
        )


class GraphedDecoders:
    """Makes the step functions of batches, one after another, which share an arena and the graphs over it.

    A batch's step function is good until the next one is made. `capture` is `CudaGraphs`, or what a test has for it.
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.arena: Arena | None = None
        self.num_captured = 0
        self._steps: dict[Sizes, Step | None] = {}  # None: it ran once, and was not captured
        self._has_failed = False

    def __call__(self, model: TranslationModel, src: Tensor) -> "GraphedDecoder":
        """src (sentences, src_len), of the model that all batches have."""
        return GraphedDecoder(self, model, model.start(src))

    def make_room(self, like: DecoderCache, needed: Sizes) -> Arena:
        """The arena, made larger where it must be: then what was captured is dropped, and contents are kept."""
        old = self.arena
        if old is not None and all(have >= need for have, need in zip(old.sizes, needed, strict=True)):
            return old
        sizes = Sizes(*map(max, needed, old.sizes)) if old is not None else needed
        self._steps.clear()  # before the memory that they are of
        arena = self.arena = Arena(like, sizes)
        for new, before in zip(arena.tensors(), old.tensors() if old is not None else (), strict=old is not None):
            new[tuple(slice(size) for size in before.shape)] = before
        return arena

    def run(self, model: TranslationModel, arena: Arena, sizes: Sizes) -> Tensor:
        """A step over a part of the arena -> hidden states (sentences * rows, d_model), until the next step."""

        def step() -> Tensor:
            return model.next_hidden_states(*arena.part(sizes))

        if sizes not in self._steps or self._has_failed:
            self._steps[sizes] = None
            return step()
        captured = self._steps[sizes]
        if captured is None:
            try:
                captured = self._steps[sizes] = self.capture(step)
            except RuntimeError as error:
                self._has_failed = True
                reason = str(error).strip().partition("\n")[0]
                warnings.warn(f"searching without CUDA graphs, which is slower: {reason}", stacklevel=2)
                return step()
            self.num_captured += 1
        return captured()


class GraphedDecoder:
    """A model and a batch in an arena, as the step function that search asks for."""

    def __init__(self, owner: GraphedDecoders, model: TranslationModel, cache: DecoderCache) -> None:
        self.owner = owner
        self.model = model
        self.like = cache
        src_len = 0 if cache.memory_mask is None else power_of_two(cache.memory_mask.size(3))
        self.now = Sizes(cache.num_sentences, 1, cache.num_slots, src_len)  # in use, of the sources their room
        self.arena = owner.make_room(cache, self._rounded_up())
        self.arena.load(cache)

    def step(self, tokens: Tensor) -> Tensor:
        """As `StepFunction.step`."""
        rows, start = len(tokens) // self.now.sentences, self.now.slots
        self.now = self.now._replace(rows=rows, slots=start + rows)
        sizes = self._rounded_up()
        self.arena = self.owner.make_room(self.like, sizes)
        self.arena.tell(tokens.view(-1, rows), start)
        hidden = self.owner.run(self.model, self.arena, sizes)
        return self.model.output(hidden[: len(tokens)])

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """As `StepFunction.reorder`."""
        num_sentences = self.now.sentences if sentences is None else len(sentences)
        after = self.now._replace(sentences=num_sentences, rows=len(index) // num_sentences)
        self.arena = self.owner.make_room(self.like, self._rounded_up()._replace(rows=after.rows))
        self.arena.reorder(self.now, index, sentences)
        self.now = after

    def _rounded_up(self) -> Sizes:
        """Rows are few kinds already: 1, and the beam's."""
        now = self.now
        return now._replace(sentences=power_of_two(now.sentences, 1), slots=power_of_two(now.slots))


def power_of_two(size: int, smallest: int = LANES) -> int:
    """The smallest that is not less than either."""
    return max(smallest, 1 << max(0, size - 1).bit_length())


class CudaGraphs:
    """Captures steps. All share one pool of memory, since no two run at once, and nobody keeps what one returned."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step) -> Step:
        graph = torch.cuda.CUDAGraph()
        # Other threads may ask for memory meanwhile: that which makes the next batch of a training.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = step()

        def repeat() -> Tensor:
            graph.replay()
            return result

        return repeat
