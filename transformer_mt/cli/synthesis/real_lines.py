"""What `tmt backtranslate` and `tmt distill` translate: real lines, and which of their translations they take."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from transformer_mt.cli.line_files import STANDARD, is_packed, name_of, open_lines
from transformer_mt.cli.options import Models, path_option
from transformer_mt.cli.terminal import remark
from transformer_mt.config.switching_off import NONE
from transformer_mt.errors import UserError
from transformer_mt.paths import is_file
from transformer_mt.synthesis.nearest import Likeness

if TYPE_CHECKING:
    from transformer_mt.decoding.lines.line_stream import ByteStream


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
        int | None, typer.Option(help="With --nearest, so many translations to choose from. Default: the beam's.")
    ] = None
    ref: Annotated[
        Path | None, path_option("With --nearest and --input, a file of their real translations, line by line.")
    ] = None

    def searching(self, models: Models, decoding: dict[str, Any], input: Path | None) -> dict[str, Any]:
        """What is searched by: these options, and as many translations as are asked for. `input` is the file of the
        real lines, None for training pairs. UserError for an option that says nothing without another, where minimum
        Bayes risk would choose too, and where there is nothing to choose from or by.
        """
        if self.nearest is None:
            for option, value in (("--n-best", self.n_best), ("--ref", self.ref)):
                if value is not None:
                    raise UserError(
                        f"{option} is {value}, and a line has one translation here, the best by the model. Give "
                        "--nearest too, or leave it out."
                    )
            return decoding
        if decoding.get("mbr") not in (None, NONE):
            raise UserError(
                f"--nearest is {self.nearest} and --mbr is {decoding['mbr']}, and each chooses the translation. Leave "
                "one of them out."
            )
        self._refuse_references(input)
        decoding = {**decoding, "mbr": NONE}
        n_best = self.n_best or models.search_options(decoding, n_best=self.n_best).num_rows
        if n_best == 1:
            raise UserError(
                f"--nearest is {self.nearest}, and the search finds one translation of a line. Give a larger --n-best."
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


class RealLines(NamedTuple):
    """Lines to translate, what messages call them, how many they are where that is known, and their real translations
    where these are asked for.
    """

    lines: Iterator[str]
    name: str
    num_lines: int | None = None
    references: Iterator[str] | None = None


def parted_pairs(pairs: Iterator[tuple[str, str]]) -> tuple[Iterator[str], Iterator[str]]:
    """Both sides of the pairs, to be read side by side."""
    one, other = tee(pairs)
    return (src for src, _ in one), (tgt for _, tgt in other)


def refuse_other_language(path: Path, languages: tuple[str, str], way_out: str) -> None:
    """UserError where the name of the input, packed or not, ends in the language that the run writes."""
    from transformer_mt.data.sources.files import suffix_of

    src, tgt = languages
    if suffix_of(path) == f".{tgt}" and tgt != src:
        raise UserError(
            f"{path} is text of {tgt} by its name, and the run translates {src} to {tgt}: it would have to read {tgt}. "
            f"{way_out}"
        )


@contextmanager
def input_lines(path: Path, output: Path, without: list[Path] | None, choice: Choice) -> "Iterator[RealLines]":
    """The lines of the file after `--input`, and of that after `--ref`. UserError where it is a file of `output`, which
    would be cut while it is read, or is standard input, and one of `without` too.
    """
    from transformer_mt.decoding.lines.line_stream import chunk_lines, chunk_pairs

    name = name_of(path)
    if path == STANDARD and STANDARD in (without or []):
        raise UserError("--input and --without are both -. Name a file for one of them.")
    if path != STANDARD and is_file(path) and any(path.samefile(one) for one in output.glob("train.*") if is_file(one)):
        raise UserError(f"--input {path} is a file that is written in --output {output}. Name another folder.")
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
        pairs = chunk_pairs(chunks, chunks_of(choice.ref, "--ref"), (name, name_of(choice.ref)))
        lines, references = parted_pairs(pair for chunk in pairs for pair in chunk)
        yield RealLines(lines, name, number, references)


def _report_blank(name: str, number: int) -> None:
    """Say once of an input that it is not UTF-8. Its wrong lines make no pairs."""
    remark(
        f"{name}, line {number}: not UTF-8; it stays blank, and so does any later line of this kind. Convert the file, "
        "for example with iconv -f LATIN1 -t UTF-8"
    )


def _count_lines(path: Path, stream: "ByteStream") -> int | None:
    """How many lines a plain file has, for the bar; None where that would take unpacking or a second reading."""
    if path == STANDARD or is_packed(stream) or not is_file(path):
        return None
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(partial(file.read, 2**20), b""))
