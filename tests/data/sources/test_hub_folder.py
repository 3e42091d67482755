"""Local folders in the hub's layout: what stands in their files comes out, mapped and streamed alike."""

import bz2
import json
import lzma
import socket
import tarfile
import zipfile
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy import toy_config
from writers import PAIRS, fails, make_config, read

from transformer_mt.config.schema import ColumnsConfig, SourceConfig
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.preparation import prepare_training_data
from transformer_mt.data.sources.kinds import source_of

CORPUS = SourceConfig(hub="corpus", split="train")


def write_files(root: Path, **texts: str) -> None:
    """Files of the folder `corpus`; `__` in a name stands for the dot."""
    (root / "corpus" / "train").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (root / "corpus" / "train" / name.replace("__", ".")).write_text(text, encoding="utf-8")


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
    assert [path.name[:5] for path in source_of(both, make_config(tmp_path)).files()] == ["test-", "train"]
    everything = source.model_copy(update={"split": "all"})
    assert source_of(everything, make_config(tmp_path)).files() == source_of(both, make_config(tmp_path)).files()
    assert capfd.readouterr() == ("", "")


def test_hub_folder_of_csv_keeps_words_and_configs_are_chosen(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / "corpus" / name).mkdir(parents=True)
        (tmp_path / "corpus" / name / "train.csv").write_text(f"src,tgt\nNA,null\n{name},nan\n", encoding="utf-8")
    card = "---\nconfigs:\n- {config_name: x, data_files: x/*.csv}\n- {config_name: y, data_files: y/*.csv}\n---\n"
    (tmp_path / "corpus" / "README.md").write_text(card, encoding="utf-8")
    for name in ("x", "y"):
        source = SourceConfig(hub="corpus", config=name, split="train")
        assert read(tmp_path, source) == [("NA", "null"), (name, "nan")]
    assert "Please pick one" in fails(tmp_path, SourceConfig(hub="corpus", split="train"))


@pytest.mark.parametrize("card", ["", "---\ndataset_info: {features: [{name: x, dtype: string}, "
                                  "{name: tgt, dtype: string}]}\n---\n"])  # fmt: skip
def test_csv_of_a_hub_folder_holds_text_whatever_it_looks_like(tmp_path: Path, card: str) -> None:
    """12,000 rows: `datasets` reads 10,000 at a time, and each time guesses the types anew."""
    pairs = [("a", "007"), *[("b", "1e3")] * 9_999, *[("007", "True")] * 2_000]
    (tmp_path / "corpus").mkdir()
    rows = "".join(f"{src},{tgt}\n" for src, tgt in pairs)
    (tmp_path / "corpus" / "train.csv").write_text(f"x,tgt\n{rows}", encoding="utf-8")
    if card:
        (tmp_path / "corpus" / "README.md").write_text(card, encoding="utf-8")
    source = SourceConfig(hub="corpus", split="train", columns=ColumnsConfig(src="x", tgt="tgt"))
    assert read(tmp_path, source) == pairs


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
    assert "is not a whole Parquet file" in fails(tmp_path, source)


def test_hub_folder_may_bear_the_name_of_a_loader(tmp_path: Path, monkeypatch: Any) -> None:
    write_hub_folder(tmp_path, nested=True)
    (tmp_path / "corpus").rename(tmp_path / "parquet")
    monkeypatch.chdir(tmp_path)
    assert read(Path("."), SourceConfig(hub="parquet", split="train"), src_lang="en", tgt_lang="es") == PAIRS


def test_json_of_a_hub_folder_is_text_or_an_error_that_names_the_line(tmp_path: Path) -> None:
    """Not JSON within text because one cell of the column is a number, and dates no times."""
    rows = [('hi "you" é', "hola"), ("2024-02-01", "y"), ("2024-02-01 10:30", "z")]
    for number, (src, tgt) in enumerate(rows):
        write_files(tmp_path, **{f"{number}__jsonl": json.dumps({"src": src, "tgt": tgt})})
    assert read(tmp_path, CORPUS) == rows
    write_files(tmp_path, **{"1__jsonl": '{"src": "a", "tgt": "b"}\n{"src": 7, "tgt": "b"}\n'})
    message = fails(tmp_path, CORPUS)
    assert "1.jsonl, line 2: column src holds a value of type int" in message


