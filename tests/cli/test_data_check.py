"""`tmt data check`: its outputs, and what it says of bad input, interrupts and full disks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import call_tmt, full_disk
from toy import toy_mapping, toy_pairs, write_toy_corpus

from transformer_mt.checking import check
from transformer_mt.checking.written import clean
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.sources.files import read_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The toy corpus, with a copy in line 11, a number in line 21, and a pair of the validation in line 31."""
    write_toy_corpus(tmp_path / "data", 80)
    lines = {name: (tmp_path / "data" / f"train.{name}").read_text().split("\n") for name in ("en", "es")}
    valid = {name: (tmp_path / "data" / f"valid.{name}").read_text().split("\n") for name in ("en", "es")}
    lines["es"][10] = lines["en"][10]
    lines["en"][20] += " Room 12."
    lines["es"][20] += " Cuarto 21."
    for name, texts in lines.items():
        texts[30] = valid[name][4]
        (tmp_path / "data" / f"train.{name}").write_text("\n".join(texts))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(toy_mapping(Path("data"))))
    return tmp_path


FILES = ("data/train.en", "data/train.es")
VALIDATION = ("--validation", "data/valid.en", "data/valid.es")


def test_all_outputs_say_the_same(folder: Path) -> None:
    outputs = ("--jsonl", "found.jsonl", "--html", "found.html", "--write", "clean")
    texts = (folder / FILES[0]).read_text().split("\n")
    (folder / FILES[0]).write_text("\n".join([*texts[:40], f"\x93{texts[40]}\x94", *texts[41:]]))
    result = call_tmt(folder, "data", "check", *FILES, *VALIDATION, *outputs)
    assert result.returncode == 0, result.stderr
    assert "\nnumbers: 1 (1.2 %) pair, which has other numbers on each side\n  line 21: 12 / 21\n" in result.stdout
    assert "\ncopy: 1 (1.2 %) pair, which has the same text on both sides\n  line 11\n" in result.stdout
    assert "line 31: source: validation, pair 5; target: validation, pair 5\n" in result.stdout
    assert f"\n  line 41: U+0093\n    \ufffd{texts[40]}\ufffd  |  " in result.stdout
    objects = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    by_line = {one["line"]: list(one["faults"]) for one in objects if one.get("line") and one["split"] == "train"}
    assert by_line[11] == ["copy"]
    assert by_line[21] == ["numbers"]
    assert by_line[31] == ["leak"]
    (train, validation) = [one for one in objects if "num_pairs" in one]
    assert (train["num_pairs"], validation["num_pairs"]) == (80, 20)
    assert train["num_faulty"] == len(by_line)
    page = (folder / "found.html").read_text()
    assert all(f"<th>{name}</th>" in page for name in ("copy", "numbers", "leak"))
    assert "src=" not in page
    assert "<script" not in page


def test_json_lines_on_standard_output_stand_there_alone(folder: Path) -> None:
    plain = call_tmt(folder, "data", "check", *FILES, *VALIDATION, "--jsonl", "found.jsonl")
    before = sorted(folder.rglob("*"))
    result = call_tmt(folder, "data", "check", *FILES, *VALIDATION, "--jsonl", "-")
    assert result.returncode == 0, result.stderr
    assert result.stdout == (folder / "found.jsonl").read_text()
    assert all(isinstance(json.loads(line), dict) for line in result.stdout.splitlines())
    assert result.stderr == plain.stdout
    assert sorted(folder.rglob("*")) == before


