"""Input that tries to break `tmt`: a right answer, or one clear message and exit status 2; no traceback, no hang."""

import os
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from commands import call_tmt, run_tmt
from toy import toy_mapping, write_toy_corpus

from transformer_mt.cli.main import main

Break = Callable[[Path], object]
TINY = {"max_steps": 2, "checkpoint_every_steps": 2, "max_tokens": 64, "warmup_steps": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus and its config, in a folder whose name is neither short nor plain."""
    return write_corpus(tmp_path / "größe 日本 '😀'")


def write_corpus(folder: Path) -> Path:
    write_toy_corpus(folder / "data dir", 40)
    mapping = toy_mapping(folder / "data dir", training={**toy_mapping(folder)["training"], **TINY})
    mapping["data"] |= {"root": "data dir", "cache_dir": "cache dir"}
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping, allow_unicode=True), encoding="utf-8")
    return folder


def call(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> tuple[int, str, str]:
    """`tmt` in this process: its status, and what it printed."""
    monkeypatch.setattr(sys, "argv", ["tmt", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def assert_refused(status: int, stderr: str, *said: str) -> None:
    """Status 2 and one message, short enough to read."""
    assert status == 2
    assert stderr.startswith("tmt: ")
    assert stderr.count("tmt: ") == 1
    assert "Traceback" not in stderr
    assert len(stderr) < 3000
    for part in said:
        assert part in stderr


# Configs

NINE = "abcdefghi"
LAUGHS = "a: &a [lol]\n" + "".join(f"{n}: &{n} [{', '.join([f'*{o}'] * 9)}]\n" for o, n in pairwise(NINE))


def write_bytes(content: bytes) -> Break:
    return lambda path: path.write_bytes(content)


def edit(old: str, new: str) -> Break:
    def change(path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def become_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def fifty_megabytes(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"# x\n" * (50 * 2**20 // 4))


CONFIGS: dict[str, tuple[Break, str]] = {
    "50 MB": (fifty_megabytes, "toy.yaml is larger than 1024 KiB"),
    "1 MB of keys": (write_bytes(b"".join(b"k%d: v\n" % n for n in range(95_000))), "more than 20000 values"),
    "1 MB in one word": (write_bytes(b"a: !!int " + b"z" * 10**6), "zzz' is not a whole number"),
    "1 MB in one key": (write_bytes(b"? " + b"k" * 10**6 + b"\n: v"), "unknown key"),
    "billion laughs": (write_bytes(LAUGHS.encode()), "aliases written out"),
    "a pipe": (become_pipe, "toy.yaml is a pipe or a device"),
    "a folder": (become_folder, "is a folder"),
    "empty": (write_bytes(b""), "toy.yaml is empty"),
    "newlines": (write_bytes(b"\n" * 9999), "toy.yaml is empty"),
    "UTF-16": (lambda path: path.write_text(path.read_text("utf-8"), "utf-16"), "toy.yaml is UTF-16"),
    "Latin 1": (write_bytes("name: größe".encode("latin1")), "line 1: byte 0xf6 is not UTF-8"),
    "NUL": (write_bytes(b"name: a\0b"), "the character U+0000 is not allowed"),
    "half a pair": (write_bytes(b'name: "\\ud800"'), "U+D800"),
    "a key twice": (edit("seed: 3", "seed: 3\nseed: 4"), "the key 'seed' is there twice"),
    "a key renamed": (edit("  num_heads:", "  n_heads:"), "model.n_heads: unknown key, did you mean num_heads?"),
    "another type": (edit("d_model: 16", "d_model: [16]"), "model.d_model: a list is not allowed"),
    "out of range": (edit("dropout: 0.1", "dropout: 1.5"), "model.dropout: 1.5 is not allowed"),
    "nested wrongly": (edit("model:\n", "model:\n  model:\n"), "model"),
    "a section too deep": (edit("seed: 3", "seed: {seed: 3}"), "seed: a map"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_broken_config_is_one_message(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(folder)
    broken, said = CONFIGS[name]
    broken(folder / "toy.yaml")
    status, _, stderr = call(["train", "--config", "toy.yaml"], monkeypatch, capsys)
    assert_refused(status, stderr, said)
    assert not (folder / "runs").exists()


# Sources

SOURCES: dict[str, tuple[Break, str]] = {
    "a pipe": (become_pipe, "train.en is a pipe or a device"),
    "a folder": (become_folder, "train.en is a folder, not a file"),
    "missing": (Path.unlink, "There is no file"),
    "empty": (write_bytes(b""), "train.en has 0 lines and "),
    "only newlines": (write_bytes(b"\n" * 40), "all 40 pairs have a blank side"),
    "a mark alone": (write_bytes(b"\xef\xbb\xbf"), "train.en has 0 lines and "),
    "UTF-16": (lambda path: path.write_text("one\n" * 40, "utf-16"), "iconv -f UTF-16"),
    "half a pair": (write_bytes(b"\xed\xa0\x80\n" * 40), "train.en, line 1: the bytes are not UTF-8"),
    "one line less": (edit("\n", " "), "train.en has 39 lines and "),
    "an old Mac's line ends": (lambda path: edit_all(path, "\n", "\r"), "train.en has 1 line and "),
    "unicode's line ends": (lambda path: edit_all(path, "\n", "\u2028"), "train.en has 1 line and "),
    "next line and form feed": (lambda path: edit_all(path, "\n", "\x85\x0c"), "train.en has 1 line and "),
    "half a gzip": (write_bytes(b"\x1f\x8b\x08\x00\x00"), "train.en is not a whole gzip, bz2 or xz file"),
    "one line of 10 MB": (write_bytes(b"one " * 2_500_000), "train.en has 1 line and "),
}


def edit_all(path: Path, old: str, new: str) -> None:
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))


@pytest.mark.parametrize("name", SOURCES)
def test_a_broken_source_is_one_message(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(folder)
    broken, said = SOURCES[name]
    broken(folder / "data dir" / "train.en")
    status, _, stderr = call(["train", "--config", "toy.yaml"], monkeypatch, capsys)
    assert_refused(status, stderr, said)


@pytest.mark.parametrize("name", ["n" * 300, "n/../../x", "con:aux", "größe", "a\0b", ""])
def test_a_name_that_no_folder_can_have(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(folder)
    status, _, stderr = call(["train", "--config", "toy.yaml", f"name={name}"], monkeypatch, capsys)
    assert_refused(status, stderr)


# As a user starts it


def test_hostile_text_in_hostile_folders_trains_and_translates(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Long lines, blank ones and every odd separator: what fits is trained on, and a line in is a line out. Then one
    bit of the weights turns, and every verb that would use them says so."""
    odd = ["one\u2028two\x85.", "three\x0cfour\x0b.", "\ufeffone\u200b.", "\x00 \x1c.", "a\rb."]
    odd += ["one " * 50_000, " \t "]
    for name in ("train.en", "train.es"):
        with (folder / "data dir" / name).open("ab") as file:
            file.write("".join(f"{text}\r\n" for text in odd).encode())
    result = run_tmt(folder, "train", "--config", "toy.yaml", "--runs", "runs dir")
    assert result.returncode == 0, result.stderr
    assert "1 with a blank side dropped, 1 too long left out" in result.stdout
    stdin = "".join(f"{text}\n" for text in odd).encode()
    result = run_tmt(folder, "translate", "--run", "runs dir/toy", stdin=stdin)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == len(odd)
    assert result.stdout.split("\n")[5:7] == ["", ""]

    weights = folder / "runs dir/toy/checkpoints/step_2/model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    monkeypatch.chdir(folder)
    for arguments in (
        ["translate", "--run", "runs dir/toy", "one."],
        ["average", "runs dir/toy", "--last", "1"],
        ["evaluate", "--run", "runs dir/toy", "--split", "validation"],
        ["trace", "one.", "--run", "runs dir/toy"],
        ["attention", "one.", "--run", "runs dir/toy", "--output", "pictures"],
        ["train", "--resume", "runs dir/toy", "training.max_steps=3"],
    ):
        status, _, stderr = call(arguments, monkeypatch, capsys)
        assert status == 2, arguments
        assert "step_2/model.safetensors is damaged: it was changed or cut short" in stderr, arguments
    result = run_tmt(folder, "translate", "--run", "runs dir/toy", "one.")
    assert_refused(result.returncode, result.stderr, "step_2/model.safetensors is damaged")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All that a training imports. Without root's rights the files of Python itself may be out of reach."""
    folder = write_corpus(tmp_path_factory.mktemp("imported"))
    assert call_tmt(folder, "train", "--config", "toy.yaml").returncode == 0


@pytest.mark.parametrize(
    ("closed", "mode", "said"),
    [
        ("toy.yaml", 0o000, "toy.yaml cannot be read: Permission denied"),
        ("data dir/train.es", 0o000, "train.es may not be read: permission denied"),
        ("runs", 0o555, "cannot be written to, so there is no place for the run"),
        ("cache dir", 0o555, "cannot be written: Permission denied. Set data.cache_dir"),
    ],
)
@pytest.mark.usefixtures("imported")
def test_no_permission_is_one_message(
    closed: str, mode: int, said: str, folder_without_rights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_corpus(folder_without_rights)
    # It would ask for the rights of the user who began this process, which may be root.
    monkeypatch.setattr(os, "access", partial(os.access, effective_ids=True))
    for name in ("runs", "cache dir"):
        (folder / name).mkdir()
    (folder / closed).chmod(mode)
    try:
        result = call_tmt(folder, "train", "--config", "toy.yaml")
    finally:
        (folder / closed).chmod(0o755)
    assert_refused(result.returncode, result.stderr, said)
