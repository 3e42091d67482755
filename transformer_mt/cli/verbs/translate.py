"""`tmt translate`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.line_files import STANDARD, is_packed, name_of, open_lines, open_output, report_damaged, rest_of
from transformer_mt.cli.line_sink import LineSink
from transformer_mt.cli.options import (
    RUNS,
    CheckpointsOption,
    DeviceOption,
    EnsembleModeOption,
    RunsOption,
    SeveralRunsOption,
    chosen_runs,
    path_option,
)
from transformer_mt.cli.search_flags import with_search_flags
from transformer_mt.cli.terminal import read_output, remark, typed
from transformer_mt.cli.translation_stream import TranslationStream
from transformer_mt.cli.treatments import AlignmentKind, Treatments
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.decoding.lines.line_stream import ByteStream
    from transformer_mt.decoding.search.options import SearchOptions


class Format(StrEnum):
    """How a translation is written."""

    text = "text"
    jsonl = "jsonl"
    moses = "moses"


@with_search_flags
def translate(
    sentences: Annotated[
        list[str] | None,
        typer.Argument(help="Sentences; -- stands before one that begins with a dash. None, or -: standard input."),
    ] = None,
    run: SeveralRunsOption = None,
    checkpoint: CheckpointsOption = None,
    ensemble_mode: EnsembleModeOption = None,
    input: Annotated[Path | None, path_option("A file, plain or gzip, one sentence a line.")] = None,
    output: Annotated[Path | None, path_option("Where the translations go. Default: standard output.")] = None,
    n_best: Annotated[
        int, typer.Option(help="Translations of each sentence; as text, a line each: NUMBER ||| TEXT ||| SCORE.")
    ] = 1,
    format: Annotated[
        Format,
        typer.Option(
            help="jsonl: a JSON object a line, with the source and its scored translations; moses: an n-best list as "
            "Moses writes it, NUMBER ||| TEXT ||| F0= LOG_PROB ||| SCORE, counted from 0."
        ),
    ] = Format.text,
    prefix: Annotated[
        str | None,
        typer.Option(
            help="A file with the beginning of each translation, one a line, blank for none; or tab: it stands in the "
            "line itself, behind the source and a tab."
        ),
    ] = None,
    html: Annotated[
        bool,
        typer.Option(
            "--html", help="Lines are HTML: text is translated, tags follow the words that they stand around."
        ),
    ] = False,
    alignment: Annotated[
        AlignmentKind | None,
        typer.Option(
            help="Write which words translate which behind each translation: i-j, white-space words counted from 0; "
            "soft: with probabilities."
        ),
    ] = None,
    replace_unk: Annotated[
        bool,
        typer.Option("--replace-unk", help="Put the source's word in the place of each word that the model lacks."),
    ] = False,
    unk_dictionary: Annotated[
        Path | None,
        path_option("With --replace-unk, the words to take instead: on each line a source word, a tab, a translation."),
    ] = None,
    confidence: Annotated[
        bool,
        typer.Option(
            "--confidence",
            help="How sure one may be, 0 to 1, learned from the run's validation split: of a sentence, behind its "
            "translation; in jsonl of its words too. See tmt calibrate.",
        ),
    ] = False,
    reject_below: Annotated[
        float | None, typer.Option(help="Leave a line blank, for a person, where its confidence is below this number.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="What comes out as it is, of urls, emails, numbers and placeholders such as {name}, parted by commas."
        ),
    ] = None,
    too_long: Annotated[
        TooLong,
        typer.Option(
            help="Of a sentence longer than the model's positions: leave its line blank, translate its beginning "
            "(truncate), or translate it in pieces (split)."
        ),
    ] = TooLong.BLANK,
    device: DeviceOption = "auto",
    runs: RunsOption = RUNS,
    *,
    decoding: dict[str, Any],
) -> None:
    """Translate sentences, a file, or standard input: one line out for every line in."""
    if sentences and input:
        raise UserError("Sentences and --input were both given. Give one of them.")
    treatments = Treatments(html, alignment, replace_unk, unk_dictionary, confidence, reject_below, keep)
    treatments.refuse_clashes(prefix, decoding)
    if sentences == ["-"]:
        sentences = None
    from transformer_mt.decoding.demands import demanding
    from transformer_mt.decoding.lines.line_formats import FORMATS
    from transformer_mt.decoding.search.options import search_options

    with _open_input(sentences, input) as lines:
        folders = chosen_runs(run, runs)
        from transformer_mt.decoding.translator import Translator
        from transformer_mt.machine.memory import keep_freed_memory

        keep_freed_memory()
        paths = [folder.path for folder in folders]
        translator = Translator.load(paths, checkpoint or None, device, decoding.get("precision"), ensemble_mode)
        if translator.note:
            remark(translator.note)
        options = search_options(
            translator.config.decoding,
            n_best=n_best,
            too_long=too_long,
            scored=format is not Format.text or n_best > 1,
            **decoding,
        )
        works = treatments.around(translator, folders[0], options)
        # The file is opened last, so that an error before leaves an earlier file as it was.
        with open_output(output, *[] if isinstance(lines, list) else [lines]) as file:
            source, packed = None if input == STANDARD else input, not isinstance(lines, list) and is_packed(lines)
            sink = LineSink(
                file,
                None if file is read_output() else output,
                lambda first: f"{rest_of(source, packed, first)} | tmt translate …",
                numbered_from=FORMATS[format].numbered_from(n_best),
            )
            stream = TranslationStream(
                sink,
                FORMATS[format],
                options,
                name_of(source or STANDARD),
                translator.config.model.max_len,
                is_waited_for=isinstance(lines, list),
            )
            try:
                stream.run(
                    works, demanding(_chunks(lines, options, stream.name), prefix, options.constraints is not None)
                )
            except KeyboardInterrupt:
                sink.cut()
                is_told = sink.num_done > 0 and not isinstance(lines, list) and not sys.stdin.isatty()
                raise KeyboardInterrupt(*[sink.way_on()] * is_told) from None
            finally:
                stream.unknown.report()


def _chunks(lines: "list[str] | ByteStream", options: "SearchOptions", name: str) -> "Iterator[list[str]]":
    if isinstance(lines, list):
        return iter([lines])
    from transformer_mt.decoding.lines.line_stream import chunk_lines, chunk_size

    return chunk_lines(lines, chunk_size(options), partial(report_damaged, name))


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
    with open_lines(path or STANDARD, "--input") as lines:
        yield lines
