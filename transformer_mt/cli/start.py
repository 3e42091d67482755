"""Where `tmt` begins: Ctrl-C is told from the first moment on, before anything that takes time is imported."""

import signal

from transformer_mt.cli.stopping import stop_at_once


def main() -> None:
    """`main` of `transformer_mt.cli.main`, which handles Ctrl-C itself once it has been imported."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in a shell's background job
        signal.signal(signal.SIGINT, stop_at_once)
    from transformer_mt.cli.main import main as do

    do()
