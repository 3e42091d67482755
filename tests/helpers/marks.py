"""Marks of tests, and of single parameters."""

import sys
from typing import Any

import pytest

from transformer_mt.machine.numba_modules import has_numba

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes begin as copies on Linux")
with_numba = pytest.mark.skipif(not has_numba(), reason="numba is not installed")


def slow(*values: object, id: str | None = None) -> Any:
    """A parameter whose test runs when slow tests are asked for: its sisters cover most of it."""
    return pytest.param(*values, marks=pytest.mark.slow, id=id)
