"""`tmt calibrate`."""

from typing import Annotated, Any

import typer

from transformer_mt.cli.options import (
    RUNS,
    CheckpointsOption,
    DeviceOption,
    EnsembleModeOption,
    RunsOption,
    SeveralRunsOption,
    chosen_runs,
)
from transformer_mt.cli.search_flags import with_search_flags
from transformer_mt.cli.terminal import remark


@with_search_flags
def calibrate(
    run: SeveralRunsOption = None,
    checkpoint: CheckpointsOption = None,
    ensemble_mode: EnsembleModeOption = None,
    data_root: Annotated[
        str | None,
        typer.Option(help="The folder of the validation files, where it is no longer the config's data.root."),
    ] = None,
    device: DeviceOption = "auto",
    runs: RunsOption = RUNS,
    *,
    decoding: dict[str, Any],
) -> None:
    """Learn anew, from the validation split, how sure one may be of translations; say how far that is off."""
    folders = chosen_runs(run, runs)
    from transformer_mt.decoding.search.options import search_options
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.finishing.run_calibration import calibrate_run

    paths = [folder.path for folder in folders]
    translator = Translator.load(paths, checkpoint or None, device, decoding.get("precision"), ensemble_mode)
    if translator.note:
        remark(translator.note)
    options = search_options(translator.config.decoding, **decoding)
    made = calibrate_run(translator, options, remark, data_root)
    print(f"{made.num_sentences:,} sentences, {made.num_words:,} words")
    print("expected calibration error on the half that was not learned from:")
    print(f"words {made.word_error:.4f}  sentences {made.sentence_error:.4f}")
