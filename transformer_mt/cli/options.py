"""The options that several verbs have, and the paths of all.

A `~` at the beginning of a path is the home folder, as in a config: shells leave it as it is in `--runs=~/runs`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.terminal import remark

if TYPE_CHECKING:
    from transformer_mt.config.run_folder import RunFolder


def user_path(text: str | Path) -> Path:
    """The path that a user means; a `~` of nobody known is a name like any other."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def path_option(help: str) -> Any:
    """An option that is a path."""
    return typer.Option(parser=user_path, metavar="PATH", help=help)


def path_argument(help: str) -> Any:
    """An argument that is a path."""
    return typer.Argument(parser=user_path, help=help)


RunOption = Annotated[Path | None, path_option("The folder of a run. Default: the newest in runs/.")]
RunsOption = Annotated[Path, path_option("Where to look for the newest run.")]
CheckpointOption = Annotated[str | None, typer.Option(help="best, last, average or step_N. Default: best, else last.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
RUNS = Path("runs")


def chosen_run(run: Path | None, runs: Path) -> "RunFolder":
    """`--run`, or else the newest in `--runs`, which standard error then names. UserError where there is none."""
    from transformer_mt.config.run_folder import newest_run, open_run

    if run is not None:
        return open_run(run)
    newest = newest_run(runs)
    remark(f"run: {newest.path}")
    return newest