def test_cleaned_files_are_parallel_and_lose_nothing(folder: Path) -> None:
    assert call_tmt(folder, "data", "check", *FILES, *VALIDATION, "--write", "clean").returncode == 0
    read = {path.name: path.read_text().split("\n")[:-1] for path in (folder / "clean").iterdir()}
    kept = list(zip(read["kept.en"], read["kept.es"], strict=True))
    out = list(zip(read["taken_out.en"], read["taken_out.es"], strict=True))
    pairs = list(zip(*((folder / name).read_text().split("\n")[:-1] for name in FILES), strict=True))
    assert sorted(kept + out) == sorted(pairs)
    reasons = dict(zip(out, read["taken_out.reasons.tsv"], strict=True))
    assert reasons[pairs[20]].startswith("numbers\t")
    assert reasons[pairs[20]].endswith("train.es, line 21")
    assert [pair for pair in pairs if pair in set(kept)] == kept
    before = {name: (folder / name).read_bytes() for name in FILES}
    again = call_tmt(folder, "data", "check", "clean/kept.en", "clean/kept.es", *VALIDATION)
    assert "copy" not in again.stdout
    assert before == {name: (folder / name).read_bytes() for name in FILES}


def test_of_two_forms_of_a_pair_the_one_without_a_fault_is_kept(folder: Path) -> None:
    (folder / "odd.en").write_text("one\x07 two.\none two.\nOne two!\n")
    (folder / "odd.es").write_text("uno dos.\n" * 3)
    assert call_tmt(folder, "data", "check", "odd.en", "odd.es", "--write", "clean").returncode == 0
    kept = (folder / "clean" / "kept.en").read_text(), (folder / "clean" / "taken_out.en").read_text()
    assert kept == ("one two.\n", "one\x07 two.\nOne two!\n")


def test_cleaned_files_begin_and_end_as_the_lines_do(folder: Path) -> None:
    """What is no line end and no mark of the file is no such thing in the cleaned files either."""
    texts = ["\ufeffone two.\r", *(f"{number} one.\r" for number in range(3))]
    for name in ("odd.en", "odd.es"):
        content = "\ufeff" + "".join(f"{text}\r\n" for text in texts)
        (folder / name).write_bytes(content.encode())
    assert call_tmt(folder, "data", "check", "odd.en", "odd.es", "--write", "clean").returncode == 0
    sides = [[text for _, text in read_lines(folder / "clean" / f"{name}.en")] for name in ("kept", "taken_out")]
    assert sorted(sides[0] + sides[1]) == sorted(texts)


def test_a_config_names_all_splits(folder: Path) -> None:
    result = call_tmt(folder, "data", "check", "--config", "toy.yaml", "--examples", "0")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("train: 80 pairs (train.en / train.es); ")
    assert "\nvalidation: 20 pairs (valid.en / valid.es); " in result.stdout
    assert "\n  line" not in result.stdout
    assert "too_long: 80" in call_tmt(folder, "data", "check", "-c", "toy.yaml", "model.max_len=2").stdout


def test_text_beside_pairs_is_passed_over_and_said(folder: Path) -> None:
    """A config of pairs and text had been refused as one of text, and its training looked at nothing without a word."""
    mapping = toy_mapping(Path("data"))
    mapping["data"]["train"].append({"mono": "train.es"})
    mapping["data"]["noise"] = {"kind": "infilling"}
    mapping["tokenizer"] |= {"joint": True, "masks": 10}
    mapping["training"] |= {"max_steps": 1}
    (folder / "mixed.yaml").write_text(yaml.safe_dump(mapping))
    result = call_tmt(folder, "data", "check", "-c", "mixed.yaml")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("train: 80 pairs (train.en / train.es); ")
    assert "train: 1 source of text in one language, without translations: not looked at\n" in result.stderr
    trained = call_tmt(folder, "train", "--config", "mixed.yaml")
    assert trained.returncode == 0, trained.stderr
    assert "\ndata check (80 training pairs): " in trained.stdout


