"""The section `model`: the shape of the network."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.patches import PatchesConfig
from transformer_mt.config.sections.rnn import RnnConfig
from transformer_mt.config.sections.section import LARGEST, PositiveInt, Probability, Section, refuse_unless_default

Preset = Literal[
    "transformer-base", "transformer-big", "t5-small", "bart-base", "gpt2-small", "llama", "mistral", "mixtral",
    "modern", "bert-base", "bert-small", "rnn-search", "rnn-small", "vit-base", "vit-small",
]  # fmt: skip
# What an RNN has not.
_NOT_RECURRENT = (
    "d_ff", "num_heads", "num_kv_heads", "attention_dropout", "activation_dropout", "layer_drop", "norm_position",
    "norm", "activation", "positions", "attention_window", "scale_attention", "num_experts", "experts_per_token",
    "load_balancing_weight",
)  # fmt: skip


class ModelConfig(Section):
    """The shape of the network."""

    preset: Preset | None = Field(
        default=None, description="A known model: its values replace what was inherited; keys beside it win."
    )
    architecture: Literal["encoder_decoder", "decoder_only", "encoder_only", "rnn"] = "encoder_decoder"
    d_model: PositiveInt = 512
    d_ff: PositiveInt = 2048
    num_heads: PositiveInt = 8
    num_kv_heads: PositiveInt | None = Field(
        default=None, description="Heads with keys and values, shared by the others; null: all of them."
    )
    num_encoder_layers: Annotated[int, Field(ge=0, le=LARGEST)] = Field(
        default=6, description="0 where it is decoder_only."
    )
    num_decoder_layers: Annotated[int, Field(ge=0, le=LARGEST)] = Field(
        default=6, description="0 where it is encoder_only."
    )
    dropout: Probability = 0.1
    attention_dropout: Probability | None = Field(default=None, description="Of attention weights; null: as dropout.")
    activation_dropout: Probability | None = Field(
        default=None, description="Inside the feed-forward, after its activation; null: as dropout."
    )
    src_word_dropout: Probability = Field(
        default=0.0, description="The probability that all of a source token's embedding is 0 in training."
    )
    tgt_word_dropout: Probability = Field(default=0.0, description="The same of the tokens that the decoder is given.")
    layer_drop: Probability = Field(default=0.0, description="The probability that a layer is skipped in training.")
    norm_position: Literal["pre", "post"] = "pre"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    activation: Literal["relu", "gelu", "swiglu", "geglu"] = "relu"
    positions: Literal["sinusoidal", "learned", "rotary", "relative_bias", "alibi", "none"] = "sinusoidal"
    attention_window: Annotated[int, Field(ge=2, le=LARGEST)] | None = Field(
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

    rnn: RnnConfig | None = Field(default=None, description="Only under architecture: rnn; null: all its defaults.")
    patches: PatchesConfig | None = Field(
        default=None, description="What the encoder reads instead of words, under data.source_as: picture."
    )

    @property
    def recurrent(self) -> RnnConfig:
        """The section `rnn` of an RNN, its defaults where there is none."""
        return self.rnn or RnnConfig()

    @model_validator(mode="after")
    def _check_stacks(self) -> Self:
        if self.architecture == "decoder_only" and self.num_encoder_layers:
            raise ValueError(
                f"num_encoder_layers is {self.num_encoder_layers}; a decoder_only model has no encoder: set it to 0"
            )
        if self.architecture != "decoder_only" and not self.num_encoder_layers:
            raise ValueError(f"num_encoder_layers is 0; an {self.architecture} model needs 1 or more")
        if self.architecture == "encoder_only" and self.num_decoder_layers:
            raise ValueError(
                f"num_decoder_layers is {self.num_decoder_layers}; an encoder_only model has no decoder: set it to 0"
            )
        if self.architecture != "encoder_only" and not self.num_decoder_layers:
            raise ValueError(f"num_decoder_layers is 0; an {self.architecture} model needs 1 or more")
        if self.architecture == "encoder_only":
            refuse_unless_default(self, ("tgt_word_dropout",), "under architecture: encoder_only")
        return self

    @model_validator(mode="after")
    def _check_recurrent(self) -> Self:
        if self.architecture != "rnn":
            if self.rnn is not None:
                raise ValueError(
                    f"rnn is set, and architecture is {self.architecture}; leave rnn out, or set architecture: rnn"
                )
            return self
        refuse_unless_default(self, _NOT_RECURRENT, "under architecture: rnn")
        rnn = self.recurrent
        sizes = [size or self.d_model for size in (rnn.d_embedding, rnn.d_readout)]
        if self.tie_embeddings != "none" and sizes[0] != sizes[1]:
            raise ValueError(
                f"tie_embeddings is {self.tie_embeddings}, and rnn.d_embedding {sizes[0]} is not rnn.d_readout "
                f"{sizes[1]}; make them equal, or set tie_embeddings: none"
            )
        if rnn.attention != "bahdanau" and self.d_model % 2:
            raise ValueError(
                f"d_model is {self.d_model}; under rnn.attention: {rnn.attention} each direction of the encoder has "
                "half of it, so it has to be even"
            )
        return self

    @model_validator(mode="after")
    def _check_patches(self) -> Self:
        if self.patches is None:
            return self
        if self.architecture != "encoder_decoder":
            raise ValueError(
                f"patches is set, and architecture is {self.architecture}; patches are read by the encoder of an "
                "encoder_decoder: set that, or leave patches out"
            )
        if self.tie_embeddings == "all":
            raise ValueError(
                "patches is set, and tie_embeddings is all; patches have no table of embeddings to be tied: set "
                "tie_embeddings: decoder"
            )
        return self

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if self.architecture == "rnn":
            return self
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
        if self.num_experts == 1:
            refuse_unless_default(self, ("load_balancing_weight",), "where num_experts is 1")
        return self
