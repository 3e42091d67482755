"""Signals as a request, for as long as it is looked at."""

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from transformer_mt.training.stop_signals import StopRequest, signals_held, stop_on_signals, unwind_on_signals


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_request_inside_and_afterwards_what_it_was(number: signal.Signals) -> None:
    before = handlers()
    with stop_on_signals() as request:
        assert request.exit_status is None
        signal.raise_signal(number)
        assert request.exit_status == 128 + number
    assert handlers() == before


def test_a_process_that_goes_on_says_so_inside_alone() -> None:
    before, told = signal.getsignal(signal.SIGCONT), []
    with stop_on_signals() as request:
        request.on_continue = lambda: told.append(1)
        signal.raise_signal(signal.SIGCONT)
        assert request.exit_status is None
    assert signal.getsignal(signal.SIGCONT) == before
    signal.raise_signal(signal.SIGCONT)
    assert told == [1]


@pytest.mark.parametrize("handled", [stop_on_signals, unwind_on_signals, signals_held])
def test_the_loss_of_a_terminal_that_nohup_hides_stays_hidden(
    handled: Callable[[], AbstractContextManager[StopRequest | None]],
) -> None:
    """`nohup` starts a process that ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handled() as request:
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
            assert request is None or request.exit_status is None
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN), "others are handled"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signals_are_what_they_were_after_an_error_too() -> None:
    before = handlers()

    def fail() -> None:
        with stop_on_signals():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert handlers() == before
