"""Marks of single parameters."""

from typing import Any

import pytest


def slow(*values: object, id: str | None = None) -> Any:
    """A parameter whose test runs when slow tests are asked for: its sisters cover most of it."""
    return pytest.param(*values, marks=pytest.mark.slow, id=id)
