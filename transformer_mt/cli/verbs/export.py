"""`tmt export`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import RUNS, CheckpointOption, RunOption, RunsOption, chosen_run, path_argument
from transformer_mt.cli.terminal import remark


class Engine(StrEnum):
    """Whose format it is."""

    ctranslate2 = "ctranslate2"


def export(
    folder: Annotated[Path, path_argument("A new folder for the model.")],
    to: Annotated[Engine, typer.Option(help="The engine that is to read it.")],
    run: RunOption = None,
    checkpoint: CheckpointOption = None,
    quantization: Annotated[
        str | None, typer.Option(help="int8, float16, bfloat16, … as CTranslate2 names them. Default: float32.")
    ] = None,
    runs: RunsOption = RUNS,
) -> None:
    """Write a trained model in another engine's format."""

    source = chosen_run(run, runs)
    from transformer_mt.export.ctranslate2 import DESCRIPTION, export_run

    note = export_run(source, checkpoint, folder, quantization)
    if note:
        remark(note)
    print(f"{folder}: the model for {to.value}, and its tokenizers")
    print(f"{folder / DESCRIPTION} says how text becomes its tokens")
