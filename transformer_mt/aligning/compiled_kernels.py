"""The loops of `kernels.py`, compiled by numba."""

from transformer_mt.aligning import kernels
from transformer_mt.machine.numba_compile import compiled

_I, _L, _F = "int32[::1]", "int64[::1]", "float64[::1]"


def _signature(*types: str) -> str:
    return f"void({', '.join(types)})"


_OCCURRENCES = _L, _I, _I, _L, _L, _I  # word_starts, sentences, positions, src_starts, tgt_starts, tgt
_TABLE = _L, _I, _F  # row_starts, columns, values
_PRIOR = "float64", _F, _F  # tension, up, down

count_row_sizes = compiled(_signature(_L, _I, _L, _I, _I, _L))(kernels.count_row_sizes)
fill_rows = compiled(_signature(_L, _I, _L, _I, _I, _L, _I))(kernels.fill_rows)
add_likelihoods = compiled(_signature(*_OCCURRENCES, *_TABLE, *_PRIOR, _F, _F))(kernels.add_likelihoods)
count_expected = compiled(_signature(*_OCCURRENCES, *_TABLE, *_PRIOR, _F, _F, _F))(kernels.count_expected)
score_cells = compiled(_signature(_I, _I, _L, _I, _I, _L, *_TABLE, "float64", "float64", *_PRIOR, _F))(
    kernels.score_cells
)
choose_best = compiled(_signature(_L, _L, _F, _F, "float64", _I))(kernels.choose_best)
