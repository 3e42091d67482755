"""Signals as a request, for as long as it is looked at."""

import signal

import pytest

from transformer_mt.training.stop_signals import stop_on_signals


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


def test_signals_are_what_they_were_after_an_error_too() -> None:
    before = handlers()

    def fail() -> None:
        with stop_on_signals():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert handlers() == before