def test_one_language_on_both_sides_is_written_whole(folder: Path) -> None:
    """It was written to one file. The last pair is longer than what faults are looked for in, and is a leak."""
    long = " ".join(f"word{n}" for n in range(4_000))
    for name in ("train.en", "train.es", "valid.en", "valid.es"):
        with (folder / "data" / name).open("a") as file:
            file.write(f"\n{long} {name[-2:]}\n")
    mapping = toy_mapping(Path("data"))
    mapping["data"] |= {"src_lang": "en", "tgt_lang": "en"}
    mapping["model"]["max_len"] = mapping["training"]["max_tokens"] = 5_000
    (folder / "one.yaml").write_text(yaml.safe_dump(mapping))
    result = call_tmt(folder, "data", "check", "-c", "one.yaml", "--write", "clean", "--jsonl", "found.jsonl")
    assert result.returncode == 0, result.stderr
    names = [f"{name}.{side}" for name in ("kept", "taken_out") for side in ("src", "tgt")]
    assert {path.name for path in (folder / "clean").iterdir()} == {*names, "taken_out.reasons.tsv"}
    src, tgt = (
        {line for name in names if name.endswith(side) for line in (folder / "clean" / name).read_text().split("\n")}
        for side in (".src", ".tgt")
    )
    assert src == set((folder / "data/train.en").read_text().split("\n"))
    assert tgt == set((folder / "data/train.es").read_text().split("\n"))
    found = [json.loads(line) for line in (folder / "found.jsonl").open()]
    (last,) = [one for one in found if one["split"] == "train" and one.get("src", "").startswith("word0 ")]
    assert "leak" in last["faults"]
    languages = "data.src_lang=en/GB", "data.tgt_lang=es/MX"
    result = call_tmt(folder, "data", "check", "-c", "one.yaml", *languages, "--write", "slash")
    assert result.returncode == 0, result.stderr
    assert {"kept.en_GB", "kept.es_MX"} < {path.name for path in (folder / "slash").iterdir()}


