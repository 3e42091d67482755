"""A corpus of a text and a TSV source, and a switch after which nobody may parse a source."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from entries import TEXT, TSV

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.data.sources.kinds import KINDS
from transformer_mt.data.sources.source import PairBlock, Source


@pytest.fixture
def data(tmp_path: Path) -> DataConfig:
    """A corpus of a text and a TSV source, with a cache of its own."""
    (tmp_path / "a.en").write_text("one\n \n\ntwo\n", encoding="utf-8")
    (tmp_path / "a.es").write_text("uno\nx\n\ndos\n", encoding="utf-8")
    (tmp_path / "b.tsv").write_text("three\ttres\nfour\t\u3000\nfive\tcinco\n", encoding="utf-8")
    cache = str(tmp_path / "cache" / "deep")
    return DataConfig(root=str(tmp_path), train=[TEXT, TSV], validation=[TSV], cache_dir=cache)


@pytest.fixture
def no_reading(monkeypatch: Any) -> Any:
    """Once called, whoever parses a source fails the test."""

    def parse(_: Source) -> Iterator[PairBlock]:
        raise AssertionError("parsed again")

    def forbid() -> None:
        for kind in KINDS.values():
            monkeypatch.setattr(kind, "blocks", parse)

    return forbid
