"""The configuration of a whole run: its sections, and the rules that need two of them.

A key is declared in the file of its section, and nowhere else. A rule that needs two keys is a `_check…` method of the
class that can see both. `loading.py` turns what pydantic reports into sentences.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.section import SPLITS, Section
from transformer_mt.config.sections.tokenizer import TokenizerConfig, language_of
from transformer_mt.config.sections.training import TrainingConfig
from transformer_mt.config.sections.validation import ValidationConfig

LONGEST_NAME = 200  # a file's name has at most 255 bytes, and that of a temporary folder is longer than the run's
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME)]


class RunConfig(Section):
    """A whole run."""

    name: Name = Field(description="The run lands in runs/NAME. Default: the name of the YAML file.")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    data: DataConfig
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: TrainingConfig
    validation: ValidationConfig = Field(default_factory=ValidationConfig)
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)

    @property
    def languages(self) -> list[str]:
        """The languages that the tags of the model name: those that its training sources have. Those of all its tags
        where an earlier run may have learned them, or where files may hold tags themselves.
        """
        known = [language for tag in self.tokenizer.tags if (language := language_of(tag))]
        seen = [language_of(source.tag) for source in self.data.train]
        return [one for one in known if self.training.init_from is not None or not any(seen) or one in seen]

    @model_validator(mode="after")
    def _check_who_reads_pictures(self) -> Self:
        """Before all else, which would send those who ask for both from one key to the next."""
        if self.data.source_as == "picture" and self.model.architecture != "encoder_decoder":
            raise ValueError(
                f"data.source_as is picture, and model.architecture is {self.model.architecture}; pictures are read by "
                "the encoder of an encoder_decoder: set that, as model.preset: vit-small does, or source_as: text"
            )
        return self

    @model_validator(mode="after")
    def _check_across_sections(self) -> Self:
        if self.model.tie_embeddings == "all" and not self.tokenizer.joint:
            raise ValueError("model.tie_embeddings: all needs one vocabulary for both sides; set tokenizer.joint: true")
        if self.model.architecture == "decoder_only" and not self.tokenizer.joint:
            raise ValueError(
                "model.architecture: decoder_only reads source and target as one stream and needs one vocabulary for "
                "both sides; set tokenizer.joint: true"
            )
        if self.tokenizer.bpe_dropout > 0.0 and self.data.streaming:
            raise ValueError(
                "tokenizer.bpe_dropout and data.streaming: true do not go together, since a stream is segmented as it "
                "is read; leave one of them out"
            )
        if (noise := self.data.noise) is not None:
            if noise.hiding.joint and not self.tokenizer.joint:
                raise ValueError(
                    f"data.noise.kind: {noise.kind} makes the source of the target's words, and needs one vocabulary "
                    "for both; set tokenizer.joint: true"
                )
            if self.tokenizer.masks < (least := noise.hiding.masks):
                raise ValueError(
                    f"data.noise.kind: {noise.kind} puts masks in the place of what it hides, and tokenizer.masks is "
                    f"{self.tokenizer.masks}; set it to {least} or more, for example 100"
                )
        self._check_encoder_only()
        if all(source.mono for source in self.data.validation) and self.validation.needs_translations:
            raise ValueError(
                f"validation.metric is {self.validation.metric}, and data.validation has text in one language alone, "
                "without translations; set metric: nll or ppl"
            )
        sources = [source for split in SPLITS for source in getattr(self.data, split)]
        for tag in (source.tag for source in sources if source.tag):
            if tag not in self.tokenizer.tags:
                raise ValueError(f"data has a source with tag: {tag}, which is none of tokenizer.tags; name it there")
        if self.data.both_directions_epochs > 0 and self.tokenizer.tags:
            raise ValueError(
                f"data.both_directions_epochs is {self.data.both_directions_epochs}, and tokenizer.tags is "
                f"{self.tokenizer.tags}, which would be learned as parts of targets where pairs are turned; take one "
                "of both out"
            )
        if self.data.both_directions_epochs > 0 and not self.tokenizer.joint:
            raise ValueError(
                "data.both_directions_epochs reads each side as source and as target, and needs one vocabulary for "
                "both; set tokenizer.joint: true"
            )
        key = "update_tokens" if self.training.max_tokens == "auto" else "max_tokens"
        if (tokens := getattr(self.training, key)) < self.model.max_len:
            raise ValueError(
                f"training.{key} is {tokens}, less than model.max_len {self.model.max_len}: "
                f"the longest pair would not fit a batch; raise {key} or lower max_len"
            )
        return self

    def _check_encoder_only(self) -> None:
        """Raise ValueError unless hidden words are told in their places by an encoder alone, and by nothing else."""
        noise, architecture = self.data.noise, self.model.architecture
        if architecture != "encoder_only":
            if noise is not None and noise.hiding.in_place:
                raise ValueError(
                    f"data.noise.kind: {noise.kind} is for an encoder alone, and model.architecture is {architecture}; "
                    "set model.architecture: encoder_only, or data.noise.kind: infilling"
                )
            return
        if noise is None or not noise.hiding.in_place:
            kind = "data.noise is not set" if noise is None else f"data.noise.kind is {noise.kind}"
            raise ValueError(
                f"model.architecture: encoder_only learns hidden words and no translation, and {kind}; set data.noise: "
                "{kind: masked}, or another architecture"
            )
        for split in SPLITS:
            if not all(source.mono for source in getattr(self.data, split)):
                raise ValueError(
                    f"model.architecture: encoder_only learns from text in one language, and data.{split} has pairs; "
                    "name {mono: FILE}" + " in their place, or test: []" * (split == "test")
                )

    @model_validator(mode="after")
    def _check_target_language(self) -> Self:
        to = self.decoding.to
        if to is not None and to not in self.languages:
            has = ", ".join(self.languages) or "none, since no tag names one, such as <2de>"
            to = to.encode("utf-8", "backslashreplace").decode()  # pydantic carries no half of a surrogate pair
            raise ValueError(f"decoding.to is {to}, which is none of the model's languages ({has}); take one of them")
        return self

    @model_validator(mode="after")
    def _check_pictures(self) -> Self:
        if self.data.source_as == "text":
            if self.model.patches is not None:
                raise ValueError(
                    "model.patches is set, and data.source_as is text; set data.source_as: picture, or leave patches "
                    "out"
                )
            return self
        if self.model.patches is None:
            raise ValueError(
                "data.source_as is picture, and model.patches says into which pieces a picture is cut; set "
                "model.patches: {height: 16, width: 8}, or model.preset: vit-small"
            )
        if self.tokenizer.joint:
            raise ValueError(
                "tokenizer.joint is true, and with data.source_as: picture the source has no vocabulary; set it to "
                "false"
            )
        if self.tokenizer.tags:
            raise ValueError(
                f"tokenizer.tags is {self.tokenizer.tags}, and with data.source_as: picture the source has no "
                "vocabulary that could hold them; leave them out"
            )
        if self.tokenizer.bpe_dropout > 0.0 and self.tokenizer.bpe_dropout_sides != "tgt":
            raise ValueError(
                f"tokenizer.bpe_dropout_sides is {self.tokenizer.bpe_dropout_sides}, and with data.source_as: picture "
                "the source has no pieces to drop; set it to tgt"
            )
        if self.decoding.lines.alignment_from == "attention":
            raise ValueError(
                "decoding.lines.alignment_from is attention, which with data.source_as: picture looks at patches, not "
                "at words; set it to aligner"
            )
        if (begun_from := self.training.init_from) is not None and begun_from.vocabulary == "extend":
            raise ValueError(
                "training.init_from.vocabulary is extend, and with data.source_as: picture the source has no "
                "vocabulary; use keep or new"
            )
        return self

    @model_validator(mode="after")
    def _check_init_from(self) -> Self:
        begun_from = self.training.init_from
        if begun_from is None or begun_from.vocabulary == "keep":
            return self
        if begun_from.vocabulary == "extend" and self.tokenizer.kind != "word":
            raise ValueError(
                f"training.init_from.vocabulary: extend adds words, and tokenizer.kind is {self.tokenizer.kind}, whose "
                "bytes know every text already; take it out"
            )
        if self.data.streaming:
            raise ValueError(
                f"training.init_from.vocabulary: {begun_from.vocabulary} reads all of data.train before it "
                "begins, and data.streaming is true; leave one of them out"
            )
        if begun_from.keeps_src != begun_from.keeps_tgt and self.tokenizer.joint:
            raise ValueError(
                "training.init_from.vocabulary: new keeps the tokenizer of one side, and tokenizer.joint is true; take "
                "no embeddings, or set tokenizer.joint: false"
            )
        return self

    @model_validator(mode="after")
    def _check_regularisers(self) -> Self:
        model, training = self.model, self.training
        if training.label_smoothing_by == "unigram":
            self._check_unigram()
        if training.max_epochs is not None and self.data.both_directions_epochs >= training.max_epochs:
            raise ValueError(
                f"data.both_directions_epochs is {self.data.both_directions_epochs}, and training.max_epochs is "
                f"{training.max_epochs}, so that the wanted direction never comes alone; raise max_epochs, or lower "
                "both_directions_epochs"
            )
        if model.layer_drop and training.sharding == "full":
            raise ValueError(
                f"model.layer_drop is {model.layer_drop}, and training.sharding: full needs every layer in every "
                "process; use sharding: none, or layer_drop: 0"
            )
        if model.architecture == "rnn" and training.sharding == "full":
            raise ValueError(
                "model.architecture is rnn, and training.sharding: full shards the layers of a Transformer; use "
                "sharding: none"
            )
        dropouts = (model.dropout, model.attention_dropout, model.activation_dropout)
        drops = any((*dropouts, model.src_word_dropout, model.tgt_word_dropout))
        if training.consistency and training.consistency.cut_probability == 0.0 and not drops:
            kind = training.consistency.kind
            said, raised = "kind is rdrop, which compares two draws of dropout", "model.dropout"
            if kind != "rdrop":
                said, raised = "cut is 0, so that only dropout tells the two passes apart", "cut or model.dropout"
            raise ValueError(
                f"training.consistency.{said}, and model.dropout is 0; raise {raised}, or leave training.consistency "
                "out"
            )
        return self

    def _check_unigram(self) -> None:
        """Its shares are counted once, over the targets as they stand in the files."""
        changing = {
            "data.streaming: true": self.data.streaming,
            "data.noise": self.data.noise is not None,
            "data.both_directions_epochs": self.data.both_directions_epochs > 0,
            "data.temperature": self.data.temperature is not None,
            "a weight in data.train": any(source.weight is not None for source in self.data.train),
            "tokenizer.bpe_dropout": self.tokenizer.bpe_dropout > 0 and self.tokenizer.bpe_dropout_sides != "src",
        }
        for name, is_set in changing.items():
            if is_set:
                raise ValueError(
                    "training.label_smoothing_by: unigram goes by the shares of tokens in the targets of data.train, "
                    f"and {name} trains on others; use label_smoothing_by: uniform, or take {name} out"
                )
