"""CUDA graphs: work that was ordered once, kernel by kernel, is ordered again as one whole, on the same memory.

A process orders short kernels more slowly than a GPU computes them. A search repeats its steps so, and a training its
passes.
"""

import contextlib
import gc
import threading
from collections.abc import Callable, Generator
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

Step = Callable[[], Tensor]
SHARE_OF_FREE_MEMORY = 0.5  # what lives as long as its graphs may take so much of it


class CudaGraphs:
    """Captures steps on a device, as `torch.cuda.graph` does, with a stream and a pool of memory of its own. It is a
    `Capture` of `decoding.fast_layers.cuda_graphs`.

    The stream of `torch.cuda.graph` belongs to whichever device came first, and stays the current one after a failure.
    All graphs share the pool, since no two run at once and nobody keeps what one returned. `forget` gives the pool up
    together with its graphs: torch refuses a pool whose graphs are gone.
    """

    _one_at_a_time = threading.Lock()  # one capture at a time in the process
    _held: ClassVar[WeakKeyDictionary] = WeakKeyDictionary()  # bytes of each object's pool, which nobody else can have
    _failed: ClassVar[list[torch.cuda.CUDAGraph]] = []  # kept for good, since the allocator goes on asking them

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)
        with torch.cuda.stream(self._stream), torch.inference_mode(False), torch.enable_grad():
            # cuBLAS keeps memory for each stream of each thread, and a backward pass has a thread of its own; asked for
            # within a capture it would lie in the pool for ever. A search may ask for it, which wants no gradients.
            square = torch.ones(8, 8, device=device, requires_grad=True)
            (square @ square).sum().backward()
        self.forget()

    def forget(self) -> None:
        """See `Capture`."""
        self._pool = torch.cuda.graph_pool_handle()
        self._held[self] = 0

    def has_room(self, num_bytes: int) -> bool:
        """See `Capture`. The memory that torch keeps for later counts as free, but for that of graphs."""
        free, _ = torch.cuda.mem_get_info(self.device)
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return num_bytes <= SHARE_OF_FREE_MEMORY * (free + max(0, kept - sum(self._held.values())))

    def has_room_beside(self, share: float) -> bool:
        """Whether torch holds no more than this share of the device's memory."""
        return torch.cuda.memory_reserved(self.device) <= share * torch.cuda.mem_get_info(self.device)[1]

    def free_unused(self) -> None:
        """Give memory back that torch keeps for later."""
        torch.cuda.empty_cache()

    def random_state(self) -> Tensor:
        """Where the device's generator stands. A capture moves it, and draws nothing."""
        return torch.cuda.get_rng_state(self.device)

    def set_random_state(self, state: Tensor) -> None:
        """See `random_state`."""
        torch.cuda.set_rng_state(state, self.device)

    def __call__(self, step: Step) -> Step:
        """See `Capture`."""
        try:
            graph, result = self._captured(step)
        except RuntimeError:
            # torch takes its random numbers for captured until a capture ends well.
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
            graph, before = torch.cuda.CUDAGraph(), torch.cuda.memory_reserved(self.device)
            self._failed.append(graph)
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                # Other threads may ask for memory meanwhile.
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    result = step()
                except BaseException:
                    with contextlib.suppress(RuntimeError):  # the first error says what is wrong
                        graph.capture_end()
                        self._failed.pop().reset()  # so its memory is free again
                    raise
                graph.capture_end()
            self._failed.pop()
            self._held[self] += max(0, torch.cuda.memory_reserved(self.device) - before)
        return graph, result


@contextlib.contextmanager
def _no_collection() -> Generator[None]:
    """No garbage is collected inside: freeing memory of the GPU within a capture ends it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def power_of_two(size: int, smallest: int = 1) -> int:
    """The smallest power of two that is not less than size; at least `smallest`."""
    return max(smallest, 1 << max(0, size - 1).bit_length())
