"""`tmt`: the verbs put together, and what a person sees when something goes wrong."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from transformer_mt import __version__
from transformer_mt.cli import (
    attention,
    average,
    config,
    data,
    debug,
    evaluate,
    export,
    trace,
    train,
    translate,
    verify,
)
from transformer_mt.cli.terminal import remark, utf8_output
from transformer_mt.errors import ToldElsewhereError, UserError

STOPPED = "tmt: stopped"
IMPORTS = ("torch", "numpy")

app = typer.Typer(
    help="Train a Transformer translation model from your own sentence pairs, and use it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("translate")(translate.translate)
app.command("evaluate")(evaluate.evaluate)
app.command("average")(average.average)
app.command("export")(export.export)
app.command("trace")(trace.trace)
app.command("attention")(attention.attention)
app.command("verify-resume")(verify.verify_resume)
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")
app.add_typer(debug.app, name="debug")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tmt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _flush() -> None:
    """Now, while a full disk can still be told; a reader that went away is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed() -> None:
    """Streams that the process was begun without lead nowhere: else the next files opened would take their places.

    `sys.__stdin__` and `sys.__stdout__` stay None, for those to whom it matters.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115, as long as the process


@contextmanager
def _ctrl_c_ends_imports() -> Iterator[None]:
    """While torch or numpy is being imported, Ctrl-C ends the process at once: what it raised there would be swallowed
    by their C code, which then goes on with halves of modules.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, as in a shell's background job
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if any(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False) for name in IMPORTS):
            with suppress(OSError):
                os.write(2, f"{STOPPED}\n".encode())
            os._exit(130)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is stop:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_out_of_memory(error: Exception) -> bool:
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from transformer_mt.machine.memory import is_out_of_memory

    return is_out_of_memory(error)


def main() -> None:
    """Do what the command line asks for, and exit.

    Exit status: 0, 2 for what the user can put right, 1 for a failure that is ours; where a signal ended it, 128 and
    the signal's number: 129 for SIGHUP, 130 for Ctrl-C, 143 for SIGTERM.
    """
    try:
        _act()
    except BaseException as error:
        if not _is_member():
            raise
        # What a group of processes leaves to the end of Python may wait for the others there; all has been told.
        if isinstance(error, SystemExit):
            os._exit(int(error.code or 0))
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(1)


def _is_member() -> bool:
    """Whether this process is still joined with others (see `machine.processes.joined`)."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def _act() -> None:
    _open_closed()
    utf8_output()
    try:
        try:
            with _ctrl_c_ends_imports():
                app(prog_name="tmt")
        finally:
            _flush()
    except UserError as error:
        if not isinstance(error, ToldElsewhereError):
            remark(f"tmt: {error}")
        sys.exit(2)
    except OSError as error:
        # A full disk under standard output, say; what is written elsewhere says so itself.
        remark(f"tmt: {error.filename or 'the output'}: {error.strerror or error}")
        sys.exit(2)
    except KeyboardInterrupt:
        remark(STOPPED)
        sys.exit(130)
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        remark(
            f"tmt: The memory ran out ({error or type(error).__name__}). Take a smaller model or vocabulary, or in a "
            "search a smaller --batch-size or --beam-size."
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
