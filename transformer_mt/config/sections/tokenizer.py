"""The section `tokenizer`: how text becomes tokens."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from transformer_mt.config.sections.section import LARGEST, PositiveInt, Probability, Section, refuse_unless_default
from transformer_mt.config.special_ids import SPECIAL_TOKENS

Tag = Annotated[str, Field(pattern=r"^<[A-Za-z0-9_.:/-]+>$")]
_OF_LANGUAGE = re.compile(r"<2([A-Za-z][A-Za-z0-9_-]*)>")
NO_TAGS = {*SPECIAL_TOKENS, "<joiner>"}  # entries of another meaning
MOST_SUBWORDS = 10**6  # unigram never has more pieces to choose from, and bpe makes room for all of them beforehand


def can_be_tag(word: str) -> bool:
    """Whether `tokenizer.tags` may hold the word."""
    try:
        TypeAdapter(Tag).validate_python(word)
    except ValidationError:
        return False
    return word not in NO_TAGS


def language_of(tag: str | None) -> str | None:
    """The target language that a tag names: `de` of `<2de>`."""
    found = _OF_LANGUAGE.fullmatch(tag or "")
    return found[1] if found else None


def _same_in_lower_case(tags: list[str]) -> tuple[str, str] | None:
    """The first two tags that differ in capitals alone."""
    seen: dict[str, str] = {}
    for tag in tags:
        if (other := seen.setdefault(tag.lower(), tag)) != tag:
            return other, tag
    return None


class TokenizerConfig(Section):
    """How text becomes tokens."""

    kind: Literal["word", "bpe", "unigram"] = "word"
    vocab_size: Annotated[int, Field(ge=8, le=LARGEST)] | Literal["auto"] = Field(
        default=10000, description="Largest size, special tokens included; auto: by how often entries occur."
    )
    min_frequency: PositiveInt = Field(default=2, description="word and bpe: rarer ones get no entry.")
    joint: bool = Field(default=False, description="One vocabulary for both languages.")
    lowercase: bool = False
    bpe_dropout: Probability = Field(
        default=0.0, description="bpe: the share of merges that are dropped in training, others in each epoch."
    )
    bpe_dropout_sides: Literal["both", "src", "tgt"] = Field(
        default="both", description="The side whose text bpe_dropout changes."
    )
    tags: list[Tag] = Field(
        default_factory=list, description="Words such as <BT> that stay one token each, seen or not."
    )
    masks: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=0, description="So many tags more, <mask_0>, <mask_1> and so on, for what data.noise hides."
    )

    @property
    def all_tags(self) -> list[str]:
        """Tags, then masks: the entries behind the special ones."""
        return [*self.tags, *(f"<mask_{number}>" for number in range(self.masks))]

    @property
    def size(self) -> int:
        """The size, which has been chosen where it was `auto`."""
        assert self.vocab_size != "auto"
        return self.vocab_size

    @model_validator(mode="after")
    def _check_subwords(self) -> Self:
        if self.vocab_size == "auto":
            if self.kind == "word":
                raise ValueError(
                    "vocab_size: auto is for subwords, and kind is word; set a size, of which min_frequency leaves "
                    "what is frequent"
                )
        elif self.kind != "word" and self.vocab_size < 300:
            raise ValueError(
                f"vocab_size is {self.vocab_size}; {self.kind} starts from 256 bytes and 4 special tokens: "
                "use 300 or more"
            )
        elif self.kind != "word" and self.vocab_size > MOST_SUBWORDS:
            raise ValueError(
                f"vocab_size is {self.vocab_size:,}, and {self.kind} learns {MOST_SUBWORDS:,} pieces at most; "
                "8,000 to 64,000 suit most corpora"
            )
        if self.kind == "unigram":
            refuse_unless_default(self, ("min_frequency",), "under kind: unigram")
        if self.kind != "bpe":
            refuse_unless_default(self, ("bpe_dropout",), f"under kind: {self.kind}")
        if self.bpe_dropout == 0.0:
            refuse_unless_default(self, ("bpe_dropout_sides",), "without bpe_dropout")
        return self

    @model_validator(mode="after")
    def _check_tags(self) -> Self:
        if taken := NO_TAGS.union(self.all_tags[len(self.tags) :]).intersection(self.tags):
            raise ValueError(f"tags holds {min(taken)}, which is an entry of another meaning; name it otherwise")
        if len(set(self.tags)) < len(self.tags):
            raise ValueError("tags holds a tag twice; name each once")
        if self.lowercase and (same := _same_in_lower_case(self.all_tags)):
            raise ValueError(
                f"{' and '.join(same)} are one tag under lowercase: true; name one of them otherwise, or set "
                "lowercase: false"
            )
        if self.all_tags and self.bpe_dropout:
            key = "tags" if self.tags else "masks"
            raise ValueError(
                f"{key} gives {self.all_tags[0]}, and bpe_dropout {self.bpe_dropout} would cut it into letters; take "
                "one of both out"
            )
        least = len(SPECIAL_TOKENS) + len(self.all_tags) + 1 + 256 * (self.kind != "word")
        if self.vocab_size != "auto" and self.vocab_size < least:
            raise ValueError(f"vocab_size is {self.vocab_size}, and with its tags and masks it needs {least} or more")
        return self
