"""`tmt card`."""

import typer

from transformer_mt.cli.options import LicenceOption, OneRun
from transformer_mt.cli.verb_options import with_options


@with_options
def card(one: OneRun, licence: LicenceOption = None) -> None:
    """Print a model card: data, scores, settings and limits of a run, in Markdown."""
    source = one.chosen()
    from transformer_mt.export.card import model_card
    from transformer_mt.storage.checkpoint_files import find_checkpoint

    typer.echo(model_card(source, find_checkpoint(source, one.checkpoint).name, licence), nl=False)
