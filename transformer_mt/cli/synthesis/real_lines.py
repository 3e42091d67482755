"""What `tmt backtranslate` and `tmt distill` translate: real lines, and which of their translations they take."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from transformer_mt.cli.line_files import STANDARD, is_packed, name_of, open_lines
from transformer_mt.cli.options import Models, path_option
from transformer_mt.cli.terminal import remark
from transformer_mt.config.switching_off import NONE, option_of
from transformer_mt.errors import UserError
from transformer_mt.paths import is_file
from transformer_mt.plurals import counted
from transformer_mt.synthesis.nearest import Likeness

if TYPE_CHECKING:
    from transformer_mt.decoding.lines.line_stream import ByteStream

PAIRS, LIKELIEST = "train", "likeliest"  # what the files of an output are called, before their language
NUM_COMPARED = 100  # real translations that must be the same where the work is gone on with; the others may be mended


@dataclass(frozen=True)
class Choice:
    """Which of a line's translations makes the pair, each field an option (see `with_options`)."""

    nearest: Annotated[
        Likeness | None,
        typer.Option(
            help="Of several translations that one is taken which is most like the real one, by this score of a "
            "sentence. Default: the best by the model."
        ),
    ] = None
    n_best: Annotated[
        int | None,
        typer.Option(
            help="With --nearest: how many translations to choose from; samples need it. Default: the beam's."
        ),
    ] = None
    ref: Annotated[
        Path | None, path_option("With --nearest: a file with the real translation of each line of --input.")
    ] = None
    with_likeliest: Annotated[
        bool,
        typer.Option(
            "--with-likeliest",
            help="With --nearest: write the likeliest translations too, to likeliest.LANGUAGE beside the others.",
        ),
    ] = False

    def searching(self, models: Models, decoding: dict[str, Any], input: Path | None) -> dict[str, Any]:
        """What is searched by: these options, and as many translations as are asked for. `input` is the file of the
        real lines, None for training pairs. UserError for an option that says nothing without another, where minimum
        Bayes risk would choose too, and where there is nothing to choose from or by.
        """
        if self.nearest is None:
            for option, value in (("--n-best", self.n_best), ("--ref", self.ref)):
                if value is not None:
                    raise UserError(
                        f"{option} is {value}, and nothing is chosen by a real translation. Give --nearest too, or "
                        "leave it out."
                    )
            if self.with_likeliest:
                raise UserError(
                    "--with-likeliest is given, and the likeliest translations make the pairs. Give --nearest too, or "
                    "leave it out."
                )
            return decoding
        for key in ("mbr", "mbr_candidates"):
            if decoding.get(key) not in (None, NONE):
                raise UserError(
                    f"--nearest is {self.nearest} and {option_of(key)} is {decoding[key]}, and each chooses the "
                    "translation. Leave one of them out."
                )
        self._refuse_references(input)
        decoding = {**decoding, "mbr": NONE}
        n_best = self.n_best or models.search_options(decoding, n_best=self.n_best).num_rows
        if n_best == 1:
            raise UserError(
                f"--nearest is {self.nearest}, and the search finds one translation of a line. Give a larger "
                "--beam-size, or for samples a larger --n-best."
            )
        return {**decoding, "n_best": n_best}

    def _refuse_references(self, input: Path | None) -> None:
        if input is None and self.ref is not None:
            raise UserError(f"--ref is {self.ref}, and training pairs have targets of their own. Leave it out.")
        if input is not None and self.ref is None:
            raise UserError(
                f"--nearest is {self.nearest}, and no file has the real translations of {name_of(input)}. Give one "
                "with --ref, or leave --nearest out."
            )
        if self.ref is not None and not is_file(self.ref):
            raise UserError(f"There is no file {self.ref}. Check the name after --ref; a pipe cannot be read twice.")
        if self.ref is not None and input is not None and is_file(input) and self.ref.samefile(input):
            raise UserError(f"--ref and --input are both {input}. Give the file of the real translations with --ref.")

    def refuse_language(self, languages: tuple[str, str]) -> None:
        """UserError where the real translations are of the language of the lines, by their name."""
        from transformer_mt.data.sources.files import suffix_of

        if self.ref is not None and suffix_of(self.ref) == f".{languages[0]}" and languages[0] != languages[1]:
            raise UserError(
                f"--ref {self.ref} is text of {languages[0]} by its name, and so are the lines. Give the file of their "
                f"translations to {languages[1]}."
            )


