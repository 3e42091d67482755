"""`tmt fill`."""

from typing import Annotated

import typer

from transformer_mt.cli.options import (
    RUNS,
    CheckpointOption,
    DeviceOption,
    RunOption,
    RunsOption,
    chosen_run,
)
from transformer_mt.cli.terminal import remark, typed


def fill(
    sentence: Annotated[str, typer.Argument(help='A sentence with hidden words: "The [MASK] sat on the mat".')],
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1000, help="How many fillings.")] = 5,
    run: RunOption = None,
    checkpoint: CheckpointOption = None,
    device: DeviceOption = "auto",
    runs: RunsOption = RUNS,
) -> None:
    """Show what a model of `tmt pretrain` puts in the place of hidden words, with its probabilities."""
    from transformer_mt.data.word_splitting import printable
    from transformer_mt.decoding.filling import fillings
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.storage.checkpoint_files import find_checkpoint

    folder = chosen_run(run, runs)
    translator = Translator.load(folder.path, find_checkpoint(folder, checkpoint).name, device)
    if translator.note:
        remark(translator.note)
    for filling in fillings(translator, typed(sentence), number):
        print(f"{filling.probability:.3f}  {printable(filling.text)}")
