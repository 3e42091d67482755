"""What a corpus is cached under and a checkpoint remembers, worked out by hand: other code must come to the same."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from toy import toy_config
from writers import make_source, write_csv, write_hub, write_jsonl, write_parquet, write_text, write_tsv

from transformer_mt.config.sections.sources import SOURCE_KINDS, SourceConfig
from transformer_mt.data.batches.stream import Stream
from transformer_mt.data.builtin import IDENTITY
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.preparation import prepare_training_data
from transformer_mt.data.sources.hub import Hub
from transformer_mt.data.sources.kinds import KINDS, source_of
from transformer_mt.data.sources.source import RawPair

PAIRS = [("one", "uno"), ("two", "dos"), ("three", "tres")]
CHOICES = [["en", "es"], ["src", "tgt"]]


def digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=20).hexdigest()


def write_text_pair(root: Path) -> tuple[SourceConfig, list[Any], list[Any]]:
    """The source, its part of a corpus's key, and its part of a stream's fingerprint."""
    source = write_text(root, PAIRS)
    paths = [root / "a.en", root / "a.es"]
    return source, ["text", list(map(digest, paths))], ["text", None, None, None, sizes(paths)]


def write_file(root: Path, kind: str) -> tuple[SourceConfig, list[Any], list[Any]]:
    source = {"tsv": write_tsv, "csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}[kind](root, PAIRS)
    path = root / f"a.{kind}"
    columns = [1, 2] if kind == "tsv" else CHOICES
    return source, [kind, columns, [digest(path)]], [kind, None, None, None, sizes([path])]


def write_folder(root: Path) -> tuple[SourceConfig, list[Any], list[Any]]:
    source = write_hub(root, PAIRS)
    path = root / "hub" / "train.parquet"
    key = ["hub", CHOICES, None, "train", {"train": ["train.parquet"]}, [digest(path)]]
    return source, key, ["hub", None, None, "train", sizes([path])]


def sizes(paths: list[Path]) -> list[int]:
    return [path.stat().st_size for path in paths]


def take_builtin(_: Path) -> tuple[SourceConfig, list[Any], list[Any]]:
    """Its files were once the 13 of the grammar: hashes and sizes stayed."""
    grammar = [312, 7005, 5044, 8199, 7788, 4853, 7543, 1832, 2800, 21649, 8954, 10011, 4465]
    key = ["builtin", "en-es", "validation", IDENTITY]
    return SourceConfig(builtin="en-es", split="validation"), key, ["builtin", None, None, "validation", grammar]


def write_mono(root: Path) -> tuple[SourceConfig, list[Any], list[Any]]:
    path = root / "a.en"
    path.write_text("one\ntwo\nthree\n")
    return SourceConfig(mono="a.en"), ["mono", [digest(path)]], ["mono", None, None, None, sizes([path])]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_keys_and_fingerprints_are_what_they_always_were(kind: str, tmp_path: Path) -> None:
    """Else every corpus would be read anew, and no run could be resumed."""
    writers = {"text": write_text_pair, "hub": write_folder, "builtin": take_builtin, "mono": write_mono}
    source, key, outline = writers[kind](tmp_path) if kind in writers else write_file(tmp_path, kind)
    data = {"train": [source.model_dump(exclude_defaults=True)], "cache_dir": str(tmp_path / "cache")}
    noise = {"noise": {"kind": "causal"}} if kind == "mono" else {}
    config = toy_config(tmp_path, data={**data, **noise, "streaming": True, "validation": data["train"]})
    expected = hashlib.blake2b(json.dumps([2, [key]]).encode(), digest_size=20).hexdigest()
    assert load_corpus([source], config.data, mono=True).fingerprint == expected
    stream = prepare_training_data(config).train
    assert isinstance(stream, Stream)
    parts = json.dumps([None, stream.beginning.digest, outline]).encode()
    assert stream.fingerprint == "stream-" + hashlib.blake2b(parts, digest_size=16).hexdigest()


def test_a_data_set_of_the_hub_is_keyed_by_its_pairs(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Hub, "pairs", lambda _: iter([RawPair(*pair, 1) for pair in PAIRS]))
    texts = [text.encode() for pair in PAIRS for text in pair]
    content = b"".join(len(text).to_bytes(8, "little") + text for text in texts)
    data = toy_config(tmp_path).data
    key = source_of(SourceConfig(hub="somebody/opus", split="train"), data).key()
    assert key == ["pairs", hashlib.blake2b(content, digest_size=20).hexdigest()]


def test_every_kind_of_the_schema_has_its_class() -> None:
    assert set(KINDS) == {"text", *SOURCE_KINDS}
    assert make_source("text", "a").kind == "text"
