"""The precision of a search, and why: what a CPU multiplies fastest is measured, on the layers that it will use."""

import time

import torch

from transformer_mt.decoding.packed import find_packing
from transformer_mt.errors import UserError
from transformer_mt.machine.device import AS_ASKED, DTYPES, Choice, choose_precision
from transformer_mt.machine.numba_modules import has_numba

ROWS = 64
ON_A_CPU = ("fp32", "bf16", "int8")  # what `auto` tries there
WORTH_IT = (
    1.3  # fewer bits change some translations, so they must be this much faster than fp32 for `auto` to take them
)


def choose_search_precision(wanted: str, device: torch.device, d_model: int) -> Choice:
    """`fp32`, `bf16`, `fp16`, on a CPU `int8`; `auto`: on a CPU the fastest, elsewhere as `choose_precision` has it.

    Raises UserError for what is none of these, and for int8 on another device.
    """
    if wanted not in ("auto", "fp32", "int8", *DTYPES):
        raise UserError(f"{wanted!r} is not a precision. Use auto, fp32, bf16, fp16 or int8.")
    if wanted == "int8":
        if device.type != "cpu":
            raise UserError(f"int8 is for a CPU, and the device is {device}. Use bf16, or --device cpu.")
        return Choice(wanted, AS_ASKED if has_numba() else "which is faster with numba (pip install numba)")
    if wanted != "auto" or device.type != "cpu":
        return choose_precision(wanted, device, d_model)
    times = {precision: _seconds(precision, d_model) for precision in ON_A_CPU}
    fastest = min(times, key=lambda precision: times[precision])
    ratio = times["fp32"] / times[fastest]
    if ratio < WORTH_IT:
        return Choice("fp32", "nothing is much faster on this CPU")
    return Choice(fastest, f"a layer is {ratio:.1f} times as fast on this CPU as in fp32")


@torch.inference_mode()
def _seconds(precision: str, d_model: int, repeats: int = 7) -> float:
    """The best time of a feed-forward's first product, what goes before and after it included."""
    linear = find_packing(precision).linear(torch.ones(4 * d_model, d_model), None)
    x = torch.ones(ROWS, d_model)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        linear(x)
        times.append(time.perf_counter() - start)
    return min(times)
