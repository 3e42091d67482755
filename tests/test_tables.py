"""A key of the config allows what its table has, by the same names in the same order; no table is forgotten."""

from collections.abc import Iterable
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from transformer_mt.config import schema
from transformer_mt.config.presets import MODELS
from transformer_mt.config.schedules import SCHEDULES
from transformer_mt.config.sections.consistency import CONSISTENCIES, ConsistencyConfig
from transformer_mt.config.sections.decoding import SearchConfig
from transformer_mt.config.sections.init_from import InitFromConfig
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.config.sections.noise import NOISES, NoiseConfig
from transformer_mt.config.sections.rnn import RnnConfig
from transformer_mt.config.sections.section import Section
from transformer_mt.data.noise.objectives import OBJECTIVES
from transformer_mt.data.tokenizers import TOKENIZERS
from transformer_mt.decoding.lines.line_formats import FORMATS
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.minimum_bayes_risk import UTILITIES
from transformer_mt.decoding.search.options import LENGTH_NORMS
from transformer_mt.evaluation.metrics import HIGHER_IS_BETTER
from transformer_mt.inspect.attention import ATTENTIONS
from transformer_mt.machine.device import DTYPES
from transformer_mt.markup.kept import KINDS
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.layers import RESIDUALS
from transformer_mt.model.named_parts import PARTS
from transformer_mt.model.parts.feed_forward import ACTIVATIONS
from transformer_mt.model.parts.norms import NORMS
from transformer_mt.model.parts.positions import POSITIONS
from transformer_mt.model.recurrent.cells import CELLS
from transformer_mt.model.recurrent.decoder import RNN_ATTENTIONS

TABLES: dict[tuple[type[BaseModel], str], Iterable[str]] = {
    (schema.ModelConfig, "preset"): MODELS,
    (schema.ModelConfig, "architecture"): ARCHITECTURES,
    (RnnConfig, "cell"): CELLS,
    (RnnConfig, "attention"): RNN_ATTENTIONS,
    (schema.ModelConfig, "norm_position"): RESIDUALS,
    (schema.ModelConfig, "norm"): NORMS,
    (schema.ModelConfig, "activation"): ACTIVATIONS,
    (schema.ModelConfig, "positions"): POSITIONS,
    (schema.TokenizerConfig, "kind"): TOKENIZERS,
    (NoiseConfig, "kind"): NOISES,
    (InitFromConfig, "parts"): PARTS,
    (schema.TrainingConfig, "freeze"): PARTS,
    (schema.TrainingConfig, "schedule"): SCHEDULES,
    (ConsistencyConfig, "kind"): CONSISTENCIES,
    (schema.TrainingConfig, "precision"): ["fp32", *DTYPES, "auto"],
    (schema.ValidationConfig, "metric"): HIGHER_IS_BETTER,
    (SearchConfig, "length_norm"): LENGTH_NORMS,
    (SearchConfig, "mbr"): UTILITIES,
    (LinesConfig, "keep"): KINDS,
    (LinesConfig, "format"): FORMATS,
    (LinesConfig, "too_long"): TooLong,
}
# Keys whose few values are no table: a condition in one place, or more than one name of one thing.
CONDITIONS = {
    "builtin", "too_long", "tie_embeddings", "compile", "sharding", "on_save_error", "precision", "constraints",
    "vocabulary", "alignment", "alignment_from", "prefix",
    "label_smoothing_by",
    "bpe_dropout_sides", "vocab_size", "max_tokens", "check", "source_as", "proofs",
}  # fmt: skip


def literals(annotation: Any) -> list[str]:
    """The texts that a key may be, through unions and `Annotated`."""
    if isinstance(annotation, str):
        return [annotation]
    return [text for part in get_args(annotation) for text in literals(part)]


@pytest.mark.parametrize(("section", "key"), TABLES, ids=lambda part: getattr(part, "__name__", part))
def test_a_key_allows_what_its_table_has(section: type[BaseModel], key: str) -> None:
    assert literals(section.model_fields[key].annotation) == list(TABLES[section, key])


def test_every_key_of_few_values_has_a_table_or_needs_none() -> None:
    sections = Section.__subclasses__()
    keys = {(part, key) for part in sections for key, field in part.model_fields.items() if literals(field.annotation)}
    assert {key for part, key in keys if (part, key) not in TABLES} <= CONDITIONS


def test_every_noise_has_its_objective() -> None:
    assert list(OBJECTIVES) == list(NOISES)


def test_every_architecture_is_drawn() -> None:
    assert list(ATTENTIONS) == list(ARCHITECTURES)
