"""What a call returns or how it refuses, side by side, for tests that say which of the two is right."""

from collections.abc import Callable
from typing import TypeVar

from transformer_mt.errors import UserError

Result = TypeVar("Result")


def attempt(action: Callable[[], Result]) -> tuple[Result | None, str | None]:
    """The result, or the message of the UserError; the other of the two is None. Nothing else may be raised."""
    try:
        return action(), None
    except UserError as error:
        return None, str(error)
