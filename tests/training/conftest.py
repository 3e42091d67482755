"""The toy corpus, as files and as what a training is given."""

from pathlib import Path

import pytest
import yaml
from toy import toy_config, toy_mapping, write_toy_corpus

from transformer_mt.data.preparation import PreparedData, prepare_data


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_toy_corpus(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def data(corpus: Path) -> PreparedData:
    return prepare_data(toy_config(corpus))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The corpus, and toy.yaml, which trains three steps on it."""
    corpus = write_toy_corpus(tmp_path / "data")
    mapping = toy_mapping(corpus, data={"cache_dir": str(tmp_path / "cache")}, training={"max_steps": 3})
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(mapping))
    return tmp_path
