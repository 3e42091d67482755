"""`tmt average`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import path_argument


def average(
    run: Annotated[Path, path_argument("The folder of a run.")],
    last: Annotated[int, typer.Option(min=1, help="How many of the newest checkpoints.")] = 5,
) -> None:
    """Average the weights of a run's newest checkpoints; use the result with --checkpoint average."""
    from transformer_mt.config.loading import read_config
    from transformer_mt.storage.run_folder import open_run
    from transformer_mt.training.averaging import average_checkpoints

    folder = open_run(run)
    architecture = read_config(folder.config).model.architecture
    steps = average_checkpoints(folder, last)
    print(f"{folder.average}: the mean of the checkpoints at steps {', '.join(map(str, steps))}")
    verb, text = ("fill", "The [MASK] …") if architecture == "encoder_only" else ("translate", "...")
    print(f'use it with: tmt {verb} --run {folder.quoted} --checkpoint average "{text}"')
