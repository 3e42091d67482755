"""`tmt score`."""

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.line_files import PairedFiles, open_both
from transformer_mt.cli.line_sink import LineSink, open_sink
from transformer_mt.cli.options import Models, path_option
from transformer_mt.cli.search_flags import SCORE_FLAGS
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.unknown_words import UnknownWords
from transformer_mt.cli.verb_options import with_options

if TYPE_CHECKING:
    from transformer_mt.decoding.search.options import SearchOptions
    from transformer_mt.decoding.translator import Translator


class Format(StrEnum):
    """How a score is written."""

    text = "text"
    jsonl = "jsonl"


@partial(with_options, names=SCORE_FLAGS)
def score(
    src: Annotated[Path, path_option("The sources, one a line, plain or gzip; - is standard input.")],
    ref: Annotated[Path, path_option("Their translations, line by line; - is standard input.")],
    models: Models,
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
    *,
    decoding: dict[str, Any],
) -> None:
    """Score translations that are given: a line out for every pair of lines in."""
    with open_both(src, ref) as both:
        options = models.search_options(decoding)
        translator = models.load(decoding.get("precision"))
        unknown = UnknownWords()
        with open_sink(output, both.streams, partial(both.rest, "score"), results="scores") as sink:
            try:
                _score_stream(translator, options, both, sink, format, word_scores, unknown)
            finally:
                unknown.report("scores it as UNK", "scores them as UNK")


def _score_stream(
    translator: "Translator",
    options: "SearchOptions",
    both: PairedFiles,
    sink: LineSink,
    format: Format,
    word_scores: bool,
    unknown: UnknownWords,
) -> None:
    from transformer_mt.decoding.lines.line_formats import score_json, score_text
    from transformer_mt.decoding.lines.line_stream import chunk_size, score_chunks

    with sink.bar("Scoring") as bar:
        for chunk in score_chunks(translator.scorer, both.chunks(chunk_size(options)), options):
            written: list[str] = []
            for number, scored in enumerate(chunk, start=sink.num_done + 1):
                unknown.add(scored.unknown_words)
                if scored.problem and not scored.is_blank:
                    remark(f"line {number}: {scored.problem}, left blank")
                if format is Format.jsonl:
                    written.append(json.dumps(score_json(scored, word_scores), ensure_ascii=False))
                else:
                    written.append(score_text(scored, word_scores))
            sink.write(written, len(chunk))
            bar.update(len(chunk))
