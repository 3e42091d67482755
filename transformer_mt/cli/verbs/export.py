"""`tmt export`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.options import LicenceOption, OneRun, path_argument
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.verb_options import with_options
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.storage.run_folder import RunFolder


class Engine(StrEnum):
    """Whose format it is."""

    ctranslate2 = "ctranslate2"
    huggingface = "huggingface"
    onnx = "onnx"
    argos = "argos"


@with_options
def export(
    one: OneRun,
    folder: Annotated[Path, path_argument("A new folder for the model; argos: a new file, NAME.argosmodel.")],
    to: Annotated[Engine, typer.Option(help="The engine that is to read it.")],
    quantization: Annotated[
        str | None,
        typer.Option(
            help="ctranslate2 and argos: int8, float16, … as CTranslate2 names them; onnx: int8. Default: float32."
        ),
    ] = None,
    licence: LicenceOption = None,
) -> None:
    """Write a trained model in another engine's format."""
    for note in _exported(to, one.chosen(), one.checkpoint, folder, quantization, licence):
        remark(f"note: {note.removeprefix('note: ')}")
    print(f"{folder}: the model for {to.value}, and its tokenizers")
    where = f"README.md inside {folder}" if to == Engine.argos else str(folder / "README.md")
    print(f"{where}: the model card, which says how to run it")


def _exported(
    to: Engine, run: "RunFolder", checkpoint: str | None, folder: Path, quantization: str | None, licence: str | None
) -> list[str]:
    """What an export has to note. Each is imported here, because each needs libraries of its own."""
    if to is Engine.huggingface:
        if quantization is not None:
            raise UserError(
                f"--quantization is {quantization}, and the files of transformers hold float32. Leave it out: "
                "transformers converts weights as it loads them."
            )
        from transformer_mt.export.huggingface.export import export_run as export_for_transformers

        return export_for_transformers(run, checkpoint, folder, licence)
    if to is Engine.ctranslate2:
        from transformer_mt.export.ctranslate2 import export_run
    elif to is Engine.onnx:
        from transformer_mt.export.onnx.export import export_run
    else:
        from transformer_mt.export.argos.export import export_run
    return export_run(run, checkpoint, folder, quantization, licence)
