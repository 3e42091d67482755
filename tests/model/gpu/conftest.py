"""Where the Triton kernels of a training on a GPU are compared with the formulas."""

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """On a GPU, and on a CPU, where they are interpreted, which the tests' first `conftest.py` sees to."""
    pytest.importorskip("triton", reason="Triton is not installed; `pip install triton` brings it")
    return torch.device(request.param)
