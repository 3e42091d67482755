"""`tmt score`."""

import json
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.line_files import STANDARD, name_of, open_lines, open_output, report_damaged, rest_of_both
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
from transformer_mt.cli.search_flags import SCORE_FLAGS, with_search_flags
from transformer_mt.cli.terminal import read_output, remark
from transformer_mt.cli.unknown_words import UnknownWords
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.decoding.lines.line_stream import ByteStream
    from transformer_mt.decoding.search.options import SearchOptions
    from transformer_mt.decoding.translator import Translator

    Inputs = list[tuple[Path, ByteStream]]


class Format(StrEnum):
    """How a score is written."""

    text = "text"
    jsonl = "jsonl"


@partial(with_search_flags, names=SCORE_FLAGS)
def score(
    src: Annotated[Path, path_option("The sources, one a line, plain or gzip; - is standard input.")],
    ref: Annotated[Path, path_option("Their translations, line by line; - is standard input.")],
    run: SeveralRunsOption = None,
    checkpoint: CheckpointsOption = None,
    ensemble_mode: EnsembleModeOption = None,
    output: Annotated[Path | None, path_option("Where the scores go. Default: standard output.")] = None,
    format: Annotated[
        Format, typer.Option(help="text: the score; jsonl: an object a line, with texts, log_prob and tokens too.")
    ] = Format.text,
    word_scores: Annotated[
        bool,
        typer.Option(
            "--word-scores",
            help="The log-probability of each word and of EOS too: as text behind the score and a tab; in jsonl also "
            "of each token.",
        ),
    ] = False,
    device: DeviceOption = "auto",
    runs: RunsOption = RUNS,
    *,
    decoding: dict[str, Any],
) -> None:
    """Score translations that are given: a line out for every pair of lines in."""
    if src == ref == STANDARD:
        raise UserError("--src and --ref are both -. Name a file for one of them.")
    from transformer_mt.decoding.search.options import search_options

    with open_lines(src, "--src") as src_lines, open_lines(ref, "--ref") as ref_lines:
        folders = [folder.path for folder in chosen_runs(run, runs)]
        from transformer_mt.decoding.translator import Translator
        from transformer_mt.machine.memory import keep_freed_memory

        keep_freed_memory()
        translator = Translator.load(folders, checkpoint or None, device, decoding.get("precision"), ensemble_mode)
        if translator.note:
            remark(translator.note)
        options = search_options(translator.config.decoding, **decoding)
        inputs = [(src, src_lines), (ref, ref_lines)]
        unknown = UnknownWords()
        # The file is opened last, so that an error before leaves an earlier file as it was.
        with open_output(output, src_lines, ref_lines) as stream:
            sink = LineSink(
                stream,
                None if stream is read_output() else output,
                partial(rest_of_both, "score", inputs),
                results="scores",
            )
            try:
                _score_stream(translator, options, inputs, sink, format, word_scores, unknown)
            except KeyboardInterrupt:
                sink.cut()
                raise KeyboardInterrupt(*[sink.way_on()] * (sink.num_done > 0)) from None
            finally:
                unknown.report("scores it as UNK", "scores them as UNK")


def _score_stream(
    translator: "Translator",
    options: "SearchOptions",
    inputs: "Inputs",
    sink: LineSink,
    format: Format,
    word_scores: bool,
    unknown: UnknownWords,
) -> None:
    from tqdm import tqdm

    from transformer_mt.decoding.lines.line_formats import score_json, score_text
    from transformer_mt.decoding.lines.line_stream import chunk_lines, chunk_pairs, chunk_size, score_chunks

    size = chunk_size(options)
    names = name_of(inputs[0][0]), name_of(inputs[1][0])
    src, ref = (
        chunk_lines(lines, size, partial(report_damaged, name), name, onwards="> TEXT_FILE")
        for (_, lines), name in zip(inputs, names, strict=True)
    )
    hidden = not sys.stderr.isatty() or sink.stream.isatty()
    with tqdm(desc="Scoring", unit=" lines", disable=hidden) as bar:
        for chunk in score_chunks(translator.scorer, chunk_pairs(src, ref, names), options):
            written: list[str] = []
            for number, scored in enumerate(chunk, start=sink.num_done + 1):
                unknown.add(scored.unknown_words)
                if scored.problem and not scored.is_blank:
                    remark(f"line {number}: {scored.problem}, left blank")
                if format is Format.jsonl:
                    written.append(json.dumps(score_json(scored, word_scores), ensure_ascii=False))
                else:
                    written.append(score_text(scored, word_scores))
            sink.write("".join(line + "\n" for line in written), len(chunk))
            bar.update(len(chunk))
