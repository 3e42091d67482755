"""Data sets of the hub by their names: what is asked for, parts of splits, and what a failure says."""

from pathlib import Path
from typing import Any

import datasets
import pytest
from writers import fails, make_config, read

from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.sources.kinds import source_of
from transformer_mt.errors import UserError


def test_hub_name_is_asked_for_and_failure_says_what_to_do(tmp_path: Path, monkeypatch: Any) -> None:
    asked = []
    columns: dict[str, Any] = {"translation": [{"en": "a", "es": "b"}, {"en": "c", "es": "d"}]}

    def load(name: str, config: str, split: str, cache_dir: str | None) -> datasets.Dataset:
        asked.append((name, config, split, cache_dir))
        return datasets.Dataset.from_dict(columns)

    monkeypatch.setattr(datasets, "load_dataset_builder", lambda name, config: type("Builder", (), {"config": None}))
    monkeypatch.setattr(datasets, "load_dataset", load)
    source = SourceConfig(hub="somebody/opus", config="en-es", split="train")
    assert read(tmp_path, source, is_streamed=False, src_lang="en", tgt_lang="es") == [("a", "b"), ("c", "d")]
    assert asked == [("somebody/opus", "en-es", "train", None)]
    assert source_of(source, make_config(tmp_path)).files() == []
    columns["translation"] = [{"en": 1, "es": 2}]
    message = fails(tmp_path, source, src_lang="en", tgt_lang="es")
    assert "somebody/opus, split train, row 1: column en holds a value of type int" in message

    def unreachable(*_: Any) -> None:
        raise ConnectionError("Couldn't reach 'somebody/opus' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset_builder", unreachable)
    message = fails(tmp_path, source)
    assert "somebody/opus" in message
    assert "Couldn't reach" in message
    assert "the network" in message
    assert "download its files" in message


def test_parts_of_splits_are_streamed_by_name(tmp_path: Path, monkeypatch: Any) -> None:
    """The library streams whole splits only. How many rows a split has is known where the card says so."""
    folder = tmp_path / "corpus"
    for split, numbers in (("train", range(4)), ("test", (10, 11))):
        (folder / split).mkdir(parents=True)
        rows = "".join(f"{number},x\n" for number in numbers)
        (folder / split / "a.csv").write_text(f"src,tgt\n{rows}", encoding="utf-8")
    for name in ("load_dataset", "load_dataset_builder"):
        original = getattr(datasets, name)
        monkeypatch.setattr(
            datasets, name, lambda _, *rest, _of=original, **options: _of(str(folder), *rest, **options)
        )

    def streamed(split: str) -> list[int]:
        source = SourceConfig(hub="somebody/opus", split=split)
        return [int(pair.src) for pair in source_of(source, make_config(tmp_path)).streamed()]

    assert streamed("train") == [0, 1, 2, 3]
    assert streamed("train[1:3]") == [1, 2]
    assert streamed("test[1:]+train[:2]") == [11, 0, 1]
    assert sorted(streamed("all")) == [0, 1, 2, 3, 10, 11]
    for split in ("train[:50%]", "train[-1:]"):
        with pytest.raises(UserError, match=r"how many rows there are is not known .* data.streaming: false"):
            streamed(split)
    card = "---\ndataset_info:\n  splits:\n  - {name: train, num_examples: 4}\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    assert streamed("train[:50%]") == [0, 1]
    assert streamed("train[-1:]+test") == [3, 10, 11]
