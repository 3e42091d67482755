"""The settings by which torch computes the same bits every time; they depend on the device."""

import os

import torch

CUBLAS_WORKSPACE = ":4096:8"  # with workspaces of a fixed size cuBLAS takes the same path each time


def be_deterministic(device: torch.device) -> str:
    """Make a device compute the same bits every time, for the rest of the process. Returns what was turned on.

    Call it before the first computation on the device: cuBLAS reads its setting once. An operation that has no
    deterministic form then raises RuntimeError.
    """
    if device.type == "cpu":
        return "nothing needs to be turned on for a CPU"
    torch.use_deterministic_algorithms(True)
    turned_on = "torch.use_deterministic_algorithms(True)"
    if device.type == "cuda":
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = CUBLAS_WORKSPACE
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        turned_on += f", CUBLAS_WORKSPACE_CONFIG={CUBLAS_WORKSPACE}, torch.backends.cudnn.deterministic = True, "
        turned_on += "torch.backends.cudnn.benchmark = False"
    return turned_on
