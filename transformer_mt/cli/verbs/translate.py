"""`tmt translate`."""

import os.path
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.line_files import STANDARD, is_packed, name_of, open_lines, report_damaged, rest_of
from transformer_mt.cli.line_sink import open_sink
from transformer_mt.cli.options import Models, path_option
from transformer_mt.cli.terminal import remark, typed
from transformer_mt.cli.translation_stream import TranslationStream
from transformer_mt.cli.verb_options import with_options
from transformer_mt.errors import UserError
from transformer_mt.paths import user_path

if TYPE_CHECKING:
    from transformer_mt.decoding.demands import SourceLine
    from transformer_mt.decoding.lines.line_options import LineOptions
    from transformer_mt.decoding.lines.line_stream import ByteStream, LineTranslator
    from transformer_mt.decoding.search.options import SearchOptions
    from transformer_mt.decoding.translator import Translator


FirstLineOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=2**63,
        help="Which line of a text the input begins with, where the lines before it are done: numbers, samples and "
        "--prefix FILE go on from there.",
    ),
]


@with_options
def translate(
    sentences: Annotated[
        list[str] | None,
        typer.Argument(help="Sentences; -- stands before one that begins with a dash. None, or -: standard input."),
    ] = None,
    *,
    models: Models,
    image: Annotated[
        list[Path] | None,
        path_option("A picture of one line of text, for a model that reads pictures. Several times: in this order."),
    ] = None,
    input: Annotated[Path | None, path_option("A file, plain or gzip, one sentence a line.")] = None,
    output: Annotated[Path | None, path_option("Where the translations go. Default: standard output.")] = None,
    first_line: FirstLineOption = 1,
    lines: dict[str, Any],
    decoding: dict[str, Any],
) -> None:
    """Translate sentences, a file, standard input, or pictures of text: one line out for every line in."""
    if sentences and input:
        raise UserError("Sentences and --input were both given. Give one of them.")
    if image and (sentences or input):
        raise UserError(f"--image and {'sentences' if sentences else '--input'} were both given. Give one of them.")
    if file := next(filter(os.path.isfile, sentences or []), None):
        remark(f"{typed(file)} is a file; to translate its lines: --input {shlex.quote(typed(file))}")
    from transformer_mt.decoding.lines.line_options import line_options

    names = [str(path) for path in image] if image else sentences
    with _open_input(None if names == ["-"] else names, input) as texts:
        asked = line_options(models.config.decoding, lines, decoding)
        options = models.search_options(decoding, **asked.of_search)
        from transformer_mt.decoding.demands import demanding  # with torch
        from transformer_mt.decoding.lines.line_formats import FORMATS

        translator = models.load(decoding.get("precision"))
        translator.phrase_lists.read(options)  # before the output is opened
        pictures = _pictures(image, translator, asked, options) if image else []
        works = translator if asked.is_plain else _treated(translator, asked, options)
        text = _Text(texts, None if input == STANDARD else input, first_line)
        lined = demanding(text.chunks(options), asked.prefixes, options.constraints is not None, first_line)
        chunks = iter([pictures]) if pictures else lined
        format = FORMATS[asked.format]
        by_number = format.is_numbered(asked.n_best) or options.is_sampling or asked.prefix_file is not None
        is_told = not text.is_waited_for and (text.path is not None or not sys.stdin.isatty())
        others = _other_files(image, asked, options)
        with open_sink(output, text.streams, partial(text.rest, by_number), is_told=is_told, others=others) as sink:
            positions = translator.config.model.max_len
            stream = TranslationStream(
                sink, format, options, text.name, positions, text.is_waited_for, first_line, bool(pictures)
            )
            try:
                stream.run(works, chunks)
            finally:
                stream.unknown.report()


@dataclass(frozen=True)
class _Text:
    """What is translated: sentences, or the lines of a stream from a file, None for standard input. `first_line` is the
    number of the first line.
    """

    lines: "list[str] | ByteStream"
    path: Path | None
    first_line: int

    @property
    def name(self) -> str:
        """What messages call it."""
        return name_of(self.path or STANDARD)

    @property
    def is_waited_for(self) -> bool:
        """Whether a person waits for each sentence."""
        return isinstance(self.lines, list)

    @property
    def streams(self) -> "list[ByteStream]":
        """The stream, if it is one."""
        return [] if isinstance(self.lines, list) else [self.lines]

    def chunks(self, options: "SearchOptions") -> "Iterator[list[str]]":
        """Its lines, so many at a time as are translated together."""
        if isinstance(self.lines, list):
            return iter([self.lines])
        from transformer_mt.decoding.lines.line_stream import chunk_lines, chunk_size

        report = partial(report_damaged, self.name, first_line=self.first_line)
        return chunk_lines(self.lines, chunk_size(options), report, self.name)

    def rest(self, by_number: bool, first: int) -> str:
        """The command that goes on at line `first`, counted from where this one began; `by_number` where the outcome
        depends on the numbers of the lines.
        """
        packed = not isinstance(self.lines, list) and is_packed(self.lines)
        command = f"{rest_of(self.path, packed, first)} | tmt translate …"
        return command + f" --first-line {self.first_line + first - 1}" * by_number


def _pictures(
    images: list[Path], translator: "Translator", asked: "LineOptions", options: "SearchOptions"
) -> "list[SourceLine]":
    """The pictures as lines. UserError where the model reads text, or what is asked for needs the text of a line."""
    from transformer_mt.data.pictures.pictures import Pictures
    from transformer_mt.data.pictures.read_picture import read_picture
    from transformer_mt.decoding.demands import SourceLine

    if not isinstance(translator.src_tokenizer, Pictures):
        raise UserError("--image is for a model with data.source_as: picture, and this one reads text. Give it text.")
    if not asked.is_plain or asked.prefixes or options.constraints is not None or options.glossary is not None:
        raise UserError(
            "--image goes with the search alone: what is done to a line's text, and prefixes, constraints and "
            "glossaries, need a text. Leave them out."
        )
    return [SourceLine(str(path), patches=read_picture(path, translator.src_tokenizer)) for path in images]


def _treated(translator: "Translator", asked: "LineOptions", options: "SearchOptions") -> "LineTranslator":
    from transformer_mt.finishing.treated import treated  # with the aligner and all, which few translations need

    return treated(translator, asked, options, remark)


def _other_files(images: list[Path] | None, asked: "LineOptions", options: "SearchOptions") -> list[Path]:
    """What is read beside the input, by options or by the config."""
    named = asked.prefix_file, asked.unk_dictionary, options.avoid, options.glossary
    return [*(images or []), *(user_path(path) for path in named if path is not None)]


@contextmanager
def _open_input(sentences: list[str] | None, path: Path | None) -> "Iterator[list[str] | ByteStream]":
    if sentences:
        yield [typed(sentence) for sentence in sentences]
        return
    if path is None or path == STANDARD:
        if sys.__stdin__ is None:
            raise UserError("Standard input is closed. Give sentences, or a file with --input.")
        if sys.stdin.isatty():
            remark("One sentence a line; Ctrl-D ends.")
    with open_lines(path or STANDARD, "--input") as texts:
        yield texts
