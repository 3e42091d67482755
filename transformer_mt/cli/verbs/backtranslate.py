"""`tmt backtranslate`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from transformer_mt.cli.options import Models, path_option
from transformer_mt.cli.synthesis.pairs import (
    SYNTHESIS_FLAGS,
    OutputOption,
    TagOption,
    WithoutOption,
    languages_of,
    load_for,
    make_pairs,
    tag_of_pairs,
    without_constraints,
)
from transformer_mt.cli.synthesis.real_lines import Choice, input_lines, refuse_other_language
from transformer_mt.cli.verb_options import with_options


@partial(with_options, names=SYNTHESIS_FLAGS)
def backtranslate(
    *,
    models: Models,
    input: Annotated[Path, path_option("Real text of the target language, plain or gzip, one sentence a line.")],
    output: OutputOption,
    tag: TagOption = None,
    without: WithoutOption = None,
    choice: Choice,
    decoding: dict[str, Any],
) -> None:
    """Make training pairs of text in the target language: a run of the other direction translates it to sources.

    The run is one from the target language to the source language, as data.reverse=true trains it. Line n of each file
    belongs to line n of the input. The same command goes on after a stop.
    """
    decoding = choice.searching(models, without_constraints(decoding), input)
    translator = load_for(output, models, decoding, tag)
    to = models.search_options(decoding).to
    languages = languages_of(translator.config, to)
    refuse_other_language(input, languages, "Take a run of the other direction, as data.reverse=true trains it.")
    choice.refuse_language(languages)
    with input_lines(input, output, without, choice) as real:
        make_pairs(
            "backtranslate", models, translator, real, output, True, tag, without, choice, decoding,
            language=tag_of_pairs(translator.config, languages[0], to),
        )  # fmt: skip
