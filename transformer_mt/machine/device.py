"""Chooses device and precision. `auto` asks the device what it can do, and measures only where it does not say."""

import re
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch

from transformer_mt.errors import UserError
from transformer_mt.machine import launch
from transformer_mt.machine.collecting import work
from transformer_mt.machine.processor import cpu_seconds, has_instructions

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
WORTH_IT = 1.5  # bf16 products, casts included, must be so much faster where the CPU does not name its instructions
NARROW = 128  # from this d_model on they are: 2.5 times at 128, 1.5 at 64, 0.9 at 32 (an Intel Xeon with AMX)
AS_ASKED = "as asked"
SLOW = f"{AS_ASKED}, but this CPU has no instructions for it: fp32 is many times as fast"


class Choice(NamedTuple):
    """What was taken, and the reason in words."""

    value: str
    reason: str


def choose_device(wanted: str, local_rank: int | None = None) -> Choice:
    """`auto`: cuda, then mps, then cpu. Raises UserError where a named device is not there.

    `local_rank` is that of a process of several on this machine, each of which takes a GPU of its own.
    """
    if local_rank is None:
        return _choose_device(wanted)
    value, reason = _choose_device("cpu" if wanted == "auto" and not torch.cuda.is_available() else wanted)
    if value == "cpu":
        return Choice(value, reason)
    if value != "cuda":
        raise UserError(
            f"training.device is {wanted}, and several processes were started, which would share it. Use auto, cuda or "
            "cpu."
        )
    count = torch.cuda.device_count()
    if count == 1 and not launch.is_under_torchrun():  # a launcher that shows each process a GPU of its own
        local_rank = 0
    elif max(local_rank, launch.num_local_processes() - 1) >= count:
        raise UserError(
            f"There are {count} GPUs on this machine and more processes than that. Start torchrun with "
            f"--nproc-per-node {count}, or train with training.device=cpu."
        )
    return Choice(f"cuda:{local_rank}", f"{torch.cuda.get_device_name(local_rank)}, one a process")


def set_up(device: torch.device) -> None:
    """Make ready for the first computation on this device.

    A CUDA device becomes the default one. cuDNN's attention is turned off: it takes half a second to plan for a new
    shape, and hardly two batches, or two steps of a search, have the same shape.
    """
    work()
    if device.type == "cuda":
        torch.cuda.set_device(device if device.index is not None else 0)
        torch.backends.cuda.enable_cudnn_sdp(False)


def machine_name(device: torch.device) -> str:
    """What kind of device it is: the GPU's own name, else the type."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _choose_device(wanted: str) -> Choice:
    wanted = str(wanted)  # a program may have a torch.device
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if wanted == "auto":
        if cuda:
            return Choice("cuda", torch.cuda.get_device_name())
        return (
            Choice("mps", "no CUDA device, but Apple's") if mps else Choice("cpu", "there is no GPU that torch can use")
        )
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", wanted):
        raise UserError(f"{wanted!r} is not a device. Use auto, cpu, cuda, cuda:N or mps.")
    if wanted.startswith("cuda"):
        index = int(wanted.partition(":")[2] or 0)
        if not cuda or index >= torch.cuda.device_count():
            count = torch.cuda.device_count() if cuda else 0
            raise UserError(f"The device {wanted} was asked for, and torch sees {count} CUDA devices. Use auto or cpu.")
    if wanted == "mps" and not mps:
        raise UserError("The device mps was asked for, and torch sees none. Use auto or cpu.")
    return Choice(wanted, AS_ASKED)


def choose_precision(wanted: str, device: torch.device, d_model: int) -> Choice:
    """`auto`: bf16 where the device multiplies it faster, else fp16 on a CUDA device, else fp32."""
    if wanted not in ("auto", "fp32", *DTYPES):
        raise UserError(f"{wanted!r} is not a precision. Use auto, fp32, bf16 or fp16.")
    if wanted == "bf16" and device.type == "cpu" and has_instructions("bf16") is False:
        return Choice(wanted, SLOW)
    if wanted != "auto":
        return Choice(wanted, AS_ASKED)
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Choice("bf16", "the GPU has it")
        return Choice("fp16", "the GPU has no bf16")
    if device.type != "cpu":
        return Choice("fp32", f"nothing less is tested on {device.type}")
    return _choose_on_a_cpu(d_model)


def _choose_on_a_cpu(d_model: int) -> Choice:
    instructions = has_instructions("bf16")
    if instructions is None:
        ratio = cpu_bf16_speedup(d_model)
        if ratio < WORTH_IT:
            return Choice("fp32", f"this CPU multiplies bf16 {ratio:.1f} times as fast, which does not pay")
        return Choice("bf16", f"this CPU multiplies it {ratio:.1f} times as fast as fp32")
    if not instructions:
        return Choice("fp32", "this CPU has no instructions for bf16")
    if d_model < NARROW:
        return Choice("fp32", f"below d_model {NARROW} casts to bf16 cost what its products save")
    return Choice("bf16", "this CPU has instructions for it")


def cpu_bf16_speedup(d_model: int) -> float:
    """How many times as fast a CPU multiplies bf16 as fp32, at a feed-forward's shape.

    The bf16 product as autocast makes it: activations are fp32 around it, and cast on the way in and out. In a narrow
    model that may cost more than the product saves.
    """
    x, weight = torch.ones(1024, d_model), torch.ones(d_model, 4 * d_model)
    narrow = weight.bfloat16()
    fp32, bf16 = cpu_seconds([lambda: x @ weight, lambda: (x.bfloat16() @ narrow).float()])
    return fp32 / bf16


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """Reduced-precision arithmetic over fp32 weights; nothing at fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, DTYPES[precision])
