"""`tmt fill`."""

from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.options import OneModel
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.verb_options import with_options

if TYPE_CHECKING:
    from transformer_mt.decoding.filling.masked_words import MaskedModel


@with_options
def fill(
    one: OneModel,
    sentence: Annotated[str, typer.Argument(help='A sentence with hidden words: "The [MASK] sat on the mat".')],
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, max=1000, help="How many fillings, or words for each mask.")
    ] = 5,
) -> None:
    """Show what a model of `tmt pretrain` puts in the place of hidden words, with its probabilities."""
    from transformer_mt.data.word_splitting import printable
    from transformer_mt.decoding.filling.masked_words import MaskedModel
    from transformer_mt.decoding.filling.whole_sentences import fillings

    folder, config = one.open()
    text = one.as_read(sentence, config)
    model, _ = one.load_any(folder)
    if isinstance(model, MaskedModel):
        _tell(model, text, number)
        return
    for filling in fillings(model, text, number):
        print(f"{filling.probability:.3f}  {printable(filling.text)}")


def _tell(model: "MaskedModel", text: str, number: int) -> None:
    """Print the likeliest entries for each mask, under the number of the mask where there are several."""
    from transformer_mt.data.word_splitting import printable

    found = model.candidates(text, number)
    if model.tokenizer.knows_every_text:
        remark("[MASK] is one piece of a word; ▁ begins a word. A word of several pieces needs a [MASK] for each.")
    for place, candidates in enumerate(found, start=1):
        if len(found) > 1:
            print(f"[MASK] {place} of {len(found)}")
        for candidate in candidates:
            print(f"{candidate.probability:.3f}  {printable(candidate.text)}")
