"""`tmt align`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.line_files import PairedFiles, open_both
from transformer_mt.cli.line_sink import LineSink, open_sink
from transformer_mt.cli.options import RUNS, RunOption, RunsOption, chosen_run, path_option
from transformer_mt.cli.terminal import remark
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.aligning.aligner import Aligner

CHUNK_LINES = 1000


def align(
    src: Annotated[Path | None, path_option("The sources, one a line, plain or gzip; - is standard input.")] = None,
    ref: Annotated[Path | None, path_option("Their translations, line by line; - is standard input.")] = None,
    run: RunOption = None,
    output: Annotated[Path | None, path_option("Where the alignments go. Default: standard output.")] = None,
    symmetrise: Annotated[
        str | None, typer.Option(help="grow-diag-final-and, intersection or union. Default: grow-diag-final-and.")
    ] = None,
    soft: Annotated[
        bool, typer.Option("--soft", help="i-j:probability, by the mean of both directions, of each likely link.")
    ] = False,
    train: Annotated[
        bool, typer.Option("--train", help="Train the run's aligner anew; else that happens at its first use.")
    ] = False,
    runs: RunsOption = RUNS,
) -> None:
    """Say which words of given translations translate which: lines of i-j, white-space words counted from 0."""
    if (src is None) != (ref is None):
        raise UserError("--src and --ref go together. Give both, or only --train.")
    if src is None and not train:
        raise UserError("There is nothing to align. Give --src FILE --ref FILE, or --train for the aligner alone.")
    if src is None and (output or symmetrise or soft):
        option = "--output" if output else "--symmetrise" if symmetrise else "--soft"
        raise UserError(f"{option} is for alignments of given lines. Give --src FILE --ref FILE too.")
    if symmetrise and soft:
        raise UserError("--symmetrise and --soft were both given. A soft alignment needs no symmetrisation: take one.")
    from transformer_mt.aligning.run_aligner import aligner_of_run, train_run_aligner
    from transformer_mt.aligning.symmetrisation import DEFAULT, find_symmetrisation

    find_symmetrisation(symmetrise or DEFAULT)
    make = train_run_aligner if train else aligner_of_run
    if src is None or ref is None:
        make(chosen_run(run, runs), remark)
        return
    with open_both(src, ref) as both:
        aligner = make(chosen_run(run, runs), remark)
        with open_sink(output, both.streams, partial(both.rest, "align"), results="alignments") as sink:
            _align_stream(aligner, both, sink, None if soft else symmetrise or DEFAULT)


def _align_stream(aligner: "Aligner", both: PairedFiles, sink: LineSink, symmetrise: str | None) -> None:
    """Align the pairs of lines; softly where there is no symmetrisation."""
    from transformer_mt.aligning.alignment import pharaoh
    from transformer_mt.aligning.bitext import MAX_WORDS
    from transformer_mt.aligning.words import words_of
    from transformer_mt.data.longest_line import LONGEST_LINE, is_beyond

    with sink.bar("Aligning") as bar:
        for chunk in both.chunks(CHUNK_LINES):
            beyond = [any(map(is_beyond, pair)) for pair in chunk]
            pairs = [("", "") if is_out else pair for pair, is_out in zip(chunk, beyond, strict=True)]
            if symmetrise is None:
                written = [pharaoh(links) for links in aligner.soft_links(pairs)]
                too_long = [max(len(words_of(text)) for text in pair) > MAX_WORDS for pair in pairs]
            else:
                alignments = aligner.align(pairs, symmetrise)
                written = [alignment.pharaoh() for alignment in alignments]
                too_long = [alignment.too_long for alignment in alignments]
            for number, (is_long, is_out) in enumerate(zip(too_long, beyond, strict=True), sink.num_done + 1):
                if is_long or is_out:
                    longest = f"{LONGEST_LINE:,} bytes" if is_out else f"{MAX_WORDS:,} words"
                    remark(f"line {number}: a side is longer than {longest}, left blank. Break it up.")
            sink.write(written, len(chunk))
            bar.update(len(chunk))
