"""The section `decoding`: search, and what `tmt translate` does around it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from transformer_mt.config.sections.lines import LinesConfig, clash_of
from transformer_mt.config.sections.section import LARGEST, PositiveInt, Section

SearchPrecision = Literal["fp32", "bf16", "fp16", "int8", "auto"]
SCORING = ("to", "length_penalty", "length_norm", "coverage_penalty", "batch_size", "precision")  # what a score obeys
SAMPLING = ("sampling_topk", "sampling_topp", "temperature")  # each of these keys of `decoding` asks for samples
MAX_LENGTH_PENALTY = 10.0  # of length^alpha, far beyond any use


class SearchConfig(Section):
    """The keys of the section that change what a search finds, and how fast."""

    to: str | None = Field(
        default=None, description="The language to translate to, where a model has several: its tag is put before."
    )
    beam_size: PositiveInt = Field(default=4, description="1 runs greedy search.")
    length_penalty: Annotated[float, Field(ge=0, le=MAX_LENGTH_PENALTY)] = 0.6
    length_norm: Literal["gnmt", "average"] = "gnmt"
    coverage_penalty: Annotated[float, Field(ge=0, le=100)] = Field(
        default=0.0, description="The larger, the less a translation may leave out of the source; 0: no such penalty."
    )
    max_length_ratio: Annotated[float, Field(ge=0, le=100)] = 2.0
    max_length_extra: Annotated[int, Field(ge=1, le=LARGEST)] = 10
    min_length: Annotated[int, Field(ge=0, le=LARGEST, description="Tokens of a translation, at least.")] = 0
    max_length: PositiveInt | None = Field(default=None, description="Tokens of a translation, at most.")
    no_repeat_ngram_size: Annotated[int, Field(ge=0, le=LARGEST)] = Field(
        default=0, description="So many tokens in a row come once in a translation; 0: as often as they like."
    )
    patience: Annotated[float, Field(gt=0, le=100)] = Field(
        default=1.0, description="A beam waits for so many times beam_size finished translations."
    )
    mbr: Literal["chrf", "bleu"] | None = Field(
        default=None, description="Minimum Bayes risk: take the candidate with the best mean score against all."
    )
    mbr_candidates: Annotated[int, Field(ge=2, le=LARGEST)] | None = Field(
        default=None, description="How many candidates; a beam grows to hold them."
    )
    diverse_beam_groups: PositiveInt = Field(
        default=1, description="Parts of a beam that keep clear of each other's words; 1: a plain beam."
    )
    diverse_beam_strength: Annotated[float, Field(ge=0, le=100)] = Field(
        default=0.5, description="How much a word costs for each time that an earlier part of the beam takes it."
    )
    sampling_topk: Annotated[int, Field(ge=0, le=LARGEST)] | None = Field(
        default=None, description="Draw each token from so many likeliest ones; 0: from all."
    )
    sampling_topp: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Draw each token from the fewest likeliest ones that have this probability together."
    )
    temperature: Annotated[float, Field(gt=0, le=100)] | None = Field(
        default=None, description="Draw tokens by probabilities to the power of 1 / temperature."
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=1, description="Another one draws other samples.")
    avoid: str | None = Field(default=None, description="A file of words and phrases that no translation holds.")
    constraints: Literal["ordered", "unordered"] | None = Field(
        default=None, description="Phrases that a translation must hold stand behind its source, each behind a tab."
    )
    glossary: str | None = Field(default=None, description="A file of terms and of what they become.")
    allow_unk: bool = Field(default=False, description="Let the search generate the unknown token.")
    batch_size: PositiveInt = Field(default=128, description="Sentences decoded together, at most.")
    precision: SearchPrecision = "fp32"

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(
                f"min_length is {self.min_length} and max_length {self.max_length}: no translation is both; lower "
                "min_length"
            )
        return self

    @property
    def is_sampling(self) -> bool:
        """Whether tokens are drawn by chance, instead of searched."""
        return any(getattr(self, key) is not None for key in SAMPLING)

    @field_validator("temperature", mode="before")
    @classmethod
    def _check_temperature(cls, value: object) -> object:
        if value == 0 and not isinstance(value, bool):
            raise ValueError(
                "0 would be the likeliest token at every step; leave sampling out (with beam_size 1 that is greedy "
                "search), or give a number above 0"
            )
        return value

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        groups = self.diverse_beam_groups
        if groups > 1 and self.is_sampling:
            raise ValueError(f"diverse_beam_groups is {groups}, and {self.asks_for_samples}; leave one of them out")
        if self.beam_size % groups:
            wider = -(-self.beam_size // groups) * groups
            raise ValueError(
                f"diverse_beam_groups is {groups}, which does not divide beam_size {self.beam_size}; use beam_size "
                f"{wider}, for example"
            )
        return self

    @property
    def asks_for_samples(self) -> str:
        """The key that does, for a message."""
        key = next(key for key in SAMPLING if getattr(self, key) is not None)
        return f"{key} {getattr(self, key)} asks for samples, which have no beam"

    @model_validator(mode="after")
    def _check_constraints(self) -> Self:
        key = "glossary" if self.constraints is None else "constraints"
        if getattr(self, key) is not None and (self.is_sampling or self.diverse_beam_groups > 1):
            groups = f"diverse_beam_groups {self.diverse_beam_groups} deals out the places of a beam otherwise"
            other = self.asks_for_samples if self.is_sampling else groups
            raise ValueError(f"{key} is {getattr(self, key)}, and {other}; leave one of them out")
        if self.constraints == "ordered" and self.glossary is not None:
            raise ValueError(
                f"constraints is ordered and glossary {self.glossary}, whose terms have no order; take constraints "
                "unordered, or leave one out"
            )
        return self


class DecodingConfig(SearchConfig):
    """Search."""

    lines: LinesConfig = Field(default_factory=LinesConfig)

    @model_validator(mode="after")
    def _check_lines(self) -> Self:
        clash = clash_of(self.lines, self.constraints, has_prefix=self.lines.prefix is not None)
        if clash is not None:
            because = clash.because[0].lower() + clash.because[1:]
            raise ValueError(f"{clash.one} and {clash.other} are both set: {because}; leave one of them out")
        return self


def search_in_words(decoding: Mapping[str, Any]) -> str:
    """The kind of a search, by keys of the section: `greedy`, `beam of 4, mbr chrf`, `samples, temperature 0.7`."""
    size, fields = decoding["beam_size"], SearchConfig.model_fields
    keys = (*SAMPLING, "diverse_beam_groups", "mbr", "mbr_candidates")
    told = {key: decoding[key] for key in keys if decoding.get(key, fields[key].default) != fields[key].default}
    kind = "samples" if told.keys() & {*SAMPLING} else "greedy" if size == 1 else f"beam of {size}"
    return ", ".join([kind, *(f"{key} {value}" for key, value in told.items())])
