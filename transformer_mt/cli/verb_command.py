"""What every verb does before it begins: how its help is drawn, and what is refused of the words typed behind it."""

import inspect
import os.path
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from transformer_mt.cli.foreign_options import RUN, meant
from transformer_mt.errors import UserError

FRAMED_HELP = 100  # columns; in fewer, a frame of Rich cuts off the names of options
METAVARS = {str: "TEXT", int: "INTEGER", float: "FLOAT", bool: ""}


class Verb(TyperCommand):
    """A verb of the command line."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Its help, without frames in a narrow terminal."""
        if shutil.get_terminal_size().columns < FRAMED_HELP:
            self.rich_markup_mode = None
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As ever; a run that stands where the verb takes none is told from other surplus."""
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if "unexpected extra argument" not in getattr(error, "message", ""):
                raise
            run = next((text for text in typed if os.path.isfile(Path(text) / "config.yaml")), None)
            if run is None or not any(RUN in option.opts for option in self.params):
                raise
            raise UserError(
                f"`{ctx.command_path}` takes the run as an option. Write: {RUN} {shlex.quote(run)}"
            ) from None

    def make_parser(self, ctx: Any) -> Any:
        """A parser that says what is meant by the option of another toolkit, and refuses a second file for an option
        that takes one, where the first would be lost in silence.
        """
        parser = super().make_parser(ctx)
        options = {name for option in self.params for name in (*option.opts, *option.secondary_opts)}
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            """As the parser itself, with both refusals."""
            typed = list(args)
            try:
                parsed = parse(args)
            except Exception as error:
                # Which class of which package an unknown option raises depends on the version of Typer.
                name = getattr(error, "option_name", None)
                arguments = {one.name for one in self.params if one.param_type_name == "argument"}
                told = name and name not in options and meant(name, ctx.command_path, typed, options, arguments)
                if not told:
                    raise
                raise UserError(told) from None
            _refuse_repeated(parsed[2])
            return parsed

        parser.parse_args = parse_once
        return parser


class Verbs(typer.Typer):
    """Verbs, each a `Verb`."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """As `typer.Typer.command`. Each kind of value has the same word in the help, whatever the version of Typer; a
        paragraph of a docstring is wrapped by the terminal alone.
        """

        def register(verb: Callable[..., None]) -> Callable[..., None]:
            help = re.sub(r"(?<!\n)\n(?!\n)", " ", settings.get("help") or inspect.getdoc(verb) or "")
            for parameter in inspect.signature(verb, eval_str=True).parameters.values():
                kind, *notes = get_args(parameter.annotation) or [parameter.annotation]
                for option in notes:
                    if isinstance(option, OptionInfo) and option.metavar is None:
                        option.metavar = _word_of(kind)
            return super(Verbs, self).command(name, **{"cls": Verb, **settings, "help": help})(verb)

        return register


def _word_of(kind: Any) -> str | None:
    """The word for a value of this type in the help: nothing for a switch, or for what Typer knows by itself."""
    inner = next((one for one in (*get_args(kind), kind) if one is not NoneType), kind)
    return _word_of(inner) if inner is not kind else METAVARS.get(kind)


def _refuse_repeated(given: list[Any]) -> None:
    """Raise UserError where one of these parameters, in the order of the command line, is given twice and takes one
    file or folder. Of other options the last counts, so that an alias for a command may be corrected behind it.
    """
    seen = set()
    for one in given:
        is_path = one.param_type_name == "option" and (one.metavar == "PATH" or "--config" in one.opts)
        if one in seen and is_path and not one.multiple:
            raise UserError(f"{one.opts[0]} was given twice, and takes one value. Leave one out.")
        seen.add(one)