def test_each_direction_of_a_config_is_checked_by_itself(folder: Path) -> None:
    """A source of the other direction had been found in a wrong language as a whole, and taken out by --write."""
    pairs = list(builtin_pairs("train"))[:400]
    for side, name in enumerate(("en", "es")):
        (folder / "data" / f"train.{name}").write_text("\n".join(pair[side] for pair in pairs) + "\n")
    train = {"src": "train.en", "tgt": "train.es"}
    other = {"src": "train.en", "tgt": "train.es", "tag": "<2en>", "reverse": True}
    mapping = toy_mapping(Path("data"))
    mapping["data"] |= {"src_lang": "en", "tgt_lang": "es", "train": [train | {"tag": "<2es>"}, other]}
    mapping["data"]["validation"][0] |= {"tag": "<2es>"}
    mapping["tokenizer"] |= {"joint": True, "tags": ["<2es>", "<2en>"]}
    (folder / "both.yaml").write_text(yaml.safe_dump(mapping))
    outputs = ("--jsonl", "found.jsonl", "--html", "found.html", "--write", "clean")
    result = call_tmt(folder, "data", "check", "-c", "both.yaml", *outputs)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("train en-es: 400 pairs (train.en / train.es); ")
    assert "\ntrain es-en: 400 pairs (train.es / train.en); " in result.stdout
    assert "\nvalidation en-es: 20 pairs" in result.stdout
    assert "language" not in result.stdout.replace("\n  language: only", "")
    assert "swapped" not in result.stdout
    sums = [one for line in (folder / "found.jsonl").open() if "num_pairs" in (one := json.loads(line))]
    assert [(one["split"], one["direction"]) for one in sums] == [
        ("train", "en-es"), ("train", "es-en"), ("validation", "en-es")
    ]  # fmt: skip
    assert "<h2>train es-en</h2>" in (folder / "found.html").read_text()
    forth, back = (
        [(folder / f"clean/kept.{of}.{name}").read_text() for name in ("en", "es")] for of in ("en-es", "es-en")
    )
    assert forth == back
    assert forth[0].count("\n") == forth[1].count("\n") > 200
    out = {f"{name}.{of}" for of in ("en-es", "es-en") for name in ("kept", "taken_out")}
    sides = {f"{name}.{side}" for name in out for side in ("en", "es")}
    assert {path.name for path in (folder / "clean").iterdir()} == sides | {
        "taken_out.en-es.reasons.tsv", "taken_out.es-en.reasons.tsv"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("data/train.en",), "Which pairs? Give two files, `tmt data check SRC TGT`, or a config with --config FILE."),
        ((), "Which pairs?"),
        (("data/none.en", "data/train.es"), "There is no file"),
        (("data", "data/train.es"), "is a folder, not a file. Name a file in it."),
        (("data/train.en", "data/valid.es"), "has 80 lines and"),
        (("data/empty", "data/empty"), "holds not a single pair. Check that these are the files you mean."),
        (("data/binary", "data/binary"), "the bytes are not UTF-8"),
        (("data/train\udcff.en", "data/train.es"), "train\\udcff.en' is not UTF-8. Rename the file or its folder."),
        ((*FILES, "--write", "data"), "data exists, and is not overwritten. Delete it, or name another folder"),
        ((*FILES, "--write", "data/train.en"), "data/train.en exists, and is not overwritten."),
        ((*FILES, "--html", "data/train.en"), "data/train.en is a file that is read."),
        ((*FILES, "--jsonl", "data/train.en"), "data/train.en is a file that is read."),
        ((*FILES, "--html", "page.txt"), "page.txt does not end in .html."),
        ((*FILES, "--html", "none/page.html"), "There is no folder"),
        ((*FILES, "--jsonl", "data"), "data is a folder. Name a file for --jsonl."),
        ((*FILES, "--jsonl", "pipe"), "pipe is a link, a pipe or a device, and would be replaced."),
        ((*FILES, "--jsonl", "link"), "link is a link, a pipe or a device, and would be replaced."),
        ((*FILES, "--html", "void/a.html", "--write", "void"), "void/a.html is in the way of --write void."),
        ((*FILES, "--jsonl", "new", "--write", "new"), "new is in the way of --write new."),
        ((*FILES, "--html", "a.html", "--jsonl", "a.html"), "--html and --jsonl are both a.html. Name two files."),
        (("--config", "none.yaml"), "none.yaml"),
        (("--config", "toy.yaml", *VALIDATION), "--validation and --test are for two files."),
        ((*FILES, "--validation", "data/none", "data/valid.es"), "There is no file"),
        (
            ("-c", "toy.yaml", "data.root=nowhere"),
            "/nowhere. Name the one that holds the data: data.root=FOLDER where a command takes",
        ),
        (("-c", "toy.yaml", "data.root=."), "/train.en. Check the name. Relative paths start at data.root;"),
    ],
)
def test_bad_input_is_told_in_a_sentence(arguments: tuple[str, ...], said: str, folder: Path) -> None:
    (folder / "data" / "empty").write_bytes(b"")
    (folder / "data" / "binary").write_bytes(bytes(range(256)) * 100)
    (folder / "void").mkdir()
    (folder / "link").symlink_to("/dev/stdout")
    os.mkfifo(folder / "pipe")
    before = sorted(path for path in folder.rglob("*"))
    result = call_tmt(folder, "data", "check", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.rstrip().count("\n") <= 1
    assert sorted(path for path in folder.rglob("*")) == before


@pytest.mark.parametrize("verb", [("check",), ("split", "parts")])
def test_a_missing_file_that_was_typed_is_told_without_words_of_a_config(verb: tuple[str, ...], folder: Path) -> None:
    arguments = [verb[0], "no.en", "data/train.es", *verb[1:]]
    result = call_tmt(folder, "data", *arguments)
    told = f"tmt: There is no file {folder.resolve()}/no.en. Check the name and the folder.\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", told)


def test_blank_files_are_all_blank(folder: Path) -> None:
    (folder / "blank").write_text("\n \n\t\n")
    result = call_tmt(folder, "data", "check", "blank", "blank")
    assert result.returncode == 0, result.stderr
    assert "blank: 3 (100.0 %) pairs" in result.stdout


