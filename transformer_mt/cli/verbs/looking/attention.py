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
    sentence: Annotated[str, typer.Argument(help="A sentence of the source language.")],
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
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.inspect.attention import MAX_TOKENS, pair_attention
    from transformer_mt.inspect.pictures import num_files, refuse_earlier, write_pictures
    from transformer_mt.inspect.sentence_pair import sentence_pair
    from transformer_mt.storage.checkpoint_files import find_checkpoint

    if not force:
        refuse_earlier(output)
    folder = chosen_run(run, runs)
    taken = find_checkpoint(folder, checkpoint).name
    translator = Translator.load(folder.path, taken, device)
    if translator.note:
        remark(translator.note)
    texts = typed(sentence), None if target is None else typed(target)
    src, tgt = sentence_pair(translator, *texts, MAX_TOKENS)
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    attentions = pair_attention(translator.model, src, tgt, *tokenizers, texts)
    files = write_pictures(output, attentions, f"{folder.path}, checkpoint {taken}")
    page, first, *_ = list(tqdm(files, desc="Drawing", total=num_files(attentions), unit=" files", disable=None))
    print(f"target: {printable(translator.tgt_tokenizer.decode(tgt))}")
    print(f"{page}: open it in a browser, choose layer and head, point at a word")
    print(f"{first} and so on: {num_files(attentions) - 1} pictures, one for each attention and layer")
