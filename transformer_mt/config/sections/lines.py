"""The section `decoding.lines`: what `tmt translate` does with a line around the search, and how it writes it."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from transformer_mt.config.sections.section import PositiveInt, Section

WORDS_OF_HTML = "Words of HTML hold tags"  # why they have no alignments


class LinesConfig(Section):
    """What `tmt translate` does with each line before and after the search, and how it writes it."""

    html: bool = Field(default=False, description="Lines are HTML: text is translated, tags follow their words.")
    keep: list[Literal["placeholders", "urls", "emails", "numbers"]] | None = Field(
        default=None, description="Kinds of text that come out as they are."
    )
    replace_unk: bool = Field(
        default=False, description="Put the source's word in the place of each word that the model lacks."
    )
    unk_dictionary: str | None = Field(
        default=None, description="A file of words that replace_unk takes instead, each behind its source and a tab."
    )
    alignment: Literal["hard", "soft"] | None = Field(
        default=None, description="Write which words translate which; soft: with probabilities."
    )
    alignment_from: Literal["aligner", "attention"] = Field(
        default="aligner", description="Align by the run's aligner or by the model's own attention."
    )
    alignment_layer: PositiveInt | None = Field(
        default=None, description="Whose attention, 1 is the first layer. Default: the layer before the last."
    )
    confidence: bool = Field(default=False, description="Write how sure one may be of a translation, 0 to 1.")
    reject_below: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="Leave a line blank, for a person, where its confidence is below this number."
    )
    too_long: Literal["blank", "truncate", "split"] = Field(
        default="blank", description="What is translated of a line longer than the model: nothing, its beginning, all."
    )
    prefix: Literal["tab"] | None = Field(
        default=None, description="Where a line has the beginning of its translation: behind the source and a tab."
    )
    n_best: PositiveInt = Field(default=1, description="How many translations of each line are written.")
    format: Literal["text", "jsonl", "moses"] = Field(default="text", description="How translations are written.")

    @property
    def needs_confidence(self) -> bool:
        """Whether each translation is to have one. None is below a `reject_below` of 0."""
        return self.confidence or bool(self.reject_below)

    @property
    def unused(self) -> str:
        """For what searches and obeys none of these keys: a sentence on those that are set. Nothing where none is."""
        keys = ", ".join(f"decoding.lines.{key}" for key in self.model_dump(exclude_defaults=True))
        return f"{keys}: for tmt translate alone, not obeyed here" if keys else ""


class Clash(NamedTuple):
    """Two keys of the section `decoding` that cannot both be set, and why."""

    one: str
    other: str
    because: str


def clash_of(lines: LinesConfig, constraints: str | None, has_prefix: bool) -> Clash | None:
    """The first two keys that are set and do not go together, if there are such."""
    if lines.html and has_prefix:
        return Clash("lines.html", "lines.prefix", "Tags are put into whole translations")
    if lines.html and lines.alignment is not None:
        return Clash("lines.html", "lines.alignment", WORDS_OF_HTML)
    if lines.html and constraints is not None:
        because = "A constraint belongs to a whole line, of which HTML makes segments"
        return Clash("lines.html", "constraints", because)
    if lines.keep and constraints == "ordered":
        return Clash("lines.keep", "constraints", "What is kept has no order, and the constraints are ordered")
    return None
