"""`tmt data`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.checking import Asked, check_corpus
from transformer_mt.cli.options import path_argument
from transformer_mt.cli.verb_command import Verbs
from transformer_mt.cli.verb_options import with_options
from transformer_mt.plurals import counted

app = Verbs(help="Check data, write it out, part it, and compare sizes of vocabularies.", no_args_is_help=True)


@app.command("export")
def export(
    corpus: Annotated[str, typer.Argument(help="A built-in corpus: builtin:en-es.")],
    folder: Annotated[Path, path_argument("Where the files go; made if it is missing.")],
) -> None:
    """Write a built-in corpus out as aligned text files: train.en, train.es, and so on."""
    from transformer_mt.data.builtin.export import export_builtin

    for path, num_lines in export_builtin(corpus, folder):
        print(f"{path}: {counted(num_lines, 'line')}")


@app.command("split")
def split(
    src: Annotated[Path, path_argument("The file of sources, a sentence a line.")],
    tgt: Annotated[Path, path_argument("The file of targets, line by line the translations.")],
    folder: Annotated[Path, path_argument("Where the files go; made if it is missing.")],
    validation: Annotated[int, typer.Option(min=0, help="Pairs to validate on; 0: none.")] = 1000,
    test: Annotated[int, typer.Option(min=0, help="Pairs to test on; 0: none.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Another one takes other pairs.")] = 1,
) -> None:
    """Part two parallel files into training, validation and test, such that no sentence is in two of them.

    Pairs that share a source or a target, themselves or by way of others, stay together.
    """
    from transformer_mt.data.split import split_pair_of_files

    for path, num_lines in split_pair_of_files(src, tgt, folder, validation, test, seed):
        print(f"{path}: {counted(num_lines, 'line')}")


@app.command("vocab")
def vocab(
    config: Annotated[
        str, typer.Option("--config", "-c", help="YAML file: in this folder, in configs/, or a shipped one.")
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="Keys to change, such as tokenizer.kind=bpe.")] = None,
) -> None:
    """Compare sizes of the vocabulary on the training split: sentences in tokens, and how often entries occur.

    Each number stands for the source and for the target. Nothing is written.
    """
    from transformer_mt.config.loading import load_config
    from transformer_mt.data.encoding import learned_from
    from transformer_mt.data.preparation import training_texts
    from transformer_mt.data.vocabulary.sizes import SIZES, measured, reason, table_lines

    loaded = load_config(config, overrides or [])
    print(loaded.note or f"config: {loaded.path}")
    texts, tokenizer = learned_from(training_texts(loaded.config), loaded.config.tokenizer, loaded.config.data)
    print(f"{tokenizer.kind}, {'one vocabulary' if tokenizer.joint else 'a vocabulary for each language'}")
    for line in table_lines(measured(texts, tokenizer, SIZES)):
        print(line, flush=True)
    if tokenizer.kind != "word":
        print(reason())


@app.command("check")
@with_options
def check(asked: Asked) -> None:
    """Say what is wrong with sentence pairs: duplicates, leaks, shifted lines, wrong languages, and more.

    Nothing is changed or dropped. --write writes cleaned files beside those that are there.
    """
    check_corpus(asked)
