"""The sources of the small corpus, its pairs, and what lies in its cache."""

from pathlib import Path

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.cache import cache_folder
from transformer_mt.data.corpus import Corpus

TEXT = SourceConfig(src="a.en", tgt="a.es")
TSV = SourceConfig(tsv="b.tsv")


def pairs_of(corpus: Corpus) -> list[tuple[str, str]]:
    return list(zip(corpus.dataset["src"], corpus.dataset["tgt"], strict=True))


def entries(data: DataConfig) -> list[Path]:
    return sorted((cache_folder(data) / "corpora").iterdir())
