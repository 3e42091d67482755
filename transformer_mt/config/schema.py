"""Every key that a YAML file may hold, with its type, its default and what is allowed.

One frozen class a section. A key is declared here and nowhere else; rules that need two keys stand in the
`_check…` methods of the class that can see both. `loading.py` turns what pydantic reports into sentences.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from transformer_mt.config.schedules import SCHEDULES, ScheduleName, length_of_decay
from transformer_mt.config.section import LARGEST, PositiveInt, Section
from transformer_mt.config.sources import ColumnsConfig, SourceConfig

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Metric = Literal["nll", "ppl", "bleu", "chrf"]
SAMPLING = ("sampling_topk", "sampling_topp", "temperature")  # each of these keys of `decoding` asks for samples
Preset = Literal[
    "transformer-base", "transformer-big", "t5-small", "bart-base", "gpt2-small", "llama", "mistral", "mixtral",
    "modern",
]  # fmt: skip
Precision = Literal["fp32", "bf16", "fp16", "auto"]
SearchPrecision = Literal["fp32", "bf16", "fp16", "int8", "auto"]

MOST_SUBWORDS = 10**6  # unigram never has more pieces to choose from, and bpe makes room for all of them beforehand
MAX_LENGTH_PENALTY = 10.0  # of length^alpha, far beyond any use


def _refuse_unless_default(section: Section, keys: tuple[str, ...], when: str) -> None:
    """What has no effect is not set; at its default it may be written, as in the folder of a run, or inherited."""
    for key in keys:
        value, default = getattr(section, key), type(section).model_fields[key].default
        if value != default:
            raise ValueError(f"{key} is {value} and has no meaning {when}; leave it out, or at {default}")


class DataConfig(Section):
    """Where the sentence pairs come from."""

    src_lang: str = Field(default="src", min_length=1)
    tgt_lang: str = Field(default="tgt", min_length=1)
    root: str = Field(default=".", description="Relative paths of the sources start here.")
    train: list[SourceConfig] = Field(min_length=1)
    validation: list[SourceConfig] = Field(min_length=1)
    test: list[SourceConfig] = Field(default_factory=list)
    columns: ColumnsConfig | None = Field(default=None, description="For every source that names none itself.")
    too_long: Literal["filter", "error"] = Field(
        default="filter", description="What to do with a pair of more than model.max_len tokens on a side."
    )
    allow_left_out: bool = Field(
        default=False, description="Go on where more than half of a split is left out as too long."
    )
    cache_dir: str | None = Field(default=None, description="Default: transformer_mt in the user's cache folder.")
    streaming: bool = Field(
        default=False, description="Read the training split as it is trained on, and keep nothing of it on the disk."
    )
    shuffle_window: Annotated[int, Field(ge=1, le=10**9)] = Field(
        default=100_000, description="streaming: pairs that are in memory at once and change places."
    )
    streaming_tokenizer_pairs: PositiveInt = Field(
        default=1_000_000, description="streaming: the first pairs, of which the tokenizers are trained."
    )

    @model_validator(mode="after")
    def _check_streaming(self) -> Self:
        if not self.streaming:
            _refuse_unless_default(self, ("shuffle_window", "streaming_tokenizer_pairs"), "without streaming: true")
        return self


class TokenizerConfig(Section):
    """How text becomes tokens."""

    kind: Literal["word", "bpe", "unigram"] = "word"
    vocab_size: Annotated[int, Field(ge=8, le=LARGEST)] = Field(
        default=10000, description="Largest size, special tokens included."
    )
    min_frequency: PositiveInt = Field(default=2, description="word and bpe: rarer ones get no entry.")
    joint: bool = Field(default=False, description="One vocabulary for both languages.")
    lowercase: bool = False

    @model_validator(mode="after")
    def _check_subwords(self) -> Self:
        if self.kind != "word" and self.vocab_size < 300:
            raise ValueError(
                f"vocab_size is {self.vocab_size}; {self.kind} starts from 256 bytes and 4 special tokens: "
                "use 300 or more"
            )
        if self.kind != "word" and self.vocab_size > MOST_SUBWORDS:
            raise ValueError(
                f"vocab_size is {self.vocab_size:,}, and {self.kind} learns {MOST_SUBWORDS:,} pieces at most; "
                "8,000 to 64,000 suit most corpora"
            )
        if self.kind == "unigram":
            _refuse_unless_default(self, ("min_frequency",), "under kind: unigram")
        return self


class ModelConfig(Section):
    """The shape of the Transformer."""

    preset: Preset | None = Field(
        default=None, description="A known model: its values replace what was inherited; keys beside it win."
    )
    architecture: Literal["encoder_decoder", "decoder_only"] = "encoder_decoder"
    d_model: PositiveInt = 512
    d_ff: PositiveInt = 2048
    num_heads: PositiveInt = 8
    num_kv_heads: PositiveInt | None = Field(
        default=None, description="Heads with keys and values, shared by the others; null: all of them."
    )
    num_encoder_layers: Annotated[int, Field(ge=0, le=LARGEST)] = Field(
        default=6, description="0 where it is decoder_only."
    )
    num_decoder_layers: PositiveInt = 6
    dropout: Probability = 0.1
    attention_dropout: Probability | None = Field(default=None, description="Of attention weights; null: as dropout.")
    activation_dropout: Probability | None = Field(
        default=None, description="Inside the feed-forward, after its activation; null: as dropout."
    )
    norm_position: Literal["pre", "post"] = "pre"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    activation: Literal["relu", "gelu", "swiglu", "geglu"] = "relu"
    positions: Literal["sinusoidal", "learned", "rotary", "relative_bias", "alibi", "none"] = "sinusoidal"
    attention_window: PositiveInt | None = Field(
        default=None, description="Self-attention sees so many positions, its own among them; null: all."
    )
    scale_attention: bool = Field(default=True, description="Scores are divided by the root of a head's size.")
    num_experts: PositiveInt = Field(default=1, description="Feed-forwards that share the tokens; 1: one for all.")
    experts_per_token: PositiveInt = 1
    load_balancing_weight: Annotated[float, Field(ge=0)] = Field(
        default=0.01, description="Of what is added to the loss where experts share tokens unevenly."
    )
    tie_embeddings: Literal["none", "decoder", "all"] = "decoder"
    bias: bool = True
    max_len: Annotated[int, Field(ge=2, le=LARGEST)] = Field(
        default=512, description="Positions available to a side, EOS counted."
    )

    @model_validator(mode="after")
    def _check_stacks(self) -> Self:
        if self.architecture == "decoder_only" and self.num_encoder_layers:
            raise ValueError(
                f"num_encoder_layers is {self.num_encoder_layers}; a decoder_only model has no encoder: set it to 0"
            )
        if self.architecture == "encoder_decoder" and not self.num_encoder_layers:
            raise ValueError("num_encoder_layers is 0; an encoder_decoder model needs 1 or more")
        return self

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if self.d_model % self.num_heads:
            raise ValueError(f"num_heads is {self.num_heads}, which does not divide d_model {self.d_model}")
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads is {self.num_kv_heads}, which does not divide num_heads {self.num_heads}")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}; sinusoidal positions need an even number")
        if self.positions == "rotary" and self.d_model // self.num_heads % 2:
            raise ValueError(
                f"a head has {self.d_model // self.num_heads} numbers (d_model / num_heads); rotary positions turn "
                "pairs of them and need an even number"
            )
        if self.experts_per_token > self.num_experts:
            raise ValueError(f"experts_per_token is {self.experts_per_token}, more than num_experts {self.num_experts}")
        return self


class TrainingConfig(Section):
    """Updates, schedule, precision, and how long."""

    max_tokens: PositiveInt = Field(
        default=4096, description="Sentences x longest side of a micro-batch, BOS and EOS counted."
    )
    grad_accum: PositiveInt = Field(default=1, description="Micro-batches an update and process.")
    max_steps: PositiveInt | None = None
    max_epochs: PositiveInt | None = None
    max_minutes: Annotated[float, Field(gt=0)] | None = None
    label_smoothing: Probability = 0.1
    clip_norm: Annotated[float, Field(gt=0)] | None = Field(default=1.0, description="null: no clipping.")
    schedule: ScheduleName = "noam"
    factor: Annotated[float, Field(gt=0)] = Field(default=1.0, description="noam: multiplies the rate.")
    lr: Annotated[float, Field(gt=0)] | None = Field(default=None, description="Peak rate of the other schedules.")
    warmup_steps: Annotated[int, Field(ge=0, le=LARGEST)] = 4000
    decay_steps: PositiveInt | None = Field(
        default=None, description="wsd: the last updates, in which the rate falls to 0; null: a tenth of max_steps."
    )
    adam_betas: list[Probability] = Field(default=[0.9, 0.98], min_length=2, max_length=2)
    adam_eps: Annotated[float, Field(gt=0)] = 1e-9
    precision: Precision = "auto"
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    compile: bool | Literal["auto"] = Field(
        default="auto", description="Layers and loss by torch.compile; auto: on a GPU, where nothing hinders it."
    )
    deterministic: bool = Field(default=False, description="On a GPU: the same numbers every time, more slowly.")
    sharding: Literal["none", "full"] = Field(
        default="none", description="full: several processes share out weights, gradients and moments (FSDP2)."
    )
    timeout_minutes: Annotated[float, Field(gt=0)] = Field(
        default=10.0, description="Several processes: how long one may keep the others waiting before all stop."
    )
    log_every_steps: PositiveInt = 20
    checkpoint_every_steps: PositiveInt = 500
    keep_checkpoints: PositiveInt = 5
    on_save_error: Literal["stop", "continue"] = Field(
        default="stop", description="What to do when a checkpoint cannot be written. The last one is always needed."
    )

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if self.max_steps is None and self.max_epochs is None and self.max_minutes is None:
            raise ValueError("nothing ends the training: set max_steps, max_epochs or max_minutes")
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        schedule = SCHEDULES[self.schedule]
        if "lr" not in schedule.keys and self.lr is not None:
            raise ValueError(f"lr has no meaning under schedule: {self.schedule}; use factor")
        if schedule.needs_warmup and self.warmup_steps == 0:
            raise ValueError(f"warmup_steps is 0; the {self.schedule} schedule needs 1 or more")
        if "lr" in schedule.keys and self.lr is None:
            raise ValueError(f"schedule: {self.schedule} needs lr, its peak rate, for example lr: 0.0005")
        if "factor" not in schedule.keys and self.factor != 1.0:
            raise ValueError(f"factor has no meaning under schedule: {self.schedule}; use lr")
        if schedule.needs_end and (self.max_steps is None or self.max_steps <= self.warmup_steps):
            raise ValueError(f"schedule: {self.schedule} needs max_steps, and more of them than warmup_steps")
        if "decay_steps" not in schedule.keys and self.decay_steps is not None:
            raise ValueError(f"decay_steps has no meaning under schedule: {self.schedule}; leave it out")
        if "decay_steps" in schedule.keys and self.max_steps is not None:
            decay = length_of_decay(self.max_steps, self.decay_steps)
            if self.warmup_steps + decay > self.max_steps:
                raise ValueError(
                    f"warmup_steps {self.warmup_steps} and decay_steps {decay} are more than max_steps "
                    f"{self.max_steps}; lower one of them"
                )
        return self


class ValidationConfig(Section):
    """How often to look, at what, and when to stop."""

    every_steps: PositiveInt | None = None
    every_epochs: PositiveInt | None = None
    num_translated: Annotated[int, Field(ge=0, le=LARGEST)] = Field(
        default=500, description="Pairs of the validation split that are really translated; 0: none."
    )
    metric: Metric = Field(default="bleu", description="What best and patience go by.")
    patience: PositiveInt | None = Field(
        default=None, description="Validations without a better one; null: never stop."
    )

    @model_validator(mode="after")
    def _check_when_and_what(self) -> Self:
        if self.every_steps is not None and self.every_epochs is not None:
            raise ValueError(
                "set every_steps or every_epochs, not both; to go by epochs where every_steps is inherited, "
                "set every_steps: null"
            )
        if self.metric in ("bleu", "chrf") and self.num_translated == 0:
            raise ValueError(f"metric: {self.metric} needs translations, and num_translated is 0; use metric: nll")
        return self


class DecodingConfig(Section):
    """Search."""

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
    batch_size: PositiveInt = Field(default=64, description="Sentences decoded together.")
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

    @model_validator(mode="after")
    def _check_across_sections(self) -> Self:
        if self.model.tie_embeddings == "all" and not self.tokenizer.joint:
            raise ValueError("model.tie_embeddings: all needs one vocabulary for both sides; set tokenizer.joint: true")
        if self.model.architecture == "decoder_only" and not self.tokenizer.joint:
            raise ValueError(
                "model.architecture: decoder_only reads source and target as one stream and needs one vocabulary for "
                "both sides; set tokenizer.joint: true"
            )
        if self.training.max_tokens < self.model.max_len:
            raise ValueError(
                f"training.max_tokens is {self.training.max_tokens}, less than model.max_len {self.model.max_len}: "
                "the longest pair would not fit a batch; raise max_tokens or lower max_len"
            )
        return self
