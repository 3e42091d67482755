"""`tmt config`: print the resolved configuration, or the schema of one."""

from typing import Annotated

import typer

from transformer_mt.cli.terminal import remark

app = typer.Typer(no_args_is_help=True, help="Print a configuration as it will be used, or the schema of one.")


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
def schema() -> None:
    """Print the JSON schema by which editors complete and check the YAML files."""
    import json

    from transformer_mt.config.loading import config_schema

    typer.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))
