"""`tmt export`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.terminal import remark


class Engine(StrEnum):
    """Whose format it is."""

    ctranslate2 = "ctranslate2"


def export(
    folder: Annotated[Path, typer.Argument(help="A new folder for the model.")],
    to: Annotated[Engine, typer.Option(help="Whose format it is.")],
    run: Annotated[Path | None, typer.Option(help="The folder of a run. Default: the newest in runs/.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="best, last, average or step_N. Default: best, else last.")
    ] = None,
    quantization: Annotated[
        str | None, typer.Option(help="int8, float16, bfloat16, … as CTranslate2 names them. Default: float32.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where to look for the newest run.")] = Path("runs"),
) -> None:
    """Write a trained model in another engine's format."""
    from transformer_mt.config.run_folder import newest_run, open_run

    source = open_run(run) if run is not None else newest_run(runs)
    if run is None:
        remark(f"run: {source.path}")
    from transformer_mt.export.ctranslate2 import DESCRIPTION, export_run

    note = export_run(source, checkpoint, folder, quantization)
    if note:
        remark(note)
    print(f"{folder}: the model for {to.value}, and its tokenizers")
    print(f"{folder / DESCRIPTION} says how text becomes its tokens")
