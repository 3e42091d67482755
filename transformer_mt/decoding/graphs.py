"""The steps of a search on a GPU as CUDA graphs: one launch for all kernels of a step, which are short and many.

A graph repeats what was launched once, on the same memory. So what a step reads and writes lies in an `Arena` that
outlives steps and batches, the sizes that a step sees are rounded up to powers of two, and what changes from step to
step (the tokens, their positions, the slots that they take) is written there before. A step of a size that came before
is captured; the first ones of its size run as they are, which also loads what their kernels need. Everything that a
search itself does between two steps stays outside.
"""

import contextlib
import gc
import threading
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from transformer_mt.model.cache import LANES, DecoderCache, LayerCache
from transformer_mt.model.interface import TranslationModel

Step = Callable[[], Tensor]
UNCAPTURED = 2  # steps of a size: a capture takes as long as a few, and many a size comes no more than that
SHARE_OF_FREE_MEMORY = 0.5  # that an arena may take


class Capture(Protocol):
    """What makes of a step something that does the same again: to the same memory, and without Python."""

    def __call__(self, step: Step) -> Step:
        """RuntimeError where the step cannot be captured."""
        ...

    def forget(self) -> None:
        """Nothing that was captured is repeated any more."""
        ...

    def has_room(self, num_bytes: int) -> bool:
        """Whether an arena may be so large."""
        ...


class Sizes(NamedTuple):
    """How large an arena is, or the part of it that a step sees."""

    sentences: int
    rows: int  # of a sentence
    slots: int
    src_len: int  # 0 without cross-attention


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
    heads (2 * layers, sentences, num_kv_heads, slots, head_dim) holds the keys and values of each layer, memory the
    same of the source (its length instead of slots).
    """

    def __init__(self, like: DecoderCache, sizes: Sizes) -> None:
        """`like` is a batch's cache, whose heads and types are taken."""
        self.sizes = sizes
        pattern = _pattern(like)
        shape = 2 * len(like.layers), sizes.sentences, pattern.size(1)
        self.heads = pattern.new_zeros(*shape, sizes.slots, pattern.size(3))
        self.memory = pattern.new_zeros(*shape, sizes.src_len, pattern.size(3))

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=pattern.device)

        self.memory_mask = zeros(sizes.sentences, 1, 1, sizes.src_len, dtype=torch.bool)
        self.visible = zeros(sizes.sentences, sizes.rows, sizes.slots, dtype=torch.bool)
        self.slot_at = zeros(sizes.sentences, sizes.slots)
        self.at = zeros(sizes.sentences, 1)
        self.tokens = zeros(sizes.sentences, sizes.rows)
        self.slots = zeros(sizes.rows)

    @staticmethod
    def num_bytes(like: DecoderCache, sizes: Sizes) -> int:
        """The bytes of an arena's keys and values."""
        pattern = _pattern(like)
        numbers = 2 * len(like.layers) * sizes.sentences * pattern.size(1) * pattern.size(3)
        return numbers * (sizes.slots + sizes.src_len) * pattern.element_size()

    def load(self, cache: DecoderCache) -> None:
        """Begin a batch with what is in its cache, which has fed nothing yet, one row a sentence."""
        n, filled = cache.num_sentences, cache.num_slots
        self.heads[:, :n].zero_()  # unseen slots must be finite
        self.memory[:, :n].zero_()
        self.memory_mask[:n] = False
        for place, layer in enumerate(cache.layers):
            for i, (heads, memory) in enumerate(((layer.k, layer.memory_k), (layer.v, layer.memory_v))):
                if heads is not None:
                    self.heads[2 * place + i, :n, :, :filled] = heads[:, :, :filled]
                if memory is not None:
                    self.memory[2 * place + i, :n, :, : memory.size(2)] = memory
        if cache.memory_mask is not None:
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
        to = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero().squeeze(1)
        if len(to):
            origin = sentences[to]
            for heads in (self.heads[:, :, :, : now.slots], self.memory[:, :, :, : now.src_len]):
                heads[:, to] = heads.index_select(1, origin)
            for tensor in (self.memory_mask, self.slot_at, self.at):
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
            self.memory_mask[:n, :, :, : sizes.src_len] if sizes.src_len else None,
            self.visible[:n, : sizes.rows, : sizes.slots],
            self.slot_at[:n, : sizes.slots],
            self.at[:n],
            slots=slots,
        )


def _pattern(cache: DecoderCache) -> Tensor:
    """Keys of some kind."""
    layer = cache.layers[0]
    keys = layer.memory_k if layer.memory_k is not None else layer.k
    assert keys is not None
    return keys


