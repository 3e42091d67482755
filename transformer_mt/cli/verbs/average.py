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
    from transformer_mt.decoding.filling.whole_sentences import text_to_fill
    from transformer_mt.storage.run_folder import open_run
    from transformer_mt.training.averaging import average_checkpoints

    folder = open_run(run)
    config = read_config(folder.config)
    steps = average_checkpoints(folder, last)
    print(f"{folder.average}: the mean of the checkpoints at steps {', '.join(map(str, steps))}")
    if config.data.has_pairs:
        print(f'use it with: tmt translate --run {folder.quoted} --checkpoint average "..."')
    elif config.model.architecture == "encoder_only":
        print(f'use it with: tmt fill --run {folder.quoted} --checkpoint average "{text_to_fill(config)}"')
    else:
        print(f'train on pairs from it with: "training.init_from={{run: {folder.path}, checkpoint: average}}"')
