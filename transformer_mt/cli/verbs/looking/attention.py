"""`tmt attention`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import OneModel, path_option, remark_on_text_alone
from transformer_mt.cli.terminal import typed
from transformer_mt.cli.verb_options import with_options


@with_options
def attention(
    one: OneModel,
    sentence: Annotated[str, typer.Argument(help="A sentence of the source language, or a text for an encoder alone.")],
    output: Annotated[Path, path_option("The folder for attention.html and the pictures.")],
    target: Annotated[str | None, typer.Option(help="A translation. Default: the model's own.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the page and pictures that the folder has.")] = False,
) -> None:
    """Draw where a model looks: every attention, layer and head, as a page and as pictures.

    Layers and heads count from 0.
    """
    from tqdm import tqdm

    from transformer_mt.data.word_splitting import printable
    from transformer_mt.decoding.filling.masked_words import MaskedModel
    from transformer_mt.errors import UserError
    from transformer_mt.inspect.attention import MAX_TOKENS, pair_attention
    from transformer_mt.inspect.pictures import num_files, refuse_earlier, write_pictures
    from transformer_mt.inspect.sentence_pair import masked_ids, sentence_pair

    if not force:
        refuse_earlier(output)
    folder, config = one.open()
    if target is not None and config.model.architecture == "encoder_only":
        raise UserError(
            "--target is for a model that translates, and model.architecture is encoder_only. Leave it out."
        )
    texts = one.as_read(sentence, config), None if target is None else typed(target)
    model, told = one.load_any(folder)
    if isinstance(model, MaskedModel):
        ids = masked_ids(model, texts[0], MAX_TOKENS)
        attentions = pair_attention(model.model, ids, [], model.tokenizer, model.tokenizer, texts)
        shown = "text: " + printable(" ".join(model.tokenizer.tokens(ids)))
    else:
        remark_on_text_alone(folder, config)
        src, tgt = sentence_pair(model, *texts, MAX_TOKENS)
        attentions = pair_attention(model.model, src, tgt, model.src_tokenizer, model.tgt_tokenizer, texts)
        shown = f"target: {printable(model.tgt_tokenizer.decode(tgt))}"
    files = write_pictures(output, attentions, told)
    page, first, *_ = list(tqdm(files, desc="Drawing", total=num_files(attentions), unit=" files", disable=None))
    print(shown)
    print(f"{page}: open it in a browser, choose layer and head, point at a word")
    more = num_files(attentions) - 1
    print(
        f"{first} and so on: {more} pictures, one for each attention and layer" if more > 1 else f"{first}: a picture"
    )
