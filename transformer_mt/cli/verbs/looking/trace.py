"""`tmt trace`."""

from enum import StrEnum
from typing import Annotated

import typer

from transformer_mt.cli.options import OneModel
from transformer_mt.cli.terminal import output_is_coloured, output_width
from transformer_mt.cli.verb_options import with_options
from transformer_mt.errors import UserError


class Format(StrEnum):
    """How a trace is written."""

    text = "text"
    json = "json"


@with_options
def trace(
    one: OneModel,
    sentence: Annotated[str, typer.Argument(help="A sentence of the source language.")],
    token: Annotated[
        int | None, typer.Option(help="The position whose vectors are shown, in encoder and decoder. Default: 1.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Show this layer of each stack only. Default: all.")] = None,
    head: Annotated[
        int | None, typer.Option(help="Show all rows of this head's weights. Default: the token's row of every head.")
    ] = None,
    format: Annotated[Format, typer.Option(help="json: every vector and every weight, on one line.")] = Format.text,
) -> None:
    """Show what a trained model does with a sentence, vector by vector, as it finds the translation of `tmt translate`.

    Tokens, layers and heads count from 0.
    """
    for option, value in (("--token", token), ("--layer", layer), ("--head", head)):
        if value is not None and format is Format.json:
            raise UserError(f"{option} is for a trace as text, and JSON has every vector. Leave it out.")
    folder, config = one.open()
    text = one.as_read(sentence, config)
    translator = one.load(folder, "fp32")
    from transformer_mt.inspect.trace import trace as trace_sentence
    from transformer_mt.inspect.trace_json import trace_json
    from transformer_mt.inspect.trace_text import View, trace_lines

    traced = trace_sentence(translator, text)
    view = View(1 if token is None else token, layer, head, output_width(), output_is_coloured())
    for line in [trace_json(traced)] if format is Format.json else trace_lines(traced, view):
        print(line)