def test_json_of_a_hub_folder_may_be_one_array(tmp_path: Path) -> None:
    nested = [{"translation": {"src": src, "tgt": tgt}} for src, tgt in PAIRS]
    write_files(tmp_path, a__json="\ufeff\n " + json.dumps(nested, indent=1), b__json='{"src": "a", "tgt": "b"}\n')
    assert read(tmp_path, CORPUS) == [*PAIRS, ("a", "b")]
    write_files(tmp_path, a__json='[{"src": "a", "tgt": "b"}, 7]')
    assert "a.json, element 2: a JSON int, not an object" in fails(tmp_path, CORPUS)
    write_files(tmp_path, a__json='[{"src": "a", "tgt": "b"}')
    assert "a.json: not JSON" in fails(tmp_path, CORPUS)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("a\tb\t0.9\nc\td\t0.8\n", "3 columns, but the header has 2. Put double quotes around a text that holds a {}"),
        ("a\tb\t\n", "3 columns, but the header has 2. Put double quotes around a text that holds a {}"),
        ("a\n", "1 column, but the header has 2. Put double quotes around a text that holds a {}"),
        ('"Hi there\thola\nfoo\tbar\nend" x\ty\n', "the row that begins here is not CSV"),
    ],
)
def test_rows_that_do_not_have_the_headers_columns_are_named(rows: str, told: str, tmp_path: Path) -> None:
    """Not moved to the side, so that the second column is the source, nor left out."""
    for suffix, text in (("tsv", rows), ("csv", rows.replace("\t", ","))):
        write_files(tmp_path, **{f"a__{suffix}": "src\ttgt\n".replace("\t", "," if suffix == "csv" else "\t") + text})
        message = fails(tmp_path, CORPUS)
        assert f"a.{suffix}, line 2: {told.format('comma' if suffix == 'csv' else 'tab')}" in message
        (tmp_path / "corpus" / "train" / f"a.{suffix}").unlink()


def test_lines_of_a_hub_folder_end_where_lines_end(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "train.csv").write_bytes("src,tgt\r\na\rb,c\u2028d\r\n".encode())
    assert read(tmp_path, CORPUS) == [("a\rb", "c\u2028d")]
    (tmp_path / "corpus" / "train.csv").write_text("src,tgt,src\na,b,c\n", encoding="utf-8")
    assert "two columns are named src" in fails(tmp_path, CORPUS)


@pytest.mark.parametrize("first", ["1__csv", "1__jsonl"])
def test_files_of_two_kinds_are_refused(first: str, tmp_path: Path) -> None:
    """The library takes one kind and is silent on the other."""
    other = {"1__csv": "2__jsonl", "1__jsonl": "2__csv"}[first]
    texts = {"csv": "src,tgt\na,b\n", "jsonl": '{"src": "a", "tgt": "b"}\n'}
    write_files(tmp_path, **{name: texts[name[3:]] for name in (first, other)})
    message = fails(tmp_path, CORPUS)
    assert "1." in message
    assert "2." in message
    assert "files of two kinds" in message
    card = f"---\nconfigs:\n- {{config_name: default, data_files: train/{first.replace('__', '.')}}}\n---\n"
    (tmp_path / "corpus" / "README.md").write_text(card, encoding="utf-8")
    assert read(tmp_path, CORPUS) == [("a", "b")]


