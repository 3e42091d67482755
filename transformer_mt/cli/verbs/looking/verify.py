"""`tmt verify-resume`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import path_option


def verify_resume(
    config: Annotated[str, typer.Option("--config", "-c", help="YAML file, found as `tmt train` finds it.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings that replace those of the file, for example model.d_model=256.")
    ] = None,
    steps: Annotated[int, typer.Option(help="How many steps each training has; an even number.")] = 20,
    keep: Annotated[
        Path | None, path_option("A new folder that both runs stay in. Default: a temporary one, deleted.")
    ] = None,
) -> None:
    """Prove on this machine that a killed and resumed training is the same, bit for bit, as one that was not.

    Exit status 0 where it is, 1 where it is not.
    """
    from transformer_mt.errors import UserError
    from transformer_mt.machine import launch
    from transformer_mt.training.resuming.verify_resume import verify_resume

    if launch.num_processes() > 1:
        error = UserError(
            "`tmt verify-resume` starts its trainings itself, each as one process. Start it without torchrun; several "
            "processes train as one does."
        )
        raise launch.told_once(error)
    result = verify_resume(config, overrides or (), steps, keep, lambda text: print(text, flush=True))
    if result.difference is not None:
        print(f"NOT the same: {result.difference}")
        sys.exit(1)
    print(
        f"the same, bit for bit: {result.num_weights:,} tensors of weights, {result.num_optimizer_tensors:,} of the "
        f"optimizer, {result.num_metrics_lines:,} lines of metrics (times apart)"
    )
