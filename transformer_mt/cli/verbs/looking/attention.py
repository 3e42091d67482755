"""`tmt attention`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import (
    RUNS,
    CheckpointOption,
    DeviceOption,
    RunOption,
    RunsOption,
    chosen_run,
    path_option,
)
from transformer_mt.cli.terminal import remark, typed


def attention(
    sentence: Annotated[
        str,
        typer.Argument(help="A sentence of the source language, or a text for an encoder alone."),
    ],
    output: Annotated[Path, path_option("The folder for attention.html and the pictures.")],
    target: Annotated[str | None, typer.Option(help="A translation. Default: the model's own.")] = None,
    run: RunOption = None,
    checkpoint: CheckpointOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the page and pictures that the folder has.")] = False,
    device: DeviceOption = "auto",
    runs: RunsOption = RUNS,
) -> None:
    """Draw where a model looks: every attention, layer and head, as a page and as pictures.

    Layers and heads count from 0.
    """
    from tqdm import tqdm

    from transformer_mt.data.word_splitting import printable
    from transformer_mt.decoding.filling.masked_words import MaskedModel
    from transformer_mt.decoding.load_model import load_trained_config
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.errors import UserError
    from transformer_mt.inspect.attention import MAX_TOKENS, pair_attention
    from transformer_mt.inspect.pictures import num_files, refuse_earlier, write_pictures
    from transformer_mt.inspect.sentence_pair import masked_ids, sentence_pair
    from transformer_mt.storage.checkpoint_files import find_checkpoint

    if not force:
        refuse_earlier(output)
    folder = chosen_run(run, runs)
    taken = find_checkpoint(folder, checkpoint).name
    texts = typed(sentence), None if target is None else typed(target)
    if load_trained_config(folder, taken)[0].model.architecture == "encoder_only":
        if target is not None:
            raise UserError(
                "--target is for a model that translates, and model.architecture is encoder_only. Leave it out."
            )
        masked = MaskedModel.load(folder, taken, device)
        ids = masked_ids(masked, texts[0], MAX_TOKENS)
        attentions = pair_attention(masked.model, ids, [], masked.tokenizer, masked.tokenizer, texts)
        told = "text: " + printable(" ".join(masked.tokenizer.tokens(ids)))
    else:
        translator = Translator.load(folder.path, taken, device)
        if translator.note:
            remark(translator.note)
        src, tgt = sentence_pair(translator, *texts, MAX_TOKENS)
        tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
        attentions = pair_attention(translator.model, src, tgt, *tokenizers, texts)
        told = f"target: {printable(translator.tgt_tokenizer.decode(tgt))}"
    files = write_pictures(output, attentions, f"{folder.path}, checkpoint {taken}")
    page, first, *_ = list(tqdm(files, desc="Drawing", total=num_files(attentions), unit=" files", disable=None))
    print(told)
    print(f"{page}: open it in a browser, choose layer and head, point at a word")
    print(f"{first} and so on: {num_files(attentions) - 1} pictures, one for each attention and layer")
