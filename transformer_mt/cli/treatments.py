"""What a user asks to be done to each line before and after it is translated."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.options import path_option
from transformer_mt.cli.terminal import remark
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.decoding.lines.line_stream import LineTranslator
    from transformer_mt.decoding.search.options import SearchOptions
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.storage.run_folder import RunFolder


class AlignmentKind(StrEnum):
    """Links of words, or all that are likely with their probability."""

    hard = "hard"
    soft = "soft"


class AlignmentSource(StrEnum):
    """What says which words translate which."""

    aligner = "aligner"
    attention = "attention"


@dataclass(frozen=True)
class Treatments:
    """The options of that kind, each field one (see `with_search_flags`)."""

    html: Annotated[
        bool,
        typer.Option(
            "--html", help="Lines are HTML: text is translated, tags follow the words that they stand around."
        ),
    ] = False
    alignment: Annotated[
        AlignmentKind | None,
        typer.Option(
            help="Write which words translate which behind each translation: i-j, white-space words counted from 0; "
            "soft: with probabilities."
        ),
    ] = None
    alignment_from: Annotated[
        AlignmentSource | None,
        typer.Option(help="Align by the run's aligner or by the model's own attention. Default: aligner."),
    ] = None
    alignment_layer: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --alignment-from attention, whose attention: 1 is the first. Default: that before the last.",
        ),
    ] = None
    replace_unk: Annotated[
        bool,
        typer.Option("--replace-unk", help="Put the source's word in the place of each word that the model lacks."),
    ] = False
    unk_dictionary: Annotated[
        Path | None,
        path_option("With --replace-unk, the words to take instead: on each line a source word, a tab, a translation."),
    ] = None
    confidence: Annotated[
        bool,
        typer.Option(
            "--confidence",
            help="How sure one may be, 0 to 1, learned from the run's validation split: of a sentence, behind its "
            "translation; in jsonl of its words too. See tmt calibrate.",
        ),
    ] = False
    reject_below: Annotated[
        float | None, typer.Option(help="Leave a line blank, for a person, where its confidence is below this number.")
    ] = None
    keep: Annotated[
        str | None,
        typer.Option(
            help="What comes out as it is, of urls, emails, numbers and placeholders such as {name}, parted by commas."
        ),
    ] = None

    def refuse_clashes(self, prefix: str | None, decoding: dict[str, Any]) -> None:
        """Raise UserError, by both names, for options that cannot be had together."""
        if self.html and prefix is not None:
            raise UserError("--html and --prefix were both given. Tags are put into whole translations: leave one out.")
        if self.html and self.alignment is not None:
            raise UserError("--html and --alignment were both given. Words of HTML hold tags: leave one out.")
        if self.alignment_from is not None and self.alignment is None:
            raise UserError("--alignment-from was given without --alignment. Give --alignment hard or soft too.")
        if self.alignment_layer is not None and self.alignment_from is not AlignmentSource.attention:
            raise UserError("--alignment-layer was given without --alignment-from attention. Give both.")
        if self.unk_dictionary is not None and not self.replace_unk:
            raise UserError("--unk-dictionary was given without --replace-unk. Give both.")
        if self.replace_unk and decoding.get("allow_unk") is False:
            raise UserError("--replace-unk and --no-allow-unk were both given. Only UNK is replaced: leave one out.")

        if self.reject_below is not None and not 0 <= self.reject_below <= 1:
            raise UserError(
                f"--reject-below is {self.reject_below:g}, and a confidence is 0 to 1. Give a number between them."
            )

    def around(self, translator: "Translator", run: "RunFolder", options: "SearchOptions") -> "LineTranslator":
        """The translator in all of these, the last outermost. The aligner is that of `run`, trained at its first use;
        so is the calibration of confidences, for these options.

        Raises UserError where the dictionary cannot be read or is wrong, for options that cannot be had together, and
        as `calibration_of_run` does.
        """
        if self.html and options.constraints is not None:
            raise UserError(
                "--html and --constraints were both given. A constraint belongs to a whole line, of which HTML makes "
                "segments: leave one out."
            )
        works: LineTranslator = translator
        dictionary = {}
        if self.unk_dictionary is not None:
            from transformer_mt.finishing.unknown_words import read_dictionary

            dictionary = read_dictionary(self.unk_dictionary)
        replaces = self.replace_unk and not translator.tgt_tokenizer.knows_every_text
        if self.replace_unk and not replaces:
            remark("--replace-unk changes nothing here: the model writes words in pieces, and none is unknown to it")
        if self.keep is not None:
            from transformer_mt.markup.keeping_translator import refuse_order

            refuse_order(options)
        if replaces or self.html or self.alignment or self.keep is not None:
            works = self._aligned(translator, run, replaces, dictionary)
        if self.confidence or self.reject_below is not None:
            from transformer_mt.finishing.confidence import ConfidentTranslator
            from transformer_mt.finishing.run_calibration import calibration_of_run

            searched = options.model_copy(update={"allow_unk": True}) if replaces else options
            calibration = calibration_of_run(translator, searched, remark).calibration
            # The last, since it leaves out whole lines.
            works = ConfidentTranslator(works, calibration, self.reject_below, is_written=self.confidence)
        return works

    def _aligned(
        self, translator: "Translator", run: "RunFolder", replaces: bool, dictionary: dict[str, str]
    ) -> "LineTranslator":
        """The translator in those that need the aligner."""
        from transformer_mt.aligning.run_aligner import aligner_of_run

        works: LineTranslator = translator
        aligner_when_needed = cache(partial(aligner_of_run, run, remark))
        if replaces:
            from transformer_mt.finishing.unknown_words import UnknownWordReplacer

            works = UnknownWordReplacer(works, aligner_when_needed(), translator.tgt_tokenizer, dictionary)
        if self.keep is not None:
            from transformer_mt.markup.keeping_translator import KeepingTranslator
            from transformer_mt.markup.kept import kinds_of

            works = KeepingTranslator(works, translator.tgt_tokenizer, kinds_of(self.keep), aligner_when_needed)
        if self.html:
            from transformer_mt.markup.html_translator import HtmlTranslator

            works = HtmlTranslator(works, aligner_when_needed())
        if self.alignment is not None:
            from transformer_mt.finishing.attention_alignment import BEFORE_THE_LAST, AttentionAligner
            from transformer_mt.finishing.word_alignment import AlignedTranslator

            layer = BEFORE_THE_LAST if self.alignment_layer is None else self.alignment_layer - 1
            by_attention = self.alignment_from is AlignmentSource.attention
            aligner = AttentionAligner(translator, layer) if by_attention else aligner_when_needed()
            works = AlignedTranslator(works, aligner, soft=self.alignment is AlignmentKind.soft)
        return works
