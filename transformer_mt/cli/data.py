"""`tmt data`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import path_argument

app = typer.Typer(help="Look at data.", no_args_is_help=True)


@app.callback()
def _verbs() -> None:
    pass


@app.command("export")
def export(
    corpus: Annotated[str, typer.Argument(help="A built-in corpus: builtin:en-es.")],
    folder: Annotated[Path, path_argument("Where the files go; made if it is missing.")],
) -> None:
    """Write a built-in corpus out as aligned text files: train.en, train.es, and so on."""
    from transformer_mt.data.export import export_builtin

    for path, num_lines in export_builtin(corpus, folder):
        print(f"{path}: {num_lines:,} lines")
