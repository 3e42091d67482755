"""`tmt debug`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import DeviceOption, path_argument, path_option
from transformer_mt.cli.terminal import output_is_coloured, output_width, remark
from transformer_mt.cli.verb_command import Verbs
from transformer_mt.errors import UserError
from transformer_mt.paths import exists

app = Verbs(help="Look into a training that went wrong.", no_args_is_help=True)


@app.callback()
def _verbs() -> None:
    pass


@app.command("batch")
def batch(
    file: Annotated[Path, path_argument("What a training left: runs/NAME/debug/step_N.safetensors.")],
    run: Annotated[Path | None, path_option("The folder of the run. Default: the one that FILE is in.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Weights of best, last, average or step_N. Default: those beside FILE.")
    ] = None,
    device: DeviceOption = "auto",
    precision: Annotated[str | None, typer.Option(help="fp32, bf16, fp16 or auto. Default: the update's.")] = None,
) -> None:
    """Replay an update whose loss or gradient was not finite, and show every module's outputs and gradients."""
    from transformer_mt.storage.run_folder import open_run

    if run is None and not exists(file):
        raise UserError(f"There is no file {file}. Training writes one to runs/NAME/debug when a loss is not finite.")
    folder = open_run(run if run is not None else file.absolute().parent.parent, untrained=True)
    from transformer_mt.training.debugging.replay_file import replay_file, replay_lines

    replayed = replay_file(file, folder, device, precision, checkpoint)
    for note in replayed.notes:
        remark(note)
    for line in replay_lines(replayed, output_width(), output_is_coloured()):
        print(line)
