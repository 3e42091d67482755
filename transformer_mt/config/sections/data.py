"""The section `data`: where the sentence pairs come from."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.noise import NoiseConfig
from transformer_mt.config.sections.section import LARGEST, SPLITS, PositiveInt, Section, refuse_unless_default
from transformer_mt.config.sections.sources import ColumnsConfig, SourceConfig
from transformer_mt.config.sections.tokenizer import language_of


class DataConfig(Section):
    """Where the sentence pairs come from."""

    src_lang: str = Field(default="src", min_length=1)
    tgt_lang: str = Field(default="tgt", min_length=1)
    root: str = Field(default=".", description="Relative paths of the sources start here.")
    train: list[SourceConfig] = Field(min_length=1)
    validation: list[SourceConfig] = Field(min_length=1)
    test: list[SourceConfig] = Field(default_factory=list)
    temperature: Annotated[float, Field(ge=1, le=10**6)] | None = Field(
        default=None, description="train: the share of a source is as its pairs to the power of 1 / temperature."
    )
    columns: ColumnsConfig | None = Field(default=None, description="For every source that names none itself.")
    source_as: Literal["text", "picture"] = Field(
        default="text", description="picture: each source line is drawn, and cut into model.patches."
    )
    font: str | None = Field(
        default=None, description="picture: a font's file, or the name of its family; null: DejaVu Sans."
    )
    too_long: Literal["filter", "error"] = Field(
        default="filter", description="What to do with a pair of more than model.max_len tokens on a side."
    )
    allow_left_out: bool = Field(
        default=False, description="Go on where more than half of a split is left out as too long."
    )
    check: Literal["quick", "off"] = Field(
        default="quick", description="Look at a sample of train before the first step, and refuse shifted lines."
    )
    cache_dir: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Default: transformer_mt in the user's cache folder."
    )
    streaming: bool = Field(
        default=False, description="Read the training split as it is trained on, and keep nothing of it on the disk."
    )
    shuffle_window: Annotated[int, Field(ge=1, le=10**9)] = Field(
        default=100_000, description="streaming: pairs that are in memory at once and change places."
    )
    streaming_tokenizer_pairs: PositiveInt = Field(
        default=1_000_000, description="streaming: the first pairs, of which the tokenizers are trained."
    )

    both_directions_epochs: Annotated[int, Field(ge=0, le=LARGEST)] = Field(
        default=0, description="The first epochs, in which each pair also comes from target to source."
    )
    noise: NoiseConfig | None = Field(
        default=None, description="What is learned from sources {mono: FILE}, of which something is hidden."
    )
    # An order to the reader of a config, which carries it out. What is read, dumped or kept with a run is reversed.
    reverse: bool = Field(
        default=False, exclude=True, description="Train the other direction: languages and sides change places."
    )

    @property
    def has_pairs(self) -> bool:
        """Whether train has a translation to learn from, and not text in one language alone."""
        return not all(source.mono for source in self.train)

    @property
    def direction(self) -> str:
        """What the main languages are translated from and to: `en to es`."""
        return f"{self.src_lang} to {self.tgt_lang}"

    def num_passes(self, first_epoch: int, end_epoch: int) -> int:
        """How often the pairs come in epochs `first_epoch` to `end_epoch` - 1: in those of both directions twice."""
        twice = min(end_epoch, self.both_directions_epochs) - min(first_epoch, self.both_directions_epochs)
        return end_epoch - first_epoch + twice

    def languages_of(self, source: SourceConfig) -> tuple[str, str]:
        """Source and target language of a source; of text in one language that one twice. Without a src_lang of its
        own, what is translated to `src_lang` comes from `tgt_lang`: a source of the other direction.
        """
        tgt = source.tgt_lang or language_of(source.tag) or self.tgt_lang
        src = source.src_lang or (self.tgt_lang if tgt == self.src_lang else self.src_lang)
        return (tgt, tgt) if source.mono else (src, tgt)

    @model_validator(mode="after")
    def _carry_out_reverse(self) -> Self:
        """First of the checks, so that the others see what a run is begun with."""
        if not self.reverse:
            return self
        for source in (source for split in SPLITS for source in getattr(self, split)):
            if language_of(source.tag):
                raise ValueError(
                    f"reverse is true, and a source has tag: {source.tag}, the language of its targets before they "
                    "change places with its sources; name the sources of the other direction yourself, each with "
                    "reverse: true and its own tag"
                )
        splits = {split: [_turned(source, self.tgt_lang) for source in getattr(self, split)] for split in SPLITS}
        return self.model_copy(
            update={"reverse": False, "src_lang": self.tgt_lang, "tgt_lang": self.src_lang, **splits}
        )

    @model_validator(mode="after")
    def _check_languages(self) -> Self:
        pairs = [source for source in self.train if not source.mono]
        languages = list(dict.fromkeys(self.languages_of(source)[1] for source in pairs))
        bare = next((self.languages_of(source)[1] for source in pairs if source.tag is None), None)
        if len(languages) > 1 and bare is not None:
            raise ValueError(
                f"train has sources that are translated to {' and '.join(languages)}, and one to {bare} without a tag, "
                f"so no model could know which language is wanted; give it tag: <2{bare}>"
            )
        return self

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if not any(source.has_columns for source in (*self.train, *self.validation, *self.test)):
            refuse_unless_default(self, ("columns",), "where no source has columns")
        return self

    @model_validator(mode="after")
    def _check_streaming(self) -> Self:
        if not self.streaming:
            refuse_unless_default(self, ("shuffle_window", "streaming_tokenizer_pairs"), "without streaming: true")
        else:
            refuse_unless_default(self, ("both_directions_epochs",), "with streaming: true")
        return self

    @model_validator(mode="after")
    def _check_pictures(self) -> Self:
        if self.source_as == "text":
            refuse_unless_default(self, ("font",), "without source_as: picture")
            return self
        refuse_unless_default(self, ("noise", "both_directions_epochs"), "with source_as: picture")
        return self

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        mono = [source.mono for split in ("train", "validation") for source in getattr(self, split) if source.mono]
        if self.noise is None and mono:
            raise ValueError(
                f"{mono[0]} is text in one language, of which noise says what is learned; set it, for example "
                "noise: {kind: infilling}, or name pairs"
            )
        if self.noise is not None and not any(source.mono for source in self.train):
            raise ValueError("noise is for sources {mono: FILE}, and train has none; name one, or leave noise out")
        if any(source.mono for source in self.test):
            raise ValueError("test has text in one language, which no translation can be compared with; take it out")
        if mono and self.both_directions_epochs:
            raise ValueError(
                f"{mono[0]} is text in one language, and both_directions_epochs is {self.both_directions_epochs}, "
                "which turns pairs; take one of both out"
            )
        return self

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        for split in ("validation", "test"):
            if any(source.weight is not None for source in getattr(self, split)):
                raise ValueError(f"{split} has a weight, which is a share of the batches of train; take it out")
        weights = [source.weight for source in self.train if source.weight is not None]
        if self.temperature is not None:
            said = f"temperature is {self.temperature:g}"
            if weights:
                raise ValueError(f"{said}, and train has a weight, which is a share too; take one of both out")
            if len(self.train) == 1:
                raise ValueError(f"{said}, which is for the shares of several sources, and train has one; take it out")
            self._check_shares(said)
        if weights:
            if len(weights) < len(self.train):
                raise ValueError(
                    f"train has {len(self.train)} sources and a weight for {len(weights)} of them; give one to all or "
                    "none"
                )
            if not any(weights):
                raise ValueError("the weights of train sum to nothing; give one source at least a weight above 0")
            self._check_shares("train has a weight")
        return self

    def _check_shares(self, said: str) -> None:
        if self.both_directions_epochs:
            raise ValueError(
                f"{said}, and both_directions_epochs is {self.both_directions_epochs}, whose epochs have every pair "
                "twice; take one of both out"
            )
        if self.streaming:
            raise ValueError(f"{said}, and streaming is true; a stream is read in its order, so take one of both out")


def _turned(source: SourceConfig, tgt_lang: str) -> SourceConfig:
    """The source with its sides and languages exchanged; text in one language stays in that, by default `tgt_lang`."""
    if source.mono:
        return source.model_copy(update={"tgt_lang": source.tgt_lang or tgt_lang})
    languages = {"src_lang": source.tgt_lang, "tgt_lang": source.src_lang}
    return source.model_copy(update={"reverse": not source.reverse, **languages})
