"""The table of all kinds of sources, and the way from an entry of the configuration to its source."""

from collections.abc import Iterable, Sequence

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.sources.builtin import Builtin
from transformer_mt.data.sources.hub import Hub
from transformer_mt.data.sources.mono import Mono
from transformer_mt.data.sources.one_file import Csv, Jsonl, Parquet, Tsv
from transformer_mt.data.sources.source import Source
from transformer_mt.data.sources.text_pair import TextPair
from transformer_mt.errors import UserError

KINDS: dict[str, type[Source]] = {
    "text": TextPair,
    "tsv": Tsv,
    "csv": Csv,
    "jsonl": Jsonl,
    "parquet": Parquet,
    "hub": Hub,
    "builtin": Builtin,
    "mono": Mono,
}


def source_of(config: SourceConfig, data: DataConfig) -> Source:
    """The source that an entry of `data.train`, or of another split, names. Nothing is read."""
    return KINDS[config.kind](config, data)


def sources_of(configs: Iterable[SourceConfig], data: DataConfig) -> list[Source]:
    """`source_of` each."""
    return [source_of(config, data) for config in configs]


def sources_of_pairs(configs: Sequence[SourceConfig], data: DataConfig) -> list[Source]:
    """`source_of` each of `those_of_pairs`; UserError where there is nothing but text in one language."""
    sources = sources_of(those_of_pairs(configs), data)
    for source in sources:
        if source.config.mono:
            raise UserError(
                f"{source.description} is text in one language, without translations. Name sources of pairs."
            )
    return sources


def those_of_pairs(configs: Sequence[SourceConfig]) -> list[SourceConfig]:
    """The entries without the text in one language that stands beside pairs; all where there are no pairs."""
    return [config for config in configs if not config.mono] or list(configs)
