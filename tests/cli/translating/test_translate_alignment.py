"""`tmt translate --alignment`: what `tmt align` says of the same pairs, in every format."""

import json
import re
import shutil
from pathlib import Path

import pytest

LINES = ["one two three.", "", "seven eight.", "four, five six one"]


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_alignments_are_those_of_tmt_align(call, trained: Path, tmp_path: Path, kind: str) -> None:
    result = call("translate", "--alignment", kind, stdin="\n".join(LINES).encode())
    assert result.returncode == 0, result.stderr
    texts, alignments = zip(*(line.rsplit(" ||| ", 1) for line in result.stdout.split("\n")[:-1]), strict=True)
    assert texts[:3] == ("uno tres dos.", "", "ocho siete.")
    src, ref = tmp_path / "src", tmp_path / "ref"
    for path, side in ((src, LINES), (ref, texts)):
        path.write_text("".join(f"{text}\n" for text in side), encoding="utf-8")
    soft = ["--soft"] * (kind == "soft")
    aligned = call("align", "--run", "runs/toy", "--src", str(src), "--ref", str(ref), *soft)
    assert aligned.stdout.split("\n")[:-1] == list(alignments)
    if kind == "hard":
        assert alignments[:3] == ("0-0 1-2 2-1", "", "0-1 1-0")


def test_attention_aligns_without_an_aligner(call, trained: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(trained, tmp_path / "copy")
    shutil.rmtree(copy / "runs/toy/aligner", ignore_errors=True)
    options = ("translate", "--run", str(copy / "runs/toy"), "--alignment-from", "attention", "--alignment")
    result = call(*options, "hard", stdin="\n".join(LINES).encode())
    assert result.returncode == 0, result.stderr
    texts, alignments = zip(*(line.rsplit(" ||| ", 1) for line in result.stdout.split("\n")[:-1]), strict=True)
    assert texts[:3] == ("uno tres dos.", "", "ocho siete.")
    assert [alignment > "" for alignment in alignments] == [True, False, True, True]
    for text, alignment in zip(texts, alignments, strict=True):
        linked = [int(link.partition("-")[2]) for link in alignment.split()]
        assert len(linked) == len({*linked}.intersection(range(len(text.split())))), "a target word has a link at most"
    assert re.search(r"0-0:[01]\.\d\d", call(*options, "soft", LINES[0]).stdout)
    assert not (copy / "runs/toy/aligner").exists()


def test_n_best_lists_have_the_alignment_of_each_hypothesis(call) -> None:
    options = ("translate", "--n-best", "2", "--beam-size", "3", "--alignment", "hard", LINES[0], "")
    rows = [json.loads(line) for line in call(*options, "--format", "jsonl").stdout.split("\n")[:-1]]
    found = rows[0]["hypotheses"]
    assert found[0]["alignment"] == [[0, 0], [1, 2], [2, 1]]
    written = [" ".join(f"{i}-{j}" for i, j in h["alignment"]) for h in found]
    moses = call(*options, "--format", "moses").stdout.split("\n")[:-1]
    assert [line.split(" ||| ")[4] for line in moses] == [*written, ""]
    text = call(*options).stdout.split("\n")[:-1]
    assert [line.split(" ||| ")[3] for line in text] == [*written, ""]
    soft = call(*options[:5], "--alignment", "soft", "--format", "jsonl", LINES[0]).stdout
    assert all(len(link) == 3 for link in json.loads(soft)["hypotheses"][0]["alignment"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--html", "--alignment", "hard"], "--html and --alignment were both given."),
        (["--html", "--alignment-from", "attention"], "--html and --alignment-from were both given. Words of HTML"),
        (["--html", "--alignment-layer", "1"], "--html and --alignment-layer were both given. Words of HTML hold tags"),
        (["--alignment-from", "attention"], "--alignment-from was given without --alignment. Give --alignment"),
        (["--alignment", "hard", "--alignment-layer", "1"], "was given without --alignment-from attention. Give both."),
        (
            ["--alignment", "hard", "--alignment-from", "attention", "--alignment-layer", "9"],
            "There is no layer 9 with attention to the source. Take 1 to",
        ),
        (["--replace-unk", "--no-allow-unk"], "--replace-unk and --no-allow-unk were both given."),
        (["--unk-dictionary", "a.tsv"], "--unk-dictionary was given without --replace-unk. Give both."),
        (["--replace-unk", "--unk-dictionary", "none.tsv"], "none.tsv"),
    ],
)
def test_what_cannot_be_had_together_is_named(call, options: list[str], message: str) -> None:
    result = call("translate", *options, "one")
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
