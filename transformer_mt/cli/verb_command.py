"""What every verb does before it begins: how its help is drawn, and what is refused of the words typed behind it."""

import shutil
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

FRAMED_HELP = 100  # columns; in fewer, a frame of Rich cuts off the names of options


class Verb(TyperCommand):
    """A verb of the command line."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Its help, without frames in a narrow terminal."""
        if shutil.get_terminal_size().columns < FRAMED_HELP:
            self.rich_markup_mode = None
        super().format_help(ctx, formatter)


class Verbs(typer.Typer):
    """Verbs, each a `Verb`."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """As `typer.Typer.command`."""
        return super().command(name, **{"cls": Verb, **settings})
