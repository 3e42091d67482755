"""`decoding.lines` of a run's config: what each option of `tmt translate` does, by the option and by its key."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from transformer_mt.config.loading import dump_config, load_config
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.decoding.translator import Translator
from transformer_mt.finishing import run_calibration

LINES = ["one two three.", "", "Bob seven eight.", "<b>one</b> five 5.", "one, " * 20 + "two.", "two six.\tnueve ocho"]
ATTENTION = {"alignment": "soft", "alignment_from": "attention"}
# Of each key: the keys that it needs, its own value, and what switches it off again.
KEYS: dict[str, tuple[dict[str, Any], Any, list[str]]] = {
    "html": ({}, True, ["--no-html"]),
    "keep": ({}, ["numbers", "urls"], ["--keep", "none"]),
    "replace_unk": ({}, True, ["--no-replace-unk"]),
    "unk_dictionary": ({"replace_unk": True}, "names.tsv", ["--unk-dictionary", "none"]),
    "alignment": ({}, "hard", ["--alignment", "none"]),
    "alignment_from": ({"alignment": "soft"}, "attention", ["--alignment-from", "aligner"]),
    "alignment_layer": (ATTENTION, 9, ["--alignment-layer", "1"]),  # it has one
    "confidence": ({}, True, ["--no-confidence"]),
    "reject_below": ({}, 1.0, ["--reject-below", "0"]),
    "too_long": ({}, "split", ["--too-long", "blank"]),
    "prefix": ({}, "tab", ["--prefix", "none"]),
    "n_best": ({}, 3, ["--n-best", "1"]),
    "format": ({}, "moses", ["--format", "text"]),
}


@pytest.fixture(scope="module")
def plain(trained: Path, call, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an aligner, in a folder with all files that the options read."""
    folder = tmp_path_factory.mktemp("lines")
    shutil.copytree(trained / "data", folder / "data")
    shutil.copytree(trained / "runs/toy", folder / "plain")
    assert call("align", "--train", "--run", str(folder / "plain")).returncode == 0
    (trained / "names.tsv").write_text("Bob\tRoberto\n", encoding="utf-8")
    return folder / "plain"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy's validation split is small."""
    monkeypatch.setattr(run_calibration, "FEWEST_SENTENCES", 10)


def run_with(plain: Path, folder: Path, lines: dict[str, Any], **decoding: Any) -> Path:
    """A copy of the run whose config says so."""
    copy = shutil.copytree(plain, folder / "run")
    config = load_config(str(plain / "config.yaml")).config
    section = DecodingConfig.model_validate(config.decoding.model_dump() | {"lines": lines, **decoding})
    (copy / "config.yaml").write_text(dump_config(config.model_copy(update={"decoding": section})), encoding="utf-8")
    return copy


def options_of(lines: dict[str, Any]) -> list[str]:
    options = []
    for key, value in lines.items():
        text = ",".join(value) if isinstance(value, list) else str(value)
        options += [f"--{key.replace('_', '-')}"] + [text] * (value is not True)
    return options


def test_every_key_is_tried() -> None:
    assert KEYS.keys() == LinesConfig.model_fields.keys()


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_as_its_option_which_is_stronger(key: str, plain: Path, call, few: None, tmp_path: Path) -> None:
    """To the byte. Without either the output is another one."""
    needed, value, off = KEYS[key]
    asked = needed | {key: value}

    wild = ["--temperature", "100"] * ("unk" in key)  # else the toy's model never writes UNK

    def translate(run: Path, *options: str) -> tuple[int, str, str]:
        text = "".join(f"{line}\n" for line in LINES).encode()
        result = call("translate", "--run", str(run), *wild, *options, stdin=text)
        assert result.returncode == 0 or key == "alignment_layer"
        said = [line for line in result.stderr.split("\n") if "confidence/" not in line and "calibrat" not in line]
        return result.returncode, result.stdout, "\n".join(said)

    run = run_with(plain, tmp_path, asked)
    by_option, by_key = translate(plain, *options_of(asked)), translate(run)
    assert by_key == by_option
    without = translate(plain, *options_of(needed))
    assert by_key != without
    assert translate(run, *off)[:2] == without[:2]


def test_a_config_without_the_section_is_an_old_run(plain: Path, call, tmp_path: Path) -> None:
    copy = run_with(plain, tmp_path, {})
    text = (copy / "config.yaml").read_text("utf-8")
    old = re.sub(r"^  lines:\n(    .*\n)+", "", text, flags=re.MULTILINE)
    assert "lines:" in text
    assert "lines:" not in old
    (copy / "config.yaml").write_text(old, encoding="utf-8")
    outputs = [call("translate", "--run", str(run), *LINES[:1], "").stdout for run in (plain, copy)]
    assert outputs == ["uno tres dos.\n\n"] * 2


