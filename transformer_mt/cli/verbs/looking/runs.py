"""`tmt runs`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import RUNS, path_argument, path_option
from transformer_mt.cli.terminal import output_width, remark
from transformer_mt.errors import UserError


class TableFormat(StrEnum):
    """How the table is written."""

    table = "table"
    tsv = "tsv"
    json = "json"


def runs(
    folder: Annotated[Path, path_argument("The folder of the runs.")] = RUNS,
    format: Annotated[TableFormat, typer.Option(help="table, tsv or json.")] = TableFormat.table,
    curves: Annotated[
        Path | None,
        path_option("Also draw the metrics over the steps: into a .png, or a .html without outside resources."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Of --curves: such as bleu, or train/loss; several. Default: the usual ones."),
    ] = None,
) -> None:
    """All runs of a folder side by side: the settings that differ, best scores, minutes, sizes."""
    if metric and curves is None:
        raise UserError("--metric says what --curves draws. Add --curves FILE, or leave it out.")
    from transformer_mt.judging.runs.summary import summaries_of
    from transformer_mt.judging.runs.table import as_json, as_table, as_tsv

    summaries = summaries_of(folder)
    if curves is not None:
        from transformer_mt.judging.runs.curves import save_curves

        save_curves(curves, summaries, metric or [])
        remark(f"curves: {curves}")
    if format is TableFormat.json:
        print(as_json(summaries))
    elif format is TableFormat.tsv:
        print("\n".join(as_tsv(summaries)))
    else:
        print("\n".join(as_table(summaries, output_width())))
