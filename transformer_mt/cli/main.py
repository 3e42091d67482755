"""`tmt`: all verbs, and the message and exit status of every error."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from transformer_mt import __version__
from transformer_mt.cli.stopping import STOPPED, stop_at_once
from transformer_mt.cli.terminal import remark, set_up_output
from transformer_mt.cli.verb_command import Verbs
from transformer_mt.cli.verbs import (
    align,
    average,
    backtranslate,
    calibrate,
    card,
    config,
    data,
    distill,
    evaluate,
    export,
    score,
    serve,
    train,
    translate,
)
from transformer_mt.cli.verbs.looking import attention, debug, diagnose, explain, fill, runs, test, trace, verify, watch
from transformer_mt.errors import ToldElsewhereError, UserError
from transformer_mt.machine.collecting import rest

IMPORTS = ("torch", "numpy")


class _StoppedError(Exception):
    """Ctrl-C, with what the command says of it."""


@contextmanager
def _stop_is_told() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        raise _StoppedError(*stop.args) from None


class _Verbs(TyperGroup):
    """The group of all verbs. On Ctrl-C Typer itself would end the process without a word."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _stop_is_told():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _stop_is_told():
            return super().invoke(ctx)


app = Verbs(
    cls=_Verbs,
    help="Train a Transformer translation model from your own sentence pairs, and use it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = {
    "translate": translate.translate, "backtranslate": backtranslate.backtranslate, "distill": distill.distill,
    "serve": serve.serve, "score": score.score, "align": align.align, "evaluate": evaluate.evaluate,
    "calibrate": calibrate.calibrate, "test": test.behaviour, "runs": runs.runs, "watch": watch.watch,
    "diagnose": diagnose.diagnose, "average": average.average, "export": export.export, "card": card.card,
    "trace": trace.trace, "fill": fill.fill, "explain": explain.explain, "attention": attention.attention,
    "verify-resume": verify.verify_resume,
}  # fmt: skip
app.command("train")(train.train)
app.command("pretrain", help=train.PRETRAIN)(train.train)
for name, verb in VERBS.items():
    app.command(name)(verb)
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


def _open_closed() -> None:
    """Lead nowhere the standard streams that were closed when the process began. Files opened later would otherwise
    take their places.

    `sys.__stdin__` and `sys.__stdout__` stay None, so that a command can tell.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115, open to the end


@contextmanager
def _ctrl_c_ends_imports() -> Iterator[None]:
    """While torch or numpy is being imported, Ctrl-C ends the process at once. Their C code would swallow an exception
    there, and go on with halves of modules.
    """
    if signal.getsignal(signal.SIGINT) not in (signal.default_int_handler, stop_at_once):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if any(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False) for name in IMPORTS):
            stop_at_once(number, frame)
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

    Exit status: 0; 2 for an error that the user can put right; 1 for a failure of ours; where a signal ended the
    command, 128 + its number: 129 for SIGHUP, 130 for Ctrl-C, 143 for SIGTERM.
    """
    try:
        _act()
    except BaseException as error:
        if not _is_member():
            raise
        # The end of Python may wait for the other processes of the group, so this one ends now; all has been told.
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
    set_up_output()
    rest()
    try:
        try:
            with _ctrl_c_ends_imports():
                app(prog_name="tmt")
        finally:
            sys.stdout.flush()  # a full disk can be told now, and not later
    except UserError as error:
        if not isinstance(error, ToldElsewhereError):
            remark(f"tmt: {error}")
        sys.exit(2)
    except OSError as error:
        # A full disk under standard output, for example. Other files have a message of their own.
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = ". Free some space there, or choose another place; what the command has saved is whole." * is_full
        remark(f"tmt: {error.filename or 'the output'}: {error.strerror or error}{advice}")
        sys.exit(2)
    except (_StoppedError, KeyboardInterrupt) as stop:
        remark(". ".join([STOPPED, *map(str, stop.args)]))
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
