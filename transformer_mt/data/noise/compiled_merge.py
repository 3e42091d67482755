"""The loops of `merge_kernels.py`, compiled by numba."""

from transformer_mt.data.noise import merge_kernels
from transformer_mt.machine.numba_compile import compiled

_B, _I, _L = "uint8[::1]", "int32[::1]", "int64[::1]"

spell = compiled(f"void({_I}, {_I}, {_B}, {_I}, {_B}, {_B}, {_I}, {_B})")(merge_kernels.spell)
merge = compiled(f"void({_I}, {_B}, {_L}, {_L}, int64, {_I}, {_I}, {_I}, {_I}, {_I}, {_I}, {_L})")(merge_kernels.merge)
