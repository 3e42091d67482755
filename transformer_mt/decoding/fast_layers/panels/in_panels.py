"""Linear maps that are laid out in panels when a search first takes passes over them, and where it finds the passes."""

from collections.abc import Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from transformer_mt.decoding.fast_layers.find_kernels import kernels_for
from transformer_mt.decoding.fast_layers.packed_layers import Int8Linear
from transformer_mt.decoding.fast_layers.panels.layout import Map, Panels
from transformer_mt.machine.numba_modules import needs_numba


@needs_numba
def float_passes() -> ModuleType:
    """`float_passes.py`; None where numba does not work."""
    from transformer_mt.decoding.fast_layers.panels import float_passes

    return float_passes


@needs_numba
def int8_passes() -> ModuleType:
    """`int8_passes.py`; None where numba does not work."""
    from transformer_mt.decoding.fast_layers.panels import int8_passes

    return int8_passes


class InPanels:
    """The packed maps of a layer, all of one kind, and its norms."""

    def __init__(self, maps: Sequence[Map], norms: Sequence[nn.LayerNorm]) -> None:
        self._parts = maps, norms
        self.in_int8 = isinstance(maps[0], Int8Linear)
        self.num_products = sum(one.weight.numel() for one in maps)

    def passes(self) -> ModuleType | None:
        """The module with the passes of this precision; None where numba does not work."""
        return int8_passes() if self.in_int8 else float_passes()

    def passes_for(self, x: Tensor) -> ModuleType | None:
        """`passes`, in a search that takes them and for float32."""
        return None if kernels_for(x) is None else self.passes()

    @cached_property
    def panels(self) -> Panels:
        """The maps and norms as the passes read them."""
        passes = self.passes()
        assert passes is not None
        return Panels.of(*self._parts, passes.COLUMNS)

    def lay_out(self) -> None:
        """Make `panels` now, before processes are copies of this one."""
        _ = self.panels

    @property
    def weights(self) -> Sequence[Any]:
        """What a pass is given of `panels`."""
        return (self.panels.numbers, self.panels.integers) if self.in_int8 else (self.panels.numbers,)
