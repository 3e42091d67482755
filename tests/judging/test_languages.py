"""Two runs, one of which has tags of languages: both read the same text, or are refused."""

import json
from pathlib import Path

import pytest
from commands import call_tmt
from toy import write_toy_corpus
from translators import SMALL, make_translator, write_run

OWN = "- {name: own, kind: equals, sources: [%s], expected: dos uno.}\n"


def source(name: str, *languages: str, **keys: str) -> dict[str, str]:
    src, tgt = languages or ("en", "es")
    return {"src": f"{name}.{src}", "tgt": f"{name}.{tgt}", **keys}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs `both`, of both directions with tags, `tagged`, of one direction with a tag, `mine`, without any, and
    `english`, which is `both` that writes English unless it is told otherwise.
    """
    folder = tmp_path_factory.mktemp("languages")
    write_toy_corpus(folder / "data")
    for name, text in (
        ("bare.yaml", "one two."),
        ("typed.yaml", "<2es> one two."),
        ("typed.en", "<2es> one two.\n" * 3),
    ):
        (folder / name).write_text(OWN % text if name.endswith("yaml") else text, encoding="utf-8")
    (folder / "three.es").write_text("dos uno.\n" * 3, encoding="utf-8")
    many = [("en", "es", "<2es>"), ("es", "en", "<2en>")]
    of_both = {split: [source(name, src, tgt, tag=tag) for src, tgt, tag in many] for split, name in (
        ("train", "train"), ("validation", "valid"), ("test", "valid"))}  # fmt: skip
    tags = {"tags": ["<2es>", "<2en>"]}
    valid = {"validation": [source("valid")], "test": [source("valid")]}
    for name, data, tokenizer, decoding in (
        ("both", of_both, tags, {}),
        ("english", of_both, tags, {"to": "en"}),
        ("tagged", {**valid, "train": [source("train", tag="<2es>")]}, tags, {}),
        ("mine", valid, {}, {}),
        ("untested", {**valid, "test": []}, {}, {}),
    ):
        sections = {"data": {"root": "data", **data}, "tokenizer": tokenizer, "decoding": decoding}
        write_run(folder / name, make_translator({**SMALL, "num_encoder_layers": 1}, **sections))
    return folder


FILES = ("--src", "data/valid.en", "--ref", "data/valid.es")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "--compare", "both", "mine"], "The sources have the tag <2es>, which mine has not learned"),
        (["evaluate", "--compare", "both", "mine"], "Compare on text without tags: --src FILE --ref FILE, and --to es"),
        (["evaluate", "--compare", "mine", "both"], "mine writes es and both does not know to which language"),
        (["evaluate", "--compare", "mine", "both", *FILES], "Of sources without a tag, mine writes es and both"),
        (["evaluate", "--compare", "both", "both", *FILES], "The sources do not say to which language."),
        (["evaluate", "--compare", "mine", "english", *FILES], "mine writes es and english writes en"),
        (
            ["evaluate", "--compare", "mine", "both", "--src", "typed.en", "--ref", "three.es", "--to", "es"],
            "The sources have the tag <2es>, which mine has not learned",
        ),
        (["evaluate", "--compare", "mine", "both", *FILES, "--to", "en"], "this model has no tags of languages"),
        (["evaluate", "--run", "mine", *FILES, "--to", "es"], "this model has no tags of languages"),
        (["test", "both", "mine"], "The sources have the tag <2es>, which mine has not learned"),
        (["test", "mine", "both"], "mine writes es and both does not know to which language"),
        (["test", "both", "mine", "--to", "es", "--tests", "typed.yaml"], "which mine has not learned"),
    ],
)  # fmt: skip
def test_what_one_run_would_read_otherwise_is_refused(folder: Path, arguments: list[str], said: str) -> None:
    result = call_tmt(folder, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr


@pytest.mark.parametrize(
    ("first", "second", "options"),
    [
        ("mine", "both", ["--to", "es"]),
        ("both", "mine", [*FILES, "--to", "es"]),
        ("mine", "tagged", []),
        ("tagged", "untested", []),
    ],
)
def test_each_run_translates_as_it_does_alone(folder: Path, first: str, second: str, options: list[str]) -> None:
    search = ["--beam-size", "1", "--max-length", "4"]
    result = call_tmt(folder, "evaluate", "--compare", first, second, *options, *search)
    assert result.returncode == 0, result.stderr
    for name in (first, second):
        to = ["--to", "es"] if name == "both" else []
        alone = call_tmt(folder, "translate", "--run", name, "--input", "data/valid.en", *to, *search)
        (saved,) = [part for part in result.stderr.split("saved: ")[1:] if part.startswith(f"{name}/")]
        rows = Path(folder, saved.split("\n")[0]).with_suffix(".jsonl").read_text(encoding="utf-8")
        assert [json.loads(row)["hypothesis"] for row in rows.split("\n")[:-1]] == alone.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    "arguments", [["mine", "both", "--to", "es"], ["both", "mine", "--to", "es", "--tests", "bare.yaml"]]
)
def test_two_runs_are_tested_on_the_same_text(folder: Path, arguments: list[str]) -> None:
    result = call_tmt(folder, "test", *arguments, "--json", "--cases", "2", "--max-length", "4")
    assert json.loads(result.stdout)["runs"] == [f"{name}, step_1" for name in arguments[:2]]
