"""`training.init_from`: the run whose weights a training begins with; and the names of a model's parts."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from transformer_mt.config.sections.section import Section

PartName = Literal["encoder", "decoder", "src_embeddings", "tgt_embeddings", "embeddings", "output", "head"]
# The parts whose weights have a row for each entry of that side's vocabulary.
OF_SRC_VOCABULARY, OF_TGT_VOCABULARY = {"src_embeddings", "embeddings"}, {"tgt_embeddings", "embeddings", "output"}


def _each_once(parts: list[str]) -> list[str]:
    if twice := next((part for number, part in enumerate(parts) if part in parts[:number]), None):
        raise ValueError(f"{twice} is named twice; name each part once")
    return parts


PartNames = Annotated[list[PartName], AfterValidator(_each_once)]


class InitFromConfig(Section):
    """The run whose weights and tokenizers a training begins with. Its folder alone is short for `{run: FOLDER}`."""

    run: str = Field(min_length=1, description="The folder of a run.")
    checkpoint: str | None = Field(
        default=None, description="best, last, average or step_N; null: the best, or the last where there is no best."
    )
    vocabulary: Literal["keep", "extend", "new"] = Field(
        default="keep",
        description="The run's tokenizers; extend: with the new words of data.train; new: where the part with their "
        "embeddings is not taken, other tokenizers.",
    )
    parts: PartNames | None = Field(
        default=None, min_length=1, description="Only these weights, the rest fresh from the seed; null: all of them."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_folder(cls, value: Any) -> Any:
        return {"run": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_vocabulary(self) -> Self:
        if self.vocabulary == "new" and self.keeps_src and self.keeps_tgt:
            raise ValueError(
                "vocabulary: new learns other words, and embeddings of both sides are taken; list the parts without "
                "those of the new side, for example parts: [encoder, src_embeddings]"
            )
        return self

    @property
    def keeps_src(self) -> bool:
        """Whether the source's tokenizer is that of the run."""
        return self._keeps(OF_SRC_VOCABULARY)

    @property
    def keeps_tgt(self) -> bool:
        """Whether the target's tokenizer is that of the run."""
        return self._keeps(OF_TGT_VOCABULARY)

    def _keeps(self, of_side: set[str]) -> bool:
        return self.vocabulary != "new" or self.parts is None or not of_side.isdisjoint(self.parts)


def or_a_folder(schema: dict[str, Any]) -> None:
    """Let the JSON schema of a key take the folder alone too."""
    schema["anyOf"].insert(0, {"type": "string", "minLength": 1})
