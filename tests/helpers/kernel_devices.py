"""Where Triton kernels are compared with the formulas: a fixture for the `conftest.py` of such tests."""

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """On a GPU, and on a CPU, where they are interpreted, which the tests' first `conftest.py` sees to."""
    pytest.importorskip("triton", reason="Triton is not installed; `pip install triton` brings it")
    return torch.device(request.param)
