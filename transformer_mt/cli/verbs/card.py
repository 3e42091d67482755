"""`tmt card`."""

import typer

from transformer_mt.cli.options import RUNS, CheckpointOption, LicenceOption, RunOption, RunsOption, chosen_run


def card(
    run: RunOption = None,
    checkpoint: CheckpointOption = None,
    licence: LicenceOption = None,
    runs: RunsOption = RUNS,
) -> None:
    """Print a model card: data, scores, settings and limits of a run, in Markdown."""

    source = chosen_run(run, runs)
    from transformer_mt.export.card import model_card
    from transformer_mt.storage.checkpoint_files import find_checkpoint

    typer.echo(model_card(source, find_checkpoint(source, checkpoint).name, licence), nl=False)
