"""How many threads torch has."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """So many inside, or in the test that this stands above; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
