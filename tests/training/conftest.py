"""The toy corpus, as files and as what a training is given."""

from pathlib import Path

import pytest
from toy import toy_config, write_toy_corpus

from transformer_mt.data.preparation import PreparedData, prepare_data


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_toy_corpus(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def data(corpus: Path) -> PreparedData:
    return prepare_data(toy_config(corpus))
