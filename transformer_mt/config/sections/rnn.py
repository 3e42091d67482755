"""The section `model.rnn`: a recurrent network with attention."""

from typing import Literal, Self

from pydantic import Field, model_validator

from transformer_mt.config.sections.section import PositiveInt, Section, refuse_unless_default


class RnnConfig(Section):
    """A recurrent network with attention."""

    cell: Literal["gru", "lstm"] = "gru"
    attention: Literal["bahdanau", "luong_general", "luong_dot"] = "bahdanau"
    input_feeding: bool = Field(
        default=True, description="luong_*: the decoder also reads the attentional vector of the position before."
    )
    d_embedding: PositiveInt | None = Field(default=None, description="Of a word's embedding; null: d_model.")
    d_readout: PositiveInt | None = Field(
        default=None, description="Of what the output projection is given; null: d_model."
    )

    @model_validator(mode="after")
    def _check_attention(self) -> Self:
        if self.attention == "bahdanau":
            refuse_unless_default(self, ("input_feeding",), "under attention: bahdanau, whose context is always fed")
        return self
