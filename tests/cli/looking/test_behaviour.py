"""`tmt test`: what a run passes, two runs side by side, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

OWN = """
- {name: right, kind: equals, sources: [one two.], expected: dos uno., minimum: 1.0}
- {name: wrong, kind: equals, sources: [one two.], expected: nada.%s}
- {name: ends, kind: matches, expected: '\\.$'}
"""


def test_the_built_in_tests(call, trained: Path) -> None:
    result = call("test", "runs/toy", "--cases", "8", "--json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    found = {one["kind"]: one for one in told["expectations"]}
    assert found["not_empty"]["pass_rates"] == [1.0]
    assert found["ignores_spaces"]["pass_rates"] == [1.0]  # this tokenizer sees no difference
    assert found["not_empty"]["num_cases"] == 8
    for kind in ("numbers_kept", "names_kept", "negation_kept", "ignores_case", "glossary"):
        assert found[kind]["untested"]
    assert told["runs"] == ["runs/toy, step_1200"]


def test_a_glossary_of_the_search(call, trained: Path) -> None:
    (trained / "terms.tsv").write_text("one\tnueve\n")
    result = call("test", "runs/toy", "--cases", "4", "--json", "--glossary", "terms.tsv", "--beam-size", "4")
    assert result.returncode == 0, result.stderr
    (found,) = (one for one in json.loads(result.stdout)["expectations"] if one["kind"] == "glossary")
    assert found["pass_rates"] == [1.0]


def test_a_minimum_that_is_not_reached(call, trained: Path) -> None:
    for name, minimum, status in (("a.yaml", "", 0), ("b.yaml", ", minimum: 0.1", 1)):
        (trained / name).write_text(OWN % minimum, encoding="utf-8")
        result = call("test", "runs/toy", "--tests", name)
        assert result.returncode == status, result.stderr
        assert ("below the minimum: wrong" in result.stdout) == bool(status)
        assert "  source    one two.\n  output    dos uno.\n  expected  'nada.'\n" in result.stdout


@pytest.fixture(scope="module")
def others(trained: Path) -> Path:
    for name, change in (
        ("other_way", {"src_lang": "es", "tgt_lang": "en"}),
        ("gone", {"validation": [{"src": "gone.en", "tgt": "gone.es"}]}),
    ):
        shutil.copytree(trained / "runs/toy", trained / name)
        for path in (trained / name).rglob("config.yaml"):
            mapping = yaml.safe_load(path.read_text())
            path.write_text(yaml.safe_dump({**mapping, "data": {**mapping["data"], **change}}))
    return trained


def test_two_runs(call, others: Path) -> None:
    result = call("test", "runs/toy", "gone", "--cases", "5", "--max-length", "3")
    assert result.returncode == 0, result.stderr
    assert "A: runs/toy, step_1200\nB: gone, step_1200\n" in result.stdout
    (row,) = (line for line in result.stdout.split("\n") if "ignores_full_stop" in line)
    assert row.split()[-6:-4] == row.split()[-4:-2]
    assert row.split()[-2:] == ["+0.0", "1.000"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere is not the folder of a run"),
        (["gone"], "gone.en"),
        (["runs/toy", "other_way"], "One run translates en to es, the other es to en."),
        (["runs/toy"] * 3, "3 runs were given. Test one, or compare two."),
        (["runs/toy", "--checkpoint", "last", "--checkpoint", "last"], "2 checkpoints for 1 run: give one"),
        (["runs/toy", "--tests", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["runs/toy", "--constraints", "ordered"], "--constraints belongs to tmt translate"),
        (["runs/toy", "--tests", "blank.yaml"], "blank.yaml, line 1: ' ' is blank, or longer than the model reads."),
        (
            ["runs/toy", "--tests", "bare.yaml"],
            "bare.yaml, line 1: 'one two.' has no number in digits that can be replaced",
        ),
    ],
)
def test_what_is_refused(call, others: Path, arguments: list[str], said: str) -> None:
    (others / "blank.yaml").write_text("- {name: a, kind: not_empty, sources: [' ']}\n")
    (others / "bare.yaml").write_text("- {name: a, kind: numbers_kept, sources: [one two.]}\n")
    result = call("test", *arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stdout == ""
