"""The places that sentence pairs come from, as a configuration names them."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.section import SPLITS, PositiveInt, Section
from transformer_mt.config.sections.tokenizer import Tag, language_of
from transformer_mt.errors import UserError
from transformer_mt.paths import user_path

Language = Annotated[str, Field(min_length=1)]
Place = Annotated[str, Field(min_length=1)]
SOURCE_KINDS = ("tsv", "csv", "jsonl", "parquet", "hub", "builtin", "mono")
WITHOUT_COLUMNS = {
    "text": "two aligned text files", "builtin": "the built-in corpus", "mono": "text in one language",
}  # fmt: skip


class ColumnsConfig(Section):
    """Which columns hold the two sides: names, or 1-based numbers for TSV, which has no header."""

    src: str | PositiveInt
    tgt: str | PositiveInt

    @model_validator(mode="after")
    def _check_two(self) -> Self:
        if self.src == self.tgt:
            raise ValueError(f"src and tgt are both {self.src}; name two columns")
        return self


class SourceConfig(Section):
    """One place that sentence pairs come from. Exactly one kind of place is named.

    `{src: FILE, tgt: FILE}` are two aligned text files; `{mono: FILE}` is text in one language, for `data.noise`; the
    others hold both sides.
    """

    src: Place | None = None
    tgt: Place | None = None
    tsv: Place | None = None
    csv: Place | None = None
    jsonl: Place | None = None
    parquet: Place | None = None
    hub: Place | None = None
    builtin: Literal["en-es"] | None = None
    mono: Place | None = None
    config: str | None = None
    split: str | None = None
    columns: ColumnsConfig | None = None
    weight: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="train: the share of this source in the pairs of each batch, beside other weights."
    )
    tag: Tag | None = Field(
        default=None, description="One of tokenizer.tags, before each source: <2de>, or <BT> for what was made."
    )
    src_lang: Language | None = Field(
        default=None, description="The language of the sources here, where it is not data.src_lang."
    )
    tgt_lang: Language | None = Field(
        default=None, description="That of the targets. Default: the one that tag names, else data.tgt_lang."
    )
    reverse: bool = Field(default=False, description="The two sides of this source change places.")

    @property
    def kind(self) -> str:
        """`text`, or the one of `SOURCE_KINDS` that is set."""
        return next((kind for kind in SOURCE_KINDS if getattr(self, kind) is not None), "text")

    @property
    def has_columns(self) -> bool:
        """Whether both sides stand in one file, as columns with names."""
        return self.kind not in WITHOUT_COLUMNS

    @model_validator(mode="after")
    def _check_one_kind(self) -> Self:
        kinds = [kind for kind in SOURCE_KINDS if getattr(self, kind) is not None]
        text = self.src is not None or self.tgt is not None
        if len(kinds) + text != 1:
            raise ValueError(
                "name exactly one source: {src: FILE, tgt: FILE}, {tsv: FILE}, {csv: FILE}, {jsonl: FILE}, "
                "{parquet: FILE}, {hub: NAME, split: SPLIT}, {builtin: en-es, split: SPLIT} or {mono: FILE}"
            )
        if text and (self.src is None or self.tgt is None):
            raise ValueError("two aligned text files need both src and tgt")
        if self.columns is not None and self.kind in WITHOUT_COLUMNS:
            raise ValueError(f"columns has no meaning for {WITHOUT_COLUMNS[self.kind]}")
        if self.config is not None and self.kind != "hub":
            raise ValueError("config belongs to a hub source")
        if self.kind in ("hub", "builtin") and self.split is None:
            raise ValueError(f"a {self.kind} source needs a split, for example split: train")
        if self.split is not None and self.kind not in ("hub", "builtin"):
            raise ValueError("split belongs to a hub or builtin source")
        if self.builtin is not None and self.split not in SPLITS:
            raise ValueError(f"split is {self.split!r}; the built-in corpus has train, validation and test")
        return self

    @model_validator(mode="after")
    def _check_languages(self) -> Self:
        named = language_of(self.tag)
        if self.tgt_lang is not None and named not in (None, self.tgt_lang):
            raise ValueError(f"tgt_lang is {self.tgt_lang}, and tag {self.tag} names {named}; take one of both out")
        if self.mono is not None and self.src_lang is not None:
            raise ValueError("src_lang belongs to pairs; the language of text is that of its tag, or tgt_lang")
        return self


def source_of_files(src: Path, tgt: Path) -> SourceConfig:
    """The source of two text files that a user has named: a path starts at the current folder, not at `data.root`.

    Raises UserError for a name that is not UTF-8, which no config can hold.
    """
    sides = [str(user_path(path).absolute()) for path in (src, tgt)]
    for side in sides:
        try:
            side.encode()
        except UnicodeEncodeError:
            raise UserError(f"The name of {side!a} is not UTF-8. Rename the file or its folder.") from None
    return SourceConfig(src=sides[0], tgt=sides[1])
