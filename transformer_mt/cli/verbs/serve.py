"""`tmt serve`."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from transformer_mt.cli.options import RUNS, CheckpointOption, DeviceOption, RunsOption, chosen_runs, path_option
from transformer_mt.cli.search_flags import FLAGS
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.verb_options import with_options
from transformer_mt.errors import UserError

# Constraints stand behind a line and tabs, and no API has a place for them. Each request names its target language.
KEY_VARIABLE = "TMT_API_KEY"
SERVE_FLAGS = tuple(name for name in FLAGS if name not in ("constraints", "to"))


@partial(with_options, names=SERVE_FLAGS)
def serve(
    run: Annotated[
        list[Path] | None,
        path_option("The folder of a run; several for several pairs of languages. Default: the newest in runs/."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0: on all of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0: any that is free.", min=0, max=65535)] = 5000,
    api_key: Annotated[
        str | None,
        typer.Option(envvar=KEY_VARIABLE, help=f"What clients must give as their key; better in {KEY_VARIABLE}."),
    ] = None,
    max_chars: Annotated[int, typer.Option(help="Characters of a request, at most.", min=1)] = 20_000,
    max_lines: Annotated[int, typer.Option(help="Lines of a request, at most.", min=1)] = 500,
    max_waiting: Annotated[int, typer.Option(help="Requests under way, at most.", min=1)] = 256,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a request may take, at most.", min=0.1, max=86_400)
    ] = 30.0,
    workers: Annotated[
        int | None, typer.Option(help="Processes that search. Default: one for each core, and one on a GPU.", min=1)
    ] = None,
    checkpoint: CheckpointOption = None,
    device: DeviceOption = "auto",
    runs: RunsOption = RUNS,
    *,
    decoding: dict[str, Any],
) -> None:
    """Translate over the network: a page for people, and the APIs of LibreTranslate and DeepL for programs."""
    refuse_windows()
    refuse_without_extra("serve")
    if api_key is None:  # typer takes a variable that is there and blank for none: then anybody could ask
        api_key = os.environ.get(KEY_VARIABLE)
    from transformer_mt.serving.begin import Options
    from transformer_mt.serving.begin import serve as begin
    from transformer_mt.serving.refusal import Limits

    limits = Limits(max_chars, max_lines, max_waiting, timeout)
    options = Options(host, port, limits, checkpoint, device, workers, api_key)
    begin(chosen_runs(run, runs), decoding, options, remark)


def refuse_windows() -> None:
    """Raise UserError on Windows: no event loop there hears of the processes that search."""
    if sys.platform == "win32":
        raise UserError(
            "tmt serve does not run on Windows itself. Start it in the Windows Subsystem for Linux, or translate with "
            "tmt translate."
        )


def refuse_without_extra(verb: str) -> None:
    """Raise UserError where a library of the extra `serve` is missing, which the verb needs."""
    try:
        import httptools  # noqa: F401
        import python_multipart  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError(
            f'tmt {verb} needs {error.name}, which is not there. Install it: pip install "transformer-mt[serve]".'
        ) from None
