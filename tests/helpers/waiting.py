"""Waiting for what other processes and threads do."""

import time
from collections.abc import Callable


def wait_until(is_so: Callable[[], bool]) -> None:
    """A minute at most."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "a minute has passed"
        time.sleep(0.01)
