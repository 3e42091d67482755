"""The toy corpus for the proofs."""

from pathlib import Path

import pytest
from toy import write_toy_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_toy_corpus(tmp_path_factory.mktemp("toy"))
