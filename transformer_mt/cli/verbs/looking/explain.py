"""`tmt explain`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import OneModel, path_option
from transformer_mt.cli.report_files import refuse_place, write_page
from transformer_mt.cli.terminal import output_is_coloured, remark, typed
from transformer_mt.cli.verb_options import with_options


@with_options
def explain(
    one: OneModel,
    sentence: Annotated[str, typer.Argument(help="A sentence of the source language.")],
    target: Annotated[str | None, typer.Option(help="A translation. Default: the model's own.")] = None,
    neighbours: Annotated[
        int, typer.Option("--neighbours", "-n", min=0, max=1000, help="Nearest training pairs; 0: none, and no index.")
    ] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with every digit.")] = False,
    output: Annotated[Path | None, path_option("Also write a page, a .html without outside resources.")] = None,
) -> None:
    """Explain a translation: the source words that mattered, what else the model might have said, and the training
    pairs that are nearest.
    """
    if output is not None:
        refuse_place(output, "--output")
    folder, config = one.open()
    texts = one.as_read(sentence, config), None if target is None else typed(target)
    translator = one.load(folder, "fp32")
    from transformer_mt.explaining.explain import explain as explain_sentence
    from transformer_mt.explaining.told import as_json, lines_about
    from transformer_mt.inspect.text_table import Paint

    explanation = explain_sentence(translator, *texts, neighbours, remark)
    for line in [as_json(explanation)] if json else lines_about(explanation, Paint(output_is_coloured())):
        print(line)
    if output is not None:
        from transformer_mt.explaining.page import explanation_page

        run, checkpoint = translator.checkpoints[0]
        page = explanation_page(explanation, f"{run.path}, checkpoint {checkpoint.name}")
        write_page(output, "--output", page, "page")