class RealLines(NamedTuple):
    """Lines to translate, what messages call them, how many they are where that is known, and where they are asked for
    their real translations, with the first of these.
    """

    lines: Iterator[str]
    name: str
    num_lines: int | None = None
    references: Iterator[str] | None = None
    first_references: tuple[str, ...] = ()

    @classmethod
    def of_pairs(cls, pairs: Iterator[tuple[str, str]], name: str, num_lines: int | None = None) -> "RealLines":
        """The sources of the pairs, with the targets as their real translations. Both are to be read side by side."""
        head = tuple(islice(pairs, NUM_COMPARED))
        one, other = tee(chain(head, pairs))
        first = tuple(tgt for _, tgt in head)
        return cls((src for src, _ in one), name, num_lines, (tgt for _, tgt in other), first)


def refuse_other_language(path: Path, languages: tuple[str, str], way_out: str) -> None:
    """UserError where the name of the input, packed or not, ends in the language that the run writes."""
    from transformer_mt.data.sources.files import suffix_of

    src, tgt = languages
    if suffix_of(path) == f".{tgt}" and tgt != src:
        raise UserError(
            f"{path} is text of {tgt} by its name, and the run translates {src} to {tgt}: it would have to read {tgt}. "
            f"{way_out}"
        )


def refuse_written(path: Path, output: Path, told: str) -> None:
    """UserError where the file is one that is written in `output`: each line that is read of it would make another."""
    real = path.resolve()
    if real.parent == output.resolve() and real.name.startswith((f"{PAIRS}.", f"{LIKELIEST}.")):
        raise UserError(f"{told} {path} is a file that is written in --output {output}. Name another folder.")


@contextmanager
def input_lines(path: Path, output: Path, without: list[Path] | None, choice: Choice) -> "Iterator[RealLines]":
    """The lines of the file after `--input`, and of that after `--ref`. UserError where one is a file of `output`, and
    where the input is standard input, and one of `without` too.
    """
    from transformer_mt.decoding.lines.line_stream import chunk_lines, chunk_pairs

    name = name_of(path)
    if path == STANDARD and STANDARD in (without or []):
        raise UserError("--input and --without are both -. Name a file for one of them.")
    if path != STANDARD:
        refuse_written(path, output, "--input")
    if choice.ref is not None:
        refuse_written(choice.ref, output, "--ref")
    with ExitStack() as opened:

        def chunks_of(path: Path, option: str) -> Iterator[list[str]]:
            stream = streams[option] = opened.enter_context(open_lines(path, option))
            told = name_of(path)
            return chunk_lines(stream, 1000, partial(_report_blank, told), told, onwards="> TEXT_FILE")

        streams: dict[str, ByteStream] = {}
        chunks = chunks_of(path, "--input")
        number = _count_lines(path, streams["--input"])
        if choice.ref is None:
            yield RealLines((line for chunk in chunks for line in chunk), name, number)
            return
        references = chunks_of(choice.ref, "--ref")
        pairs = chunk_pairs(chunks, references, (name, str(choice.ref)))
        real = RealLines.of_pairs((pair for chunk in pairs for pair in chunk), name, number)
        of_ref = _count_lines(choice.ref, streams["--ref"])
        if number is not None and of_ref is not None and number != of_ref:
            raise UserError(
                f"{name} has {counted(number, 'line')}, and {choice.ref} {counted(of_ref, 'line')}. Line n of one must "
                "translate line n of the other: find where they part, and make them equal."
            )
        yield real


def _report_blank(name: str, number: int) -> None:
    """Say once of an input that it is not UTF-8. Its wrong lines make no pairs."""
    remark(
        f"{name}, line {number}: not UTF-8; it stays blank, and so does any later line of this kind. Convert the file, "
        "for example with iconv -f LATIN1 -t UTF-8"
    )


def _count_lines(path: Path, stream: "ByteStream") -> int | None:
    """How many lines a plain file has; None where that would take unpacking or a second reading."""
    if path == STANDARD or is_packed(stream) or not is_file(path):
        return None
    number, block = 0, b"\n"
    with path.open("rb") as file:
        while read := file.read(2**20):
            number, block = number + read.count(b"\n"), read
    return number + (not block.endswith(b"\n"))
