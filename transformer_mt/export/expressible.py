"""What another engine is known to compute, by the tables of options. Everything else is refused by its key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_mt.config.sections.decoding import DecodingConfig, SearchConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.section import as_typed
from transformer_mt.errors import UserError
from transformer_mt.model.layers import RESIDUALS
from transformer_mt.model.option import Option
from transformer_mt.model.parts.feed_forward import ACTIVATIONS
from transformer_mt.model.parts.norms import NORMS
from transformer_mt.model.parts.positions import POSITIONS

OPTIONS: dict[str, Mapping[str, Option[Any]]] = {
    "norm_position": RESIDUALS, "norm": NORMS, "activation": ACTIVATIONS, "positions": POSITIONS,
}  # fmt: skip
INSTEAD = "to export it, or translate with `tmt translate`."


@dataclass(frozen=True)
class Engine:
    """An engine that is to compute our models. `told` reads from an option what the engine is told of it; None where
    the engine does not compute it.
    """

    name: str
    told: Callable[[Option[Any]], Mapping[str, Any] | None]

    def refuse_unknown(self, config: ModelConfig) -> None:
        """UserError for options that the engine does not have."""
        said = []
        for key, table in OPTIONS.items():
            value = getattr(config, key)
            if self.told(table[value]) is None:
                others = " or ".join(name for name, option in table.items() if self.told(option) is not None)
                said.append(
                    f"model.{key} is {as_typed(value)}, which {self.name} does not compute as this model does. Train "
                    f"one with model.{key}: {others} {INSTEAD}"
                )
        if config.num_experts > 1:
            said.append(
                f"model.num_experts is {config.num_experts}, and {self.name} has no mixture of experts. "
                f"Train a model with model.num_experts: 1 {INSTEAD}"
            )
        if said:
            raise UserError("\n".join(said))

    def refuse_window(self, config: ModelConfig) -> None:
        """UserError where a window of self-attention hides something."""
        longest = config.max_len * (2 if config.architecture == "decoder_only" else 1)  # both sides in one stream
        if config.attention_window is not None and config.attention_window < longest:
            raise UserError(
                f"model.attention_window is {config.attention_window}, and {self.name} has no window over a sequence "
                f"that is read at once. Train a model with model.attention_window: null {INSTEAD}"
            )

    def settings(self, config: ModelConfig) -> dict[str, Any]:
        """What the engine is told of all options."""
        told: dict[str, Any] = {}
        for key, table in OPTIONS.items():
            of_option = self.told(table[getattr(config, key)])
            assert of_option is not None, f"model.{key} was to be refused"
            told |= of_option
        return told


def refuse_architecture(config: ModelConfig, known: Sequence[str], what: str) -> None:
    """UserError for an architecture that is none of these; `what` says why."""
    if config.architecture not in known:
        raise UserError(
            f"model.architecture is {config.architecture}, and {what}. Train a model with model.architecture: "
            f"{' or '.join(known)} {INSTEAD}"
        )


def refuse_pictures(config: ModelConfig, engine: str) -> None:
    """UserError where the model reads patches."""
    if config.patches is not None:
        raise UserError(
            f"model.patches is set, and {engine} reads ids of words, not pictures. Train a model with model.patches: "
            f"null and data.source_as: text {INSTEAD}"
        )


def not_obeyed(decoding: SearchConfig, obeyed: set[str]) -> dict[str, Any]:
    """The keys of `decoding` that are set and that an engine does not know, with their values. Those of its sub-section
    are called `lines.html` and so on.
    """
    default, found = _flat(DecodingConfig().model_dump()), _flat(decoding.model_dump())
    return {key: found[key] for key in default if key in found and key not in obeyed and found[key] != default[key]}


def other_norm(decoding: DecodingConfig, engine: str, advice: str = "") -> list[str]:
    """What to know where an engine that divides by the length alone would score a beam otherwise than the run does."""
    if decoding.beam_size == 1 or decoding.length_norm == "average" or not decoding.length_penalty:
        return []
    return [
        f"decoding.length_norm is {decoding.length_norm}, and {engine} has only average: a beam there is scored "
        f"otherwise than by `tmt translate`. Greedy search is the same. {advice}".rstrip()
    ]


def _flat(keys: dict[str, Any]) -> dict[str, Any]:
    lines = keys.pop("lines", {})
    return keys | {f"lines.{key}": value for key, value in lines.items()}


def all_refusals(*checks: Callable[[], None]) -> None:
    """UserError with what all checks say, so that nobody trains again for one key after the other."""
    said = []
    for check in checks:
        try:
            check()
        except UserError as error:
            said.append(str(error))
    if said:
        raise UserError("\n".join(said))
