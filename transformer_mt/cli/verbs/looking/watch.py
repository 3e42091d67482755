"""`tmt watch`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import RUNS, RunsOption, chosen_run, path_argument
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.verbs.serve import refuse_without_extra


def watch(
    run: Annotated[Path | None, path_argument("The folder of a run. Default: the newest in runs/.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0: on all of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0: any that is free.", min=0, max=65535)] = 6007,
    runs: RunsOption = RUNS,
) -> None:
    """Follow a training in the browser: curves, sample translations, attention, speed, the time left."""
    refuse_without_extra("watch")
    from transformer_mt.machine.listening import address, bound, listen
    from transformer_mt.watching.application import run_page
    from transformer_mt.watching.live_run import LiveRun

    folder = chosen_run(run, runs, untrained=True)
    live = LiveRun(folder)
    listener = bound(host, port)
    try:
        listen(listener)
        where = address(*listener.getsockname()[:2])
        run_page(live, listener, lambda: remark(f"watching {folder.path} at {where} until Ctrl-C"))
    finally:
        listener.close()