def test_a_full_disk_under_the_cleaned_files_leaves_nothing_half(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    with full_disk(1000):
        result = call_tmt(folder, "data", "check", *FILES, "--write", "clean")
    assert result.returncode == 2
    assert "clean cannot be written: File too large." in result.stderr
    assert sorted(folder.rglob("*")) == before


STOPPED = """
import os, signal, sys
from transformer_mt.checking import check
from transformer_mt.checking.written import clean
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.cli.main import main
number, place, name = int(sys.argv.pop()), *((check, "learn"), (clean, "names_of"))[int(sys.argv.pop())]
work = getattr(place, name)
def stop(*arguments):
    os.kill(os.getpid(), number)
    return work(*arguments)
setattr(place, name, stop)
main()
"""


def stopped(folder: Path, while_writing: bool, number: int) -> tuple[int, str]:
    """The exit status and what is said where this signal comes."""
    assert check.learn
    assert clean.names_of
    arguments = ("data", "check", *FILES, "--write", "clean", str(int(while_writing)), str(number))
    result = subprocess.run(
        [sys.executable, "-c", STOPPED, *arguments],
        cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return result.returncode, result.stderr


def test_ctrl_c_ends_it_and_nothing_is_lost(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    status, told = stopped(folder, False, signal.SIGINT)
    assert status == 130, told
    assert told == "tmt: stopped. The data was only read; what had been written as a whole is there.\n"
    assert sorted(folder.rglob("*")) == before


@pytest.mark.slow
def test_a_signal_while_cleaned_files_are_written_leaves_none_half_and_a_kill_no_more_than_the_next_deletes(
    folder: Path,
) -> None:
    before = sorted(folder.rglob("*"))
    assert stopped(folder, True, signal.SIGKILL)[0] == -signal.SIGKILL
    (left,) = set(folder.iterdir()) - set(before)
    assert left.name.startswith(".tmp-clean-")
    os.utime(left, (1, 1))  # a younger one may be in the making
    assert stopped(folder, True, signal.SIGTERM) == (143, "")
    assert sorted(folder.rglob("*")) == before


def test_files_that_change_meanwhile_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn = check.learn

    def change(*arguments):
        for name in FILES:
            with (folder / name).open("a") as file:
                file.write("one more\n")
        return learn(*arguments)

    monkeypatch.setattr(check, "learn", change)
    result = call_tmt(folder, "data", "check", *FILES)
    assert result.returncode == 2
    assert "changed while being read" in result.stderr


def test_a_line_that_no_memory_holds_and_line_ends_in_a_table(folder: Path) -> None:
    """A field of a table may hold a line end, which would part a line of the cleaned files in two."""
    rows = [{"src": src, "tgt": tgt} for src, tgt in toy_pairs(60)]
    rows[7]["src"] = "x" * (2**20 + 1)
    rows[9]["tgt"] += "\nand more"
    (folder / "data" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    overrides = ('data.train=[{"jsonl": "a.jsonl"}]', "--write", "clean")
    result = call_tmt(folder, "data", "check", "--config", "toy.yaml", *overrides)
    assert result.returncode == 0, result.stderr
    assert "\n  line 8: over 1,048,576 bytes\n" in result.stdout
    read = {path.name: path.read_text().split("\n")[:-1] for path in (folder / "clean").iterdir()}
    assert len(read["kept.en"]) + len(read["taken_out.en"]) == 60
    assert len(read["kept.es"]) + len(read["taken_out.es"]) == 60


def test_sides_that_are_swapped_as_a_whole_are_told(tmp_path: Path) -> None:
    pairs = builtin_pairs("validation")[:200]
    for name, side in (("right.en", 0), ("right.es", 1), ("wrong.en", 1), ("wrong.es", 0)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    says = "swapped: the source is named en and in es, the target named es and in en; swap the files"
    for stem in ("right", "wrong"):
        result = call_tmt(tmp_path, "data", "check", f"{stem}.en", f"{stem}.es")
        assert result.returncode == 0, result.stderr
        assert (says in result.stdout) == (stem == "wrong")
