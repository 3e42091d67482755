"""`tmt export`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.options import (
    RUNS,
    CheckpointOption,
    LicenceOption,
    RunOption,
    RunsOption,
    chosen_run,
    path_argument,
)
from transformer_mt.cli.terminal import remark
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.storage.run_folder import RunFolder


class Engine(StrEnum):
    """Whose format it is."""

    ctranslate2 = "ctranslate2"
    huggingface = "huggingface"
    onnx = "onnx"
    argos = "argos"


def export(
    folder: Annotated[Path, path_argument("A new folder for the model; argos: a new file, NAME.argosmodel.")],
    to: Annotated[Engine, typer.Option(help="The engine that is to read it.")],
    run: RunOption = None,
    checkpoint: CheckpointOption = None,
    quantization: Annotated[
        str | None,
        typer.Option(
            help="ctranslate2 and argos: int8, float16, … as CTranslate2 names them; onnx: int8. Default: float32."
        ),
    ] = None,
    licence: LicenceOption = None,
    runs: RunsOption = RUNS,
) -> None:
    """Write a trained model in another engine's format."""

    source = chosen_run(run, runs)
    for note in _EXPORTS[to](source, checkpoint, folder, quantization, licence):
        remark(f"note: {note.removeprefix('note: ')}")
    print(f"{folder}: the model for {to.value}, and its tokenizers")
    where = f"README.md inside {folder}" if to == Engine.argos else str(folder / "README.md")
    print(f"{where}: the model card, which says how to run it")


def _to_ctranslate2(
    run: "RunFolder", checkpoint: str | None, folder: Path, quantization: str | None, licence: str | None
) -> list[str]:
    from transformer_mt.export.ctranslate2 import export_run

    return export_run(run, checkpoint, folder, quantization, licence)


def _to_huggingface(
    run: "RunFolder", checkpoint: str | None, folder: Path, quantization: str | None, licence: str | None
) -> list[str]:
    if quantization is not None:
        raise UserError(
            f"--quantization is {quantization}, and the files of transformers hold float32. Leave it out: "
            "transformers converts weights as it loads them."
        )
    from transformer_mt.export.huggingface.export import export_run

    return export_run(run, checkpoint, folder, licence)


def _to_onnx(
    run: "RunFolder", checkpoint: str | None, folder: Path, quantization: str | None, licence: str | None
) -> list[str]:
    from transformer_mt.export.onnx.export import export_run

    return export_run(run, checkpoint, folder, quantization, licence)


def _to_argos(
    run: "RunFolder", checkpoint: str | None, folder: Path, quantization: str | None, licence: str | None
) -> list[str]:
    from transformer_mt.export.argos.export import export_run

    return export_run(run, checkpoint, folder, quantization, licence)


_EXPORTS = {
    Engine.ctranslate2: _to_ctranslate2,
    Engine.huggingface: _to_huggingface,
    Engine.onnx: _to_onnx,
    Engine.argos: _to_argos,
}
