"""`tmt calibrate`."""

from typing import Annotated, Any

import typer

from transformer_mt.cli.options import Models
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.verb_options import with_options
from transformer_mt.plurals import counted


@with_options
def calibrate(
    models: Models,
    data_root: Annotated[
        str | None,
        typer.Option(help="The folder of the validation files, where it is no longer the config's data.root."),
    ] = None,
    *,
    decoding: dict[str, Any],
) -> None:
    """Learn anew, from the validation split, how sure one may be of translations; say how far that is off."""
    lines = models.config.decoding.lines
    grown = {} if decoding.get("beam_size") else {"n_best": lines.n_best}  # as the beam of `tmt translate`
    options = models.search_options(decoding, **grown)
    translator = models.load(decoding.get("precision"))
    from transformer_mt.finishing.run_calibration import calibrate_run
    from transformer_mt.finishing.treated import searched_options

    made = calibrate_run(translator, searched_options(translator, lines, options), remark, data_root)
    print(f"{counted(made.num_sentences, 'sentence')}, {counted(made.num_words, 'word')}")
    print("expected calibration error on the half that was not learned from:")
    print(f"words {made.word_error:.4f}  sentences {made.sentence_error:.4f}")