@pytest.mark.parametrize(
    ("lines", "decoding", "options", "message"),
    [
        ({"html": True}, {}, ["--alignment", "hard"], "decoding.lines.html (in the run's config, --no-html switches"),
        (
            {"alignment": "hard"},
            {},
            ["--html"],
            "--html and decoding.lines.alignment (in the run's config, --alignment",
        ),
        ({"prefix": "tab"}, {}, ["--html"], "--html and decoding.lines.prefix (in the run's config, --prefix none"),
        (
            {},
            {"constraints": "unordered"},
            ["--html"],
            "--html and decoding.constraints (in the run's config, --constraints none",
        ),
        ({"keep": ["urls"]}, {}, ["--constraints", "ordered"], "decoding.lines.keep (in the run's config, --keep none"),
        ({"replace_unk": True}, {}, ["--no-allow-unk"], "decoding.lines.replace_unk (in the run's config"),
        ({"n_best": 5}, {}, ["--beam-size", "2"], "n_best is from the config. Give n_best 1 (--n-best 1) to leave"),
    ],
)
def test_what_does_not_combine_is_refused_by_both_names_where_the_config_has_one(
    lines: dict[str, Any], decoding: dict[str, Any], options: list[str], message: str, plain: Path, call, tmp_path: Path
) -> None:
    result = call("translate", "--run", str(run_with(plain, tmp_path, lines, **decoding)), *options, "one")
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert options[0] in result.stderr or options[0][2:].replace("-", "_") in result.stderr


def test_a_file_that_the_config_names_is_said_to_be_from_there(plain: Path, call, tmp_path: Path) -> None:
    run = run_with(plain, tmp_path, {"replace_unk": True, "unk_dictionary": "no.tsv"})
    said = call("translate", "--run", str(run), "one").stderr
    assert "Check the name after decoding.lines.unk_dictionary (in the run's config, --unk-dictionary none" in said
    given = call("translate", "--run", str(run), "--unk-dictionary", "other.tsv", "one").stderr
    assert "There is no file other.tsv. Check the name after --unk-dictionary." in given


def test_a_config_with_both_is_refused_as_a_config(plain: Path, call, tmp_path: Path) -> None:
    path = run_with(plain, tmp_path, {"html": True}) / "config.yaml"
    path.write_text(path.read_text("utf-8").replace("alignment: null", "alignment: hard"), encoding="utf-8")
    result = call("translate", "--run", str(path.parent), "one")
    assert result.returncode == 2
    assert "decoding: lines.html and lines.alignment are both set: words of HTML hold tags; leave one" in result.stderr


ALL = {"html": True, "keep": ["urls"], "reject_below": 1.0, "n_best": 7, "too_long": "split", "format": "jsonl"}


def test_what_searches_by_itself_leaves_them_out_and_says_so(plain: Path, call, tmp_path: Path) -> None:
    run = run_with(plain, tmp_path, ALL)
    told = "decoding.lines.html, decoding.lines.keep, decoding.lines.reject_below, decoding.lines.too_long, "
    told += "decoding.lines.n_best, decoding.lines.format: for tmt translate alone, not obeyed here"
    printed = {}
    for one in (plain, run):
        result = call("evaluate", "--run", str(one), "--data-root", str(plain.parent / "data"))
        assert result.returncode == 0, result.stderr
        printed[one] = result.stdout.split("\n")[:3]  # BLEU, chrF, nll and ppl
        assert (told in result.stderr) == (one == run)
    assert printed[run] == printed[plain]
    source = tmp_path / "in.txt"
    source.write_text("one two three.\n", encoding="utf-8")
    result = call("distill", "--run", str(run), "--input", str(source), "--output", str(tmp_path / "made"))
    assert result.returncode == 0, result.stderr
    assert told in result.stderr
    assert (tmp_path / "made/train.es").read_text("utf-8") == "uno tres dos.\n"
    result = call("serve", "--run", str(run), "--port", "0", "--host", "192.0.2.1")  # not of this machine: it ends
    assert (result.returncode, told in result.stderr) == (2, True), result.stderr
    assert Translator.load(run).translate(["one two three."]) == ["uno tres dos."]


def test_kinds_of_several_options_keep_are_all_kept(plain: Path, call) -> None:
    line = "Bob seven 12 https://example.org/a"
    apart = ("--keep", "urls", "--keep", "numbers")
    results = [call("translate", "--run", str(plain), *kept, line) for kept in (apart, ("--keep", "urls,numbers"))]
    assert results[0].stdout == results[1].stdout
    assert {"12", "https://example.org/a"} <= set(results[0].stdout.split())
    refused = call("translate", "--run", str(plain), "--keep", "none", "--keep", "urls", line)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'none' is not one of placeholders, urls, emails, numbers." in refused.stderr