def test_files_in_order_whatever_else_their_columns_are(tmp_path: Path) -> None:
    """Columns that nobody reads may be of any type, in any order; a file may hold its header alone."""
    names = ["id", "src", "tgt"]
    for number, order in enumerate(permutations(names)):
        cells = {"id": str(number) if number else "x", "src": f"s{number}", "tgt": f"t{number}"}
        write_files(tmp_path, **{f"{number}__csv": ",".join(order) + "\n" + ",".join(cells[n] for n in order) + "\n"})
    write_files(tmp_path, **{"6__csv": "src,tgt\n", "7__csv": ""})
    assert read(tmp_path, CORPUS) == [(f"s{n}", f"t{n}") for n in range(6)]


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
        write_files(tmp_path, **{f"{number}__csv": f"src,tgt\n{number},x\n"})
    (tmp_path / "corpus" / "test").mkdir()
    (tmp_path / "corpus" / "test" / "a.csv").write_text("src,tgt\n10,x\n11,x\n", encoding="utf-8")
    source = CORPUS.model_copy(update={"split": split})
    assert read(tmp_path, source) == [(str(number), "x") for number in expected]
    assert "dev" in fails(tmp_path, CORPUS.model_copy(update={"split": "dev[:2]"}))


def test_what_a_card_says_of_reading_is_done_or_refused(tmp_path: Path) -> None:
    write_files(tmp_path, a__csv="src;tgt\na,b;c\n")
    card = "---\nconfigs:\n- {config_name: default, data_files: train/*.csv, %s}\n---\n"
    for option in ('sep: ";"', 'delimiter: ";"', 'sep: ";", encoding: UTF-8'):
        (tmp_path / "corpus" / "README.md").write_text(card % option, encoding="utf-8")
        assert read(tmp_path, CORPUS) == [("a,b", "c")]
    (tmp_path / "corpus" / "README.md").write_text(card % "skiprows: 1", encoding="utf-8")
    assert "skiprows: 1 in its card" in fails(tmp_path, CORPUS)


def test_settings_that_change_nothing_and_files_without_a_header(tmp_path: Path) -> None:
    card = "---\nconfigs:\n- {config_name: default, data_files: train/*.%s, %s}\n---\n"
    write_files(tmp_path, a__csv='a,"b\n', b__json='{"x": 1, "data": [{"src": "a", "tgt": "b"}]}')
    options = "column_names: [src, tgt], quoting: 3, keep_default_na: false, encoding: utf_8, engine: python"
    (tmp_path / "corpus" / "README.md").write_text(card % ("csv", options), encoding="utf-8")
    assert read(tmp_path, CORPUS) == [("a", '"b')]
    (tmp_path / "corpus" / "README.md").write_text(card % ("json", "field: data"), encoding="utf-8")
    assert read(tmp_path, CORPUS) == [("a", "b")]
    (tmp_path / "corpus" / "README.md").write_text(card % ("json", "field: other"), encoding="utf-8")
    assert "b.json has no array 'other' of objects" in fails(tmp_path, CORPUS)
    refused = ["sep: null", "sep: '||'", "sep: ''", "encoding: 8", "encoding: latin-1", "header: null"]
    for option in [*refused, "header: 0, column_names: [src, tgt]"]:  # which would put other names over a header
        (tmp_path / "corpus" / "README.md").write_text(card % ("csv", option), encoding="utf-8")
        assert f"{option.split(':')[0]}: " in fails(tmp_path, CORPUS)


def test_a_key_that_is_left_out_is_null(tmp_path: Path) -> None:
    write_files(tmp_path, a__jsonl='{"src": "x", "tgt": "y", "id": 1}\n{"src": "a"}\n{}\n\n{"tgt": "b", "id": 2}\n')
    assert read(tmp_path, CORPUS) == [("x", "y"), ("a", ""), ("", ""), ("", "b")]
    write_files(tmp_path, a__jsonl='{"src": "x", "tgt": "y"}\n{"src": "a", "tgr": "b"}\n')
    assert "a.jsonl, line 2: no columns src and tgt" in fails(tmp_path, CORPUS)


def test_rows_of_a_split_are_those_that_are_there(tmp_path: Path) -> None:
    """An empty line is no row, as to the library, so a slice has the rows that it has there."""
    write_files(tmp_path, a__jsonl='{"src": "a", "tgt": "b"}\n\n{"src": "c", "tgt": "d"}\n\n\n')
    for split, expected in (("train[50%:]", ["c"]), ("train[-1:]", ["c"]), ("all", ["a", "c"])):
        assert [src for src, _ in read(tmp_path, CORPUS.model_copy(update={"split": split}))] == expected


