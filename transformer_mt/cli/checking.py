"""`tmt data check`: what is asked for, the check, and its outputs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from transformer_mt.cli.line_files import STANDARD
from transformer_mt.cli.options import path_option
from transformer_mt.cli.report_files import refuse_place, write_page
from transformer_mt.cli.terminal import remark
from transformer_mt.errors import UserError
from transformer_mt.paths import user_path
from transformer_mt.plurals import counted

if TYPE_CHECKING:
    from transformer_mt.checking.check import CheckedSplit
    from transformer_mt.data.sources.source import Source


@dataclass(frozen=True)
class Asked:
    """What `tmt data check` is asked for, each field an option (see `with_options`)."""

    arguments: Annotated[
        list[str] | None, typer.Argument(help="Two files, SRC TGT; or with --config keys to change.", metavar="SRC TGT")
    ] = None
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="YAML file, whose training, validation and test are checked.")
    ] = None
    validation: Annotated[
        tuple[str, str] | None, typer.Option(help="Of two files: SRC TGT that the training must not hold.")
    ] = None
    test: Annotated[tuple[str, str] | None, typer.Option(help="Of two files: as --validation.")] = None
    examples: Annotated[int, typer.Option(min=0, help="Pairs that are shown of each fault.")] = 3
    jsonl: Annotated[
        Path | None,
        path_option(
            "A file of JSON lines with every pair that has a fault; - is standard output, and the text that is "
            "printed there else goes to standard error."
        ),
    ] = None
    html: Annotated[Path | None, path_option("A page with what was found, and where it lies.")] = None
    write: Annotated[
        Path | None, path_option("A new folder for the training pairs that are kept, and for those taken out.")
    ] = None


class _Corpus(NamedTuple):
    """What is checked: sources by split, the most words of a side (EOS takes a position too), the endings of files."""

    sources: "dict[str, list[Source]]"
    max_words: int
    endings: tuple[str, str]


def check_corpus(asked: Asked) -> None:
    """Check the corpus, write the files that were asked for, and print what was found, on standard error where
    standard output gets the JSON lines.
    """
    from transformer_mt.checking.written.clean import refuse_folder, write_clean

    corpus = _of_config(asked) if asked.config is not None else _of_files(asked)
    _refuse_places(asked, corpus)
    if asked.write is not None:
        refuse_folder(asked.write)
    from transformer_mt.checking.check import check_sources
    from transformer_mt.checking.faults.languages import swap_of_sides
    from transformer_mt.checking.written.told import text_lines
    from transformer_mt.training.stop_signals import unwind_on_signals

    try:
        checked = check_sources(corpus.sources, corpus.max_words, asked.examples)
        trained = [split for split in checked if split.name == "train"]
        for split in trained:
            if swap := swap_of_sides(split.direction or corpus.endings, split.learned.languages):
                split.remarks.insert(0, f"swapped: {swap}")
        say = remark if asked.jsonl == STANDARD else print
        for line in text_lines(checked):
            say(line)
        _write_reports(asked, checked)
        if asked.write is not None:
            with unwind_on_signals():  # nothing half written stays there
                written = write_clean(trained, asked.write, corpus.endings)
            for path, number in written:
                remark(f"{path}: {counted(number, 'line')}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt("The data was only read; what had been written as a whole is there.") from None


def _of_config(asked: Asked) -> _Corpus:
    from transformer_mt.config.loading import load_config
    from transformer_mt.config.sections.section import SPLITS
    from transformer_mt.data.sources.kinds import sources_of_pairs

    if asked.validation or asked.test:
        raise UserError("--validation and --test are for two files. Leave them out: a config names its own.")
    assert asked.config is not None
    loaded = load_config(asked.config, asked.arguments or [])
    remark(loaded.note or f"config: {loaded.path}")
    config = loaded.config
    sources = {}
    for name in SPLITS:
        given = getattr(config.data, name)
        pairs = [source for source in given if not source.mono]
        if pairs and (number := len(given) - len(pairs)):
            remark(f"{name}: {counted(number, 'source')} of text in one language, without translations: not looked at")
        sources[name] = sources_of_pairs(pairs if name != "train" else pairs or given, config.data)
    return _Corpus(sources, config.model.max_len - 1, (f".{config.data.src_lang}", f".{config.data.tgt_lang}"))


def _of_files(asked: Asked) -> _Corpus:
    from transformer_mt.checking.check import MAX_WORDS
    from transformer_mt.config.sections.data import DataConfig
    from transformer_mt.config.sections.sources import source_of_files
    from transformer_mt.data.sources.kinds import sources_of_pairs
    from transformer_mt.data.split import extensions

    arguments = asked.arguments or []
    if len(arguments) != 2:
        raise UserError("Which pairs? Give two files, `tmt data check SRC TGT`, or a config with --config FILE.")
    pairs = {"train": arguments, "validation": asked.validation, "test": asked.test}
    sources = {}
    for name, files in pairs.items():
        if files:
            config = source_of_files(*map(Path, files))
            sources[name] = sources_of_pairs([config], DataConfig(train=[config], validation=[config]))
    src, tgt = map(user_path, arguments)
    return _Corpus(sources, MAX_WORDS, extensions(src, tgt))


def _refuse_places(asked: Asked, corpus: _Corpus) -> None:
    """UserError where a report cannot be written, or would replace what is checked."""
    inputs = [path for sources in corpus.sources.values() for source in sources for path in source.files()]
    for option, path in (("--jsonl", asked.jsonl), ("--html", asked.html)):
        if path is None or (option == "--jsonl" and path == STANDARD):
            continue
        refuse_place(path, option, inputs, is_page=option == "--html")
        if asked.write is not None and asked.write.absolute() in (path.absolute(), path.absolute().parent):
            raise UserError(f"{path} is in the way of --write {asked.write}. Name another place for {option}.")
    if asked.html is not None and asked.jsonl is not None and asked.html.absolute() == asked.jsonl.absolute():
        raise UserError(f"--html and --jsonl are both {asked.html}. Name two files.")


def _write_reports(asked: Asked, checked: "list[CheckedSplit]") -> None:
    from transformer_mt.checking.written.page import check_page
    from transformer_mt.checking.written.told import json_lines
    from transformer_mt.storage.files import make_file, writing

    def write_lines(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in json_lines(checked))

    if asked.jsonl == STANDARD:
        for line in json_lines(checked):
            print(line)
    elif asked.jsonl is not None:
        with writing(asked.jsonl, "Name another place for --jsonl."):
            make_file(asked.jsonl, write_lines)
        remark(f"jsonl: {asked.jsonl}")
    if asked.html is not None:
        write_page(asked.html, "--html", check_page(checked), "html")
