"""Text for the benchmarks, the modules of scripts/, and a run that has learned something."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarking import SCRIPTS
from toy import toy_mapping, toy_pairs, write_toy_corpus
from trainings import trained_once

from transformer_mt.config.loading import parse_run_config
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.run import start_or_resume


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """A folder in the layout of Multi30k, with text enough for twenty batches."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "tok").mkdir()
    pairs = toy_pairs(9000)
    for split, part in (("train", pairs), ("val", pairs[:50]), ("test_2016_flickr", pairs[:50])):
        for language, side in zip(("en", "de"), zip(*part, strict=True), strict=True):
            lines = "".join(f"{line.removesuffix('.')} .\n" for line in side)
            (folder / "tok" / f"{split}.lc.norm.tok.{language}").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Modules of scripts/ by their names, which no test after this one finds."""
    monkeypatch.syspath_prepend(SCRIPTS)
    before = set(sys.modules)
    shared = ("command", "foreign_decoders", "preset_speed", "training_opponents")
    names = ["bench_train", "bench_decode", *(f"measuring.{name}" for name in shared)]
    yield SimpleNamespace(**{name.rpartition(".")[2]: importlib.import_module(name) for name in names})
    for name in {path.stem for path in SCRIPTS.glob("*.py")} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned enough for a search to have no ties."""
    return trained_once(tmp_path_factory, "scripts", train) / "run"


def train(folder: Path) -> None:
    write_toy_corpus(folder / "data")
    training = {"max_steps": 600, "checkpoint_every_steps": 600, "max_tokens": 256, "warmup_steps": 50}
    validation = {"every_steps": 600, "num_translated": 0, "metric": "nll"}
    mapping = toy_mapping(folder / "data", training=training, validation=validation, model={"dropout": 0.0})
    start_or_resume(parse_run_config(mapping, "toy"), RunFolder(folder / "run"), resume=False)
