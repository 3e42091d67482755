"""What `training.deterministic` turns on, on each kind of device."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from transformer_mt.machine.determinism import be_deterministic


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


@pytest.mark.parametrize("kind", ["cpu", "mps", "cuda"])
def test_what_it_says_is_what_is_on(kind: str, as_before: None) -> None:
    torch.backends.cudnn.benchmark = True
    said = be_deterministic(torch.device(kind))
    assert torch.are_deterministic_algorithms_enabled() == (kind != "cpu") == ("use_deterministic" in said)
    assert (os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8") == (kind == "cuda") == ("WORKSPACE" in said)
    assert torch.backends.cudnn.benchmark == (kind != "cuda")
    assert ("nothing needs" in said) == (kind == "cpu")


@pytest.mark.gpu
def test_a_matrix_product_on_a_gpu_runs_under_it() -> None:
    """In a process of its own: cuBLAS reads its setting once, at a process's first product."""
    code = (
        "import torch; from transformer_mt.machine.determinism import be_deterministic\n"
        "be_deterministic(torch.device('cuda'))\n"
        "a = torch.ones(8, 8, device='cuda', requires_grad=True)\n"
        "(a @ a).sum().backward(); assert a.grad.tolist() == [[16.0] * 8] * 8"
    )
    environment = {name: value for name, value in os.environ.items() if name != "CUBLAS_WORKSPACE_CONFIG"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
