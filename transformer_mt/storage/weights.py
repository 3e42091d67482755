"""Weights on the disk, as safetensors. Tied weights are stored once."""

import errno
import os
import re
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transformer_mt.errors import UserError

_PUT_BACK = "The config was changed after training, or the file is another run's: put back what was there."


def unique_weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter by its first name, tied ones once. They are detached, not copied."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file with the rights of any new file. The library would let only its owner read it. Raises
    OSError where it cannot be written, as on a full disk, for which the library has an error of its own.
    """
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:
        number = re.search(r"(?:os error|code:) (\d+)", str(error))  # as its versions from 0.6 on say it, and before
        reason = (int(number[1]), os.strerror(int(number[1]))) if number else (errno.EIO, str(error))
        raise OSError(*reason, str(path)) from error
    path.chmod(mode)


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill the model's parameters; UserError where the file is missing, damaged or of another shape."""
    expected = unique_weights(model)
    for name, tensor in read_weights(model, path).items():
        expected[name].copy_(tensor)


def read_weights(model: nn.Module, path: Path) -> dict[str, Tensor]:
    """The `unique_weights` in a file; UserError where it is missing, damaged or of another model."""
    tensors = read_tensors(path)
    expected = unique_weights(model)
    if tensors.keys() != expected.keys():
        names = sorted(tensors.keys() ^ expected.keys())
        raise UserError(
            f"{path} holds other weights than the model of this config ({names[0]}, for one, is not in both). "
            f"{_PUT_BACK}"
        )
    for name, parameter in expected.items():
        if parameter.shape != tensors[name].shape:
            raise UserError(
                f"{path}: {name} has the shape {tuple(tensors[name].shape)}, the config asks for "
                f"{tuple(parameter.shape)}. {_PUT_BACK}"
            )
    return tensors


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; UserError where it cannot be read."""
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise UserError(
            f"{path} is missing. The checkpoint is incomplete; choose another with --checkpoint."
        ) from error
    except Exception as error:  # safetensors raises its own error, OSError or ValueError, by the kind of damage
        raise UserError(f"{path} is damaged ({error}). Choose another checkpoint with --checkpoint.") from error


def average_weights(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of several weight files, summed in float64 (Vaswani et al. 2017, section 6.1). UserError where they are
    not of one model.
    """
    totals: dict[str, Tensor] = {}
    for path in paths:
        tensors = read_tensors(path)
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if totals and shapes != {name: total.shape for name, total in totals.items()}:
            raise UserError(f"{path} holds other weights than {paths[0]}: they are of two models. Move one away.")
        for name, tensor in tensors.items():
            totals[name] = totals.get(name, torch.zeros_like(tensor, dtype=torch.float64)) + tensor
    return {name: (total / len(paths)).float() for name, total in totals.items()}
