"""`tmt translate` as JSON lines, with several hypotheses, for Moses, and of a text that goes on."""

import json
from pathlib import Path

import pytest


def test_jsonl(call) -> None:
    result = call("translate", "--format", "jsonl", "--n-best", "2", "one two three.", "", "seven eight.")
    rows = [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    assert [row["source"] for row in rows] == ["one two three.", "", "seven eight."]
    assert rows[1]["hypotheses"] == []
    first, second = rows[0]["hypotheses"]
    assert first["text"] == "uno tres dos."
    assert first["tokens"] == ["uno", "tres", "dos", "￭."]
    assert first["score"] >= second["score"]
    assert first["score"] == pytest.approx(first["log_prob"] / ((5 + 5) / 6) ** 0.6, abs=1e-5)


def test_a_text_goes_on_where_it_was_left(call, tmp_path: Path) -> None:
    """Numbers, prefixes and messages; samples are in test_whole_results.py."""
    lines = ["one two three.", "seven eight.", "", "one " * 30]
    (tmp_path / "prefixes").write_text("\nocho\nuno\n\n")
    options = ("translate", "--n-best", "2", "--beam-size", "4", "--prefix", str(tmp_path / "prefixes"))
    whole, rest = call(*options, *lines), call(*options, "--first-line", "2", *lines[1:])
    assert [row for row in whole.stdout.split("\n") if not row.startswith("1 |||")] == rest.stdout.split("\n")
    assert "line 4: longer than" in whole.stderr
    assert "line 4: longer than" in rest.stderr
    assert "prefixes ends after line 4" in call(*options, "--first-line", "5", "one").stderr
    assert "prefixes ends after line 4" in call(*options, "--first-line", "9", "one").stderr
    samples = ("--n-best", "2", "--sampling-topk", "0")
    far = call("translate", *samples, "--first-line", str(2**63), "one")
    assert far.stdout.startswith(f"{2**63} ||| "), far.stderr
    for number in (0, 2**63 + 1):
        refused = call("translate", "--first-line", str(number), "one")
        assert refused.returncode == 2
        assert "--first-line" in refused.stderr


def test_n_best_as_text(call) -> None:
    lines = call("translate", "--n-best", "2", "--beam-size", "4", "seven eight.", "").stdout.split("\n")
    assert lines[0].startswith("1 ||| ocho siete. ||| -")
    assert lines[1].startswith("1 ||| ")
    assert lines[2].startswith("2 ||| ")
    assert len(lines) == 4, lines


def test_n_best_as_moses(call) -> None:
    """The texts and numbers of jsonl; sentences counted from 0; an empty hypothesis where there is none."""
    texts = ["seven eight.", "", "one two three.", "one " * 30]
    options = ("--n-best", "2", "--beam-size", "4")
    result = call("translate", "--format", "moses", *options, *texts)
    rows = [
        json.loads(line) for line in call("translate", "--format", "jsonl", *options, *texts).stdout.split("\n")[:-1]
    ]
    expected = []
    for number, row in enumerate(rows):
        found = [(h["text"], h["log_prob"], h["score"]) for h in row["hypotheses"]]
        assert len(found) == (2 if number in (0, 2) else 0)
        for text, log_prob, score in found or [("", 0.0, 0.0)]:
            expected.append(f"{number} ||| {text} ||| F0= {log_prob:.4f} ||| {score:.4f}")
    assert result.stdout.split("\n") == [*expected, ""]
    assert "line 4: longer than" in result.stderr
    best = call("translate", "--format", "moses", "--beam-size", "1", *texts[:2]).stdout.split("\n")[:-1]
    assert [line.split(" ||| ")[:2] for line in best] == [["0", "ocho siete."], ["1", ""]]
