"""`tmt config`: print the resolved configuration, where it comes from and what it costs, or the schema of one."""

from typing import Annotated

import typer

from transformer_mt.cli.terminal import remark
from transformer_mt.cli.verb_command import Verbs

app = Verbs(no_args_is_help=True, help="Print a configuration as it will be used, or the schema of one.")


@app.command()
def show(
    file: Annotated[str, typer.Argument(help="A YAML file: yours, or a shipped one such as base.yaml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Keys to change, such as model.d_model=256.")] = None,
) -> None:
    """Print FILE with what it extends, the overrides and all defaults written out."""
    from transformer_mt.config.loading import dump_config, load_config

    loaded = load_config(file, overrides or ())
    if loaded.note:
        remark(loaded.note)
    typer.echo(dump_config(loaded.config), nl=False)


@app.command()
def explain(
    file: Annotated[str, typer.Argument(help="A YAML file: yours, or a shipped one such as base.yaml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Keys to change, such as model.d_model=256.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Train a few steps to measure memory and minutes.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the costs alone, as JSON.")] = False,
) -> None:
    """Print where each value of FILE comes from, and what the training will cost, before anything is trained."""
    import json

    from transformer_mt.config.loading import load_config
    from transformer_mt.config.origins import explained_config
    from transformer_mt.errors import UserError

    loaded = load_config(file, overrides or ())
    if loaded.note:
        remark(loaded.note)
    if not as_json:
        typer.echo(explained_config(file, overrides or ()))
    from transformer_mt.training.costs.total import costs, told  # loads torch

    if measure:
        remark("measuring a few steps of this training, a validation and a search; --no-measure leaves that out")
    try:
        found = costs(loaded.config, measure)
    except UserError as error:
        if not as_json:
            remark("The config is as printed. What it costs cannot be said:")
        raise error
    typer.echo(json.dumps(found, indent=2) if as_json else told(loaded.config, found))


@app.command()
def schema() -> None:
    """Print the JSON schema by which editors complete and check the YAML files."""
    import json

    from transformer_mt.config.loading import config_schema

    typer.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))
