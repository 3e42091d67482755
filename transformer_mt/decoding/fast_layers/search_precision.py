"""The precision of a search, and why."""

from functools import partial

import torch
from torch import nn

from transformer_mt.decoding.fast_layers.packed_weights import find_packing, steps_by_int8_passes, sums_in_pairs
from transformer_mt.errors import UserError
from transformer_mt.machine.device import AS_ASKED, DTYPES, SLOW, Choice, choose_precision
from transformer_mt.machine.numba_modules import has_numba
from transformer_mt.machine.processor import cpu_seconds, has_instructions
from transformer_mt.model.interface import TranslationModel

ROWS = 64
WORTH_IT = 1.3  # `auto` takes fewer bits only where they are so much faster than fp32: some translations change
# From this d_model on they are by products alone: int8 is 1.9 times as fast at 256 and 1.1 at 128 (an Intel Xeon with
# AMX). By sums in pairs it is 1.4 times as fast at 256 (an AMD EPYC with AVX2 alone). Where a layer's step is one pass,
# int8 is 2.1 times as fast at 128 and 1.9 at 64.
NARROW = 256


def choose_search_precision(wanted: str, device: torch.device, model: nn.Module) -> Choice:
    """`fp32`, `bf16`, `fp16`, on a CPU `int8`; `auto`: on a CPU the fastest, elsewhere as `choose_precision` has it.

    model: holds one model, or the several of an ensemble.

    Raises UserError for what is none of these, and for int8 on another device.
    """
    if wanted not in ("auto", "fp32", "int8", *DTYPES):
        raise UserError(f"{wanted!r} is not a precision. Use auto, fp32, bf16, fp16 or int8.")
    if wanted == "int8":
        if device.type != "cpu":
            raise UserError(f"int8 is for a CPU, and the device is {device}. Use bf16, or --device cpu.")
        if has_instructions("int8") is False and not sums_in_pairs():
            return Choice(wanted, SLOW)
        return Choice(wanted, AS_ASKED if has_numba() else "which is faster with numba (pip install numba)")
    d_model = min(module.config.d_model for module in model.modules() if isinstance(module, TranslationModel))
    if wanted != "auto" or device.type != "cpu":
        return choose_precision(wanted, device, d_model)
    return _choose_on_a_cpu(model, d_model)


def _choose_on_a_cpu(model: nn.Module, d_model: int) -> Choice:
    """The fastest of those that the CPU is known to be fast in, by that alone where it says so of all."""
    in_pairs = sums_in_pairs()
    said = {"int8": has_numba() and (in_pairs or has_instructions("int8")), "bf16": has_instructions("bf16")}
    if None in said.values():
        return _choose_by_measure(d_model, [name for name, there in said.items() if there is not False])
    there = [name for name, is_there in said.items() if is_there]
    if not there:
        return Choice("fp32", "this CPU has instructions for nothing faster")
    if d_model < NARROW and not (said["int8"] and steps_by_int8_passes(model)):
        return Choice("fp32", f"below d_model {NARROW} nothing is much faster for such a model")
    reason = "this CPU is faster in it" if in_pairs and there[0] == "int8" else "this CPU has instructions for it"
    return Choice(there[0], reason)


@torch.inference_mode()
def _choose_by_measure(d_model: int, names: list[str]) -> Choice:
    """By the first product of a feed-forward, with what goes before and after it."""
    x, names = torch.ones(ROWS, d_model), ["fp32", *names]
    linears = [find_packing(name).linear(torch.ones(4 * d_model, d_model), None) for name in names]
    times = cpu_seconds([partial(linear, x) for linear in linears])
    ratio, fastest = max((times[0] / seconds, name) for seconds, name in zip(times, names, strict=True))
    if ratio < WORTH_IT:
        return Choice("fp32", "nothing is much faster on this CPU")
    return Choice(fastest, f"a layer is {ratio:.1f} times as fast on this CPU as in fp32")