class GraphedDecoders:
    """Makes the step functions of batches, one after another, which share an arena and the graphs over it.

    A batch's step function is good until the next one is made, so that threads take turns by `lock`.
    """

    def __init__(self, make_capture: Callable[[], Capture]) -> None:
        """`make_capture` is `CudaGraphs` of a device, or what a test has for it."""
        self._make_capture = make_capture
        self.capture = make_capture()
        self.lock = threading.Lock()
        self.arena: Arena | None = None
        self.num_captured = 0
        self.has_failed = False
        self._times: dict[Sizes, int] = {}
        self._steps: dict[Sizes, Step] = {}

    def __reduce__(self) -> tuple[type["GraphedDecoders"], tuple[Callable[[], Capture]]]:
        return GraphedDecoders, (self._make_capture,)  # a copy has none of it yet

    def begin(self, model: TranslationModel, src: Tensor, max_length: int, rows: int) -> "GraphedDecoder | None":
        """The step function of a batch, src (sentences, src_len), of the model that all batches have.

        Of none of its sentences are there more than `rows` hypotheses or more than `max_length` steps. None where
        there is no room for that, or nothing can be captured.
        """
        if self.has_failed:
            self.arena = None
            self._steps.clear()
            return None
        # What then copies by an index asks the device whether it is one.
        if torch.are_deterministic_algorithms_enabled():
            return None
        cache = model.start(src)
        needed = Sizes(
            power_of_two(len(src), 1),
            rows,
            power_of_two(cache.num_slots + rows * max_length),
            0 if cache.memory_mask is None else power_of_two(cache.memory_mask.size(3)),
        )
        arena = self._arena_for(cache, needed)
        return None if arena is None else GraphedDecoder(self, model, arena, cache)

    def _arena_for(self, cache: DecoderCache, needed: Sizes) -> Arena | None:
        """The one that is there, or a larger one: then what was captured over it is dropped."""
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

    def run(self, model: TranslationModel, arena: Arena, sizes: Sizes) -> Tensor:
        """A step over a part of the arena -> hidden states (sentences * rows, d_model), until the next step."""

        def step() -> Tensor:
            return model.next_hidden_states(*arena.part(sizes))

        captured = self._steps.get(sizes)
        if captured is not None:
            return captured()
        self._times[sizes] = self._times.get(sizes, 0) + 1
        if self._times[sizes] <= UNCAPTURED or self.has_failed:
            return step()
        try:
            captured = self._steps[sizes] = self.capture(step)
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
        src_len = 0 if cache.memory_mask is None else cache.memory_mask.size(3)
        self.now = Sizes(cache.num_sentences, 1, cache.num_slots, src_len)  # in use
        arena.load(cache)

    def step(self, tokens: Tensor) -> Tensor:
        """As `StepFunction.step`."""
        rows, start = len(tokens) // self.now.sentences, self.now.slots
        self.now = self.now._replace(rows=rows, slots=start + rows)
        self.arena.tell(tokens.view(-1, rows), start)
        sizes = Sizes(
            power_of_two(self.now.sentences, 1),
            rows,
            power_of_two(self.now.slots),
            power_of_two(self.now.src_len) if self.now.src_len else 0,
        )
        hidden = self.owner.run(self.model, self.arena, sizes)
        return self.model.output(hidden[: len(tokens)])

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        """As `StepFunction.reorder`."""
        self.arena.reorder(self.now, index, sentences)
        num_sentences = self.now.sentences if sentences is None else len(sentences)
        self.now = self.now._replace(sentences=num_sentences, rows=len(index) // num_sentences)


def power_of_two(size: int, smallest: int = LANES) -> int:
    """The smallest that is not less than either."""
    return max(smallest, 1 << max(0, size - 1).bit_length())


class CudaGraphs:
    """Captures steps on a device: what `torch.cuda.graph` does, but for what that shares among all of a process.

    The stream on which is captured is this object's own: the one of `torch.cuda.graph` is of whatever device came
    first, and stays the current one after a failure. The pool of memory is shared by all graphs, since no two run at
    once and nobody keeps what one returned, and is given up with them: torch refuses a pool whose graphs are gone.
    """

    _one_at_a_time = threading.Lock()  # of the process
    _failed: ClassVar[list[torch.cuda.CUDAGraph]] = []  # kept for good: the allocator goes on asking them

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)
        with torch.cuda.stream(self._stream):
            # cuBLAS keeps memory for each stream; asked for within a capture it would lie in the pool for ever.
            square = torch.ones(8, 8, device=device)
            torch.mm(square, square)
        self.forget()

    def forget(self) -> None:
        """See `Capture`."""
        self._pool = torch.cuda.graph_pool_handle()

    def has_room(self, num_bytes: int) -> bool:
        """See `Capture`. What torch keeps for later is free too."""
        free, _ = torch.cuda.mem_get_info(self.device)
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return num_bytes <= SHARE_OF_FREE_MEMORY * (free + kept)

    def __call__(self, step: Step) -> Step:
        """See `Capture`."""
        try:
            graph, result = self._captured(step)
        except RuntimeError:
            # torch's random numbers still count as captured, until a capture ends well.
            self.forget()
            with contextlib.suppress(RuntimeError):
                self._failed.append(self._captured(lambda: torch.zeros(8, device=self.device))[0])
            raise

        def repeat() -> Tensor:
            graph.replay()
            return result

        return repeat

    def _captured(self, step: Step) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        with self._one_at_a_time, torch.cuda.device(self.device), _no_collection():
            graph = torch.cuda.CUDAGraph()
            self._failed.append(graph)
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                # Other threads may ask for memory meanwhile.
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    result = step()
                finally:
                    graph.capture_end()
            self._failed.pop()
        return graph, result


@contextlib.contextmanager
def _no_collection() -> Generator[None]:
    """Meanwhile nothing is collected: what is freed on a GPU within a capture ends it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
