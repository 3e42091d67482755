"""Ctrl-C, SIGTERM and the loss of the terminal, as a request that is looked at between steps, or as an exception."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType


class StopRequestedError(Exception):
    """A signal came while work was done that can be given up and done again: a validation."""


class StopRequest:
    """`exit_status` is None until a signal came, then 128 + its number.

    A second signal within `patience_seconds` after the first counts as the first: Ctrl-C reaches a process that
    `torchrun` started twice, from the terminal and from `torchrun`.

    `on_continue` is called when the process goes on after it was halted, as by Ctrl-Z.
    """

    def __init__(self, patience_seconds: float = 0.0) -> None:
        self.exit_status: int | None = None
        self.on_continue: Callable[[], object] = lambda: None
        self.patience_seconds = patience_seconds
        self._since = 0.0
        self._terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def _leave_terminal(self) -> None:
        """Lead all further output nowhere: the terminal is gone, and that must not end the training."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in self._terminals:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)

    def check(self) -> None:
        """Raise StopRequestedError if a signal came."""
        if self.exit_status is not None:
            raise StopRequestedError

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.exit_status is not None:
            if time.monotonic() < self._since + self.patience_seconds:
                return
            raise SystemExit(128 + number)  # asked twice: stop at once; every checkpoint is whole
        self.exit_status, self._since = 128 + number, time.monotonic()
        if number == getattr(signal, "SIGHUP", None):
            self._leave_terminal()
        # Not print: the signal may have come in the middle of another print. The reader of the output may have ended by
        # the same Ctrl-C (`| tee log`), which must not end the training.
        with suppress(OSError, ValueError):
            os.write(sys.stderr.fileno(), b"\nFinishing the step, then saving. Once more to stop at once.\n")


@contextmanager
def stop_on_signals(patience_seconds: float = 0.0) -> Iterator[StopRequest]:
    """While inside, SIGINT, SIGTERM and SIGHUP set the request instead of ending the process."""
    request = StopRequest(patience_seconds)
    with _handled(request._handle), _handled(lambda *_: request.on_continue(), ["SIGCONT"]):
        yield request


@contextmanager
def unwind_on_signals() -> Iterator[None]:
    """While inside, SIGINT, SIGTERM and SIGHUP end the process by an exception, so that processes are ended and
    temporary files deleted on the way out. Further signals are ignored.
    """
    asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    with _handled(handle):
        yield


@contextmanager
def signals_held() -> Iterator[None]:
    """While inside, such a signal waits; it is handled on leaving. For a step that must not be cut in two."""
    came: list[int] = []
    with _handled(lambda number, _frame: came.append(number)):
        yield
    for number in came[:1]:
        signal.raise_signal(number)


@contextmanager
def _handled(
    handle: Callable[[int, FrameType | None], object], names: Sequence[str] = ("SIGINT", "SIGTERM", "SIGHUP")
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # Python lets no other handle signals
        yield
        return
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as under nohup
        numbers = [number for number in numbers if number != signal.SIGHUP]
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
