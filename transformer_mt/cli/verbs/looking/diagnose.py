"""`tmt diagnose`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import path_argument
from transformer_mt.cli.terminal import output_width
from transformer_mt.errors import UserError
from transformer_mt.paths import is_dir, is_file


def diagnose(
    run: Annotated[Path, path_argument("The folder of a run: finished, stopped, or in training.")],
    json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
) -> None:
    """What is wrong with a training, by what it recorded: each finding with its name, its figures and what to try."""
    from transformer_mt.diagnosing.diagnoses import Diagnoses
    from transformer_mt.diagnosing.history import read_recorded
    from transformer_mt.diagnosing.told import as_json, as_text
    from transformer_mt.storage.files import permission_to_read
    from transformer_mt.storage.run_folder import RunFolder

    folder = RunFolder(run)
    with permission_to_read(run):
        if not is_file(folder.metrics) and not folder.not_finite():
            what = "has no metrics.jsonl" if is_dir(run) else "is no folder"
            raise UserError(f"{run} {what}, so no training is recorded there. Give the folder of a run, runs/NAME.")
        recorded = read_recorded(folder)
    diagnoses = Diagnoses.of(recorded.entries)
    if json:
        print(as_json(folder, recorded, diagnoses))
    else:
        print("\n".join(as_text(folder, recorded, diagnoses, output_width())))
