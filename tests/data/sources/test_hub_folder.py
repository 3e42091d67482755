"""Local folders in the hub's layout: what stands in their Parquet files comes out, and other files are refused."""

import shlex
import socket
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy import toy_config
from writers import PAIRS, fails, make_config, read

from transformer_mt.config.sections.sources import ColumnsConfig, SourceConfig
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.preparation import prepare_training_data
from transformer_mt.data.sources.kinds import source_of

CORPUS = SourceConfig(hub="corpus", split="train")


def write_table(path: Path, *pairs: tuple[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"src": [src for src, _ in pairs], "tgt": [tgt for _, tgt in pairs]}), path)


def write_hub_folder(root: Path, nested: bool) -> SourceConfig:
    (root / "corpus" / "data").mkdir(parents=True)
    for split, pairs in (("train", PAIRS), ("test", PAIRS[:2])):
        rows = [{"en": src, "es": tgt} for src, tgt in pairs]
        table = pa.Table.from_pylist([{"id": str(n), "translation": row} for n, row in enumerate(rows)])
        path = root / "corpus" / "data" / f"{split}-00000-of-00001.parquet"
        pq.write_table(table if nested else pa.Table.from_pylist(rows), path)
    return SourceConfig(hub="corpus", split="train")


@pytest.mark.parametrize("nested", [True, False])
def test_hub_layout_in_a_local_folder(nested: bool, tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise AssertionError("a local folder needs no network")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setattr(socket.socket, "connect", no_network)
    source = write_hub_folder(tmp_path, nested)
    config: dict[str, Any] = {"src_lang": "en", "tgt_lang": "es"}
    assert read(tmp_path, source, **config) == PAIRS
    assert read(tmp_path, source.model_copy(update={"split": "train[:2]"}), **config) == PAIRS[:2]
    absolute = SourceConfig(hub=str(tmp_path / "corpus"), split="test", columns=ColumnsConfig(src="es", tgt="en"))
    assert read(Path("/"), absolute) == [(tgt, src) for src, tgt in PAIRS[:2]]
    files = source_of(source, make_config(tmp_path)).files()
    assert [path.name[:5] for path in files] == ["train"]
    both = source.model_copy(update={"split": "train[1:]+test[:1]"})
    assert [path.name[:5] for path in source_of(both, make_config(tmp_path)).files()] == ["train", "test-"]
    everything = source.model_copy(update={"split": "all"})
    assert source_of(everything, make_config(tmp_path)).files() == source_of(both, make_config(tmp_path)).files()
    assert capfd.readouterr() == ("", "")


def test_hub_folder_errors(tmp_path: Path) -> None:
    source = write_hub_folder(tmp_path, nested=True)
    message = fails(tmp_path, source.model_copy(update={"split": "dev"}))
    assert "corpus" in message
    assert "'train'" in message
    assert "network" not in message
    message = fails(tmp_path, source, src_lang="en", tgt_lang="fr")
    assert "no columns en and fr, nor src and tgt" in message
    assert "translation holds en, es" in message
    assert "There is no folder" in fails(tmp_path, SourceConfig(hub="./nowhere", split="train"))
    (tmp_path / "corpus" / "data" / "train-00000-of-00001.parquet").write_bytes(b"PAR1 no parquet")
    message = fails(tmp_path, source)
    assert "arquet" in message
    assert "Check that the folder is whole" in message


@pytest.mark.parametrize("is_dict", [False, True])
def test_a_folder_of_save_to_disk_is_told_with_a_command_that_writes_it_as_parquet(
    is_dict: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = datasets.Dataset.from_list([{"src": src, "tgt": tgt} for src, tgt in PAIRS])
    folder = tmp_path / "it's saved"
    (datasets.DatasetDict({"train": one, "test": one}) if is_dict else one).save_to_disk(folder)
    message = fails(tmp_path, SourceConfig(hub=folder.name, split="train"))
    assert "was written by save_to_disk" in message
    (code,) = (part for part in shlex.split(message.partition(" -c ")[2]) if "load_from_disk" in part)
    monkeypatch.chdir(tmp_path)
    exec(code.rstrip(","), {})
    assert read(tmp_path, SourceConfig(parquet="train.parquet")) == PAIRS


def test_hub_folder_may_bear_the_name_of_a_loader(tmp_path: Path, monkeypatch: Any) -> None:
    write_hub_folder(tmp_path, nested=True)
    (tmp_path / "corpus").rename(tmp_path / "parquet")
    monkeypatch.chdir(tmp_path)
    assert read(Path("."), SourceConfig(hub="parquet", split="train"), src_lang="en", tgt_lang="es") == PAIRS


def test_a_kind_that_only_the_library_reads(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    table = pa.table({"src": [src for src, _ in PAIRS], "tgt": [tgt for _, tgt in PAIRS]})
    with (
        pa.OSFile(str(tmp_path / "corpus" / "train.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table)
    assert read(tmp_path, CORPUS) == PAIRS


@pytest.mark.parametrize("name", ["old", "deep/old", "csv"])
def test_a_folder_of_the_process_is_not_taken_for_one_of_the_root(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    for folder in ("here", "root"):
        (tmp_path / folder).mkdir()
    (tmp_path / "here" / name).mkdir(parents=True)
    write_table(tmp_path / "here" / name / "train.parquet", ("a", "b"))
    monkeypatch.chdir(tmp_path / "here")
    message = fails(tmp_path / "root", SourceConfig(hub=name, split="train"))
    assert f"There is no folder {tmp_path}/root/{name}" in message
    assert name == "csv" or f"{tmp_path}/here/{name}" in message


@pytest.mark.parametrize("name", ["a.csv", "deep/a.TSV", "a.json", "a.jsonl", "a.ndjson.gz", "a.csv.xz", "a.txt"])
@pytest.mark.parametrize("beside", [True, False])
def test_files_whose_cells_would_be_guessed_are_refused(name: str, beside: bool, tmp_path: Path) -> None:
    """Alone, and beside Parquet files, where the library takes files of one kind and is silent on the other.

    Plain text is no table, so it may lie beside one.
    """
    if beside:
        write_table(tmp_path / "corpus" / "train" / "0.parquet", ("c", "d"))
    path = tmp_path / "corpus" / "train" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("src,tgt\na,007\n", encoding="utf-8")
    if beside and name == "a.txt":
        assert read(tmp_path, CORPUS) == [("c", "d")]
        return
    message = fails(tmp_path, CORPUS)
    assert f"{path.name} is no Parquet file" in message
    assert "{csv: FILE}" in message


def test_what_the_library_writes_beside_the_data_is_no_data(tmp_path: Path) -> None:
    write_table(tmp_path / "corpus" / "train.parquet", ("a", "b"))
    (tmp_path / "corpus" / ".cache").mkdir()
    for name in ("dataset_infos.json", ".cache/a.json"):
        (tmp_path / "corpus" / name).write_text("{}", encoding="utf-8")
    assert read(tmp_path, CORPUS) == [("a", "b")]


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[:2]", [0, 1]),
        ("train[50%:]", [2, 3]),
        ("train[-1:]+test", [3, 10, 11]),
        ("test+train[1:2]", [10, 11, 1]),
    ],
)
def test_splits_may_be_cut_and_joined(split: str, expected: list[int], tmp_path: Path) -> None:
    for number in range(4):
        write_table(tmp_path / "corpus" / "train" / f"{number}.parquet", (str(number), "x"))
    write_table(tmp_path / "corpus" / "test" / "a.parquet", ("10", "x"), ("11", "x"))
    counted = "%" not in split and "-" not in split  # else a stream needs a card with the numbers of rows
    found = read(tmp_path, CORPUS.model_copy(update={"split": split}), is_streamed=counted)
    assert found == [(str(number), "x") for number in expected]
    assert "dev" in fails(tmp_path, CORPUS.model_copy(update={"split": "dev[:2]"}))


def test_configs_of_a_card_are_chosen(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write_table(tmp_path / "corpus" / name / "train.parquet", ("NA", name))
    card = "---\nconfigs:\n- {config_name: x, data_files: x/*}\n- {config_name: y, data_files: y/*}\n---\n"
    (tmp_path / "corpus" / "README.md").write_text(card, encoding="utf-8")
    for name in ("x", "y"):
        assert read(tmp_path, SourceConfig(hub="corpus", config=name, split="train")) == [("NA", name)]
    assert "Please pick one" in fails(tmp_path, CORPUS)


@pytest.mark.parametrize("split", ["train", "train+test", "all"])
def test_another_card_is_another_corpus(split: str, tmp_path: Path) -> None:
    """The files that it calls training and test change places."""
    for name in ("a", "b"):
        write_table(tmp_path / "corpus" / f"{name}.parquet", (name, "x"))
    source = CORPUS.model_copy(update={"split": split})
    found = []
    for train, test in ("ab", "ba"):
        files = f"[{{split: train, path: {train}.parquet}}, {{split: test, path: {test}.parquet}}]"
        card = f"---\nconfigs: [{{config_name: default, data_files: {files}}}]\n---\n"
        (tmp_path / "corpus" / "README.md").write_text(card, encoding="utf-8")
        found.append(list(load_corpus([source], make_config(tmp_path, cache_dir=str(tmp_path / "cache")))))
    assert [pairs[0] for pairs in found] == [("a", "x"), ("b", "x")]


@pytest.mark.parametrize("streaming", [True, False])
def test_a_split_is_the_same_whatever_else_comes_to_its_folder(streaming: bool, tmp_path: Path) -> None:
    """Other splits, and what people write into the card."""
    rows = [(word, f"{word}o") for word in ("one", "two", "three")]
    write_table(tmp_path / "corpus" / "train.parquet", *rows)
    source = {"hub": "corpus", "split": "train[1:]"}
    config = toy_config(
        tmp_path,
        data={"train": [source], "validation": [source], "streaming": streaming, "cache_dir": str(tmp_path / "cache")},
    )

    def fingerprint() -> object:
        return prepare_training_data(config).train.identity()["fingerprint"]

    first = fingerprint()
    write_table(tmp_path / "corpus" / "test.parquet", ("a", "b"))
    assert fingerprint() == first
    (tmp_path / "corpus" / "README.md").write_text("---\nlicense: mit\n---\n# What this is\n", encoding="utf-8")
    assert fingerprint() == first
    write_table(tmp_path / "corpus" / "train.parquet", *rows[::-1])
    assert fingerprint() != first