def test_statistics_may_lie_beside_the_data(tmp_path: Path) -> None:
    write_files(tmp_path, a__csv="src,tgt\na,b\n", b__csv="src,tgt\nc,d\n", stats__json='{"num_rows": 2}')
    assert read(tmp_path, CORPUS) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "bz2", "xz", "zst"])
def test_packed_files_are_unpacked_or_refused(kind: str, tmp_path: Path) -> None:
    write_files(tmp_path, a__jsonl='{"src": "a", "tgt": "b"}\n')
    path = tmp_path / "corpus" / "train" / "a.jsonl"
    packed = path.with_name(f"a.jsonl.{kind}")
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            archive.write(path, "a.jsonl")
    elif kind.startswith("tar"):
        with tarfile.open(packed, "w:gz" if kind.endswith("gz") else "w") as tar:
            tar.add(path, "a.jsonl")
    elif kind == "zst":
        packed.write_bytes(b"\x28\xb5\x2f\xfd and so on")
    else:
        packed.write_bytes({"bz2": bz2, "xz": lzma}[kind].compress(path.read_bytes()))
    path.unlink()
    if kind in ("bz2", "xz"):
        assert read(tmp_path, CORPUS) == [("a", "b")]
        packed.write_bytes(packed.read_bytes()[:-8])
        assert "is not a whole gzip, bz2 or xz file" in fails(tmp_path, CORPUS)
    else:
        assert f"{packed.name} is an archive. Unpack it" in fails(tmp_path, SourceConfig(jsonl=str(packed)))


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
    (tmp_path / "here" / name / "train.csv").write_text("src,tgt\na,b\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    message = fails(tmp_path / "root", SourceConfig(hub=name, split="train"))
    assert f"There is no folder {tmp_path}/root/{name}" in message
    assert name == "csv" or f"{tmp_path}/here/{name}" in message


def test_another_card_is_another_corpus(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for name in ("a", "b"):
        (tmp_path / "corpus" / f"{name}.csv").write_text(f"src,tgt\n{name},x\n", encoding="utf-8")
    found = []
    for train, test in ("ab", "ba"):
        files = f"[{{split: train, path: {train}.csv}}, {{split: test, path: {test}.csv}}]"
        card = f"configs: [{{config_name: default, data_files: {files}}}]\n"
        (tmp_path / "corpus" / ".huggingface.yaml").write_text(card, encoding="utf-8")
        found.append(list(load_corpus([CORPUS], make_config(tmp_path, cache_dir=str(tmp_path / "cache")))))
    assert found == [[("a", "x")], [("b", "x")]]


@pytest.mark.parametrize("streaming", [True, False])
def test_a_split_is_the_same_whatever_else_comes_to_its_folder(streaming: bool, tmp_path: Path) -> None:
    """Other splits, and what people write into the card below its settings; those are part of it."""
    (tmp_path / "corpus").mkdir()
    rows = [f"{word},{word}o\n" for word in ("one", "two", "three")]
    (tmp_path / "corpus" / "train.csv").write_text("src,tgt\n" + "".join(rows), encoding="utf-8")
    source = {"hub": "corpus", "split": "train[1:]"}
    config = toy_config(
        tmp_path,
        data={"train": [source], "validation": [source], "streaming": streaming, "cache_dir": str(tmp_path / "cache")},
    )

    def fingerprint() -> object:
        return prepare_training_data(config).train.identity()["fingerprint"]

    first = fingerprint()
    (tmp_path / "corpus" / "test.csv").write_text("src,tgt\na,b\n", encoding="utf-8")
    assert fingerprint() == first
    card = tmp_path / "corpus" / "README.md"
    card.write_text("# What this is\n", encoding="utf-8")
    assert fingerprint() == first
    card.write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    assert (settled := fingerprint()) != first
    card.write_text("---\nlicense: mit\n---\n# What this is\n", encoding="utf-8")
    assert fingerprint() == settled
    (tmp_path / "corpus" / "train.csv").write_text("src,tgt\n" + "".join(rows[::-1]), encoding="utf-8")
    assert fingerprint() != settled
