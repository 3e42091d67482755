"""`tmt translate --html`: tags go where the words go, by an aligner that is made at its first use."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import call_tmt


@pytest.fixture
def call(trained: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`call(...)` beside a run whose aligner is not there yet, whatever tests came before."""
    folder = shutil.copytree(trained, tmp_path / "copy", ignore=shutil.ignore_patterns("aligner"))

    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        return call_tmt(folder, *arguments, stdin=stdin)

    return run


def test_tags_of_html_follow_the_words_that_change_places(call) -> None:
    """And the aligner is made at its first use."""
    lines = ["<p>one <b>two</b> three.</p>", "<i>seven <a href='x'>eight</a></i>.", "", "a < b"]
    result = call("translate", "--html", stdin="\n".join(lines).encode())
    assert result.returncode == 0, result.stderr
    page, nested, blank, text = result.stdout.split("\n")[:-1]
    assert page == "<p>uno tres <b>dos</b>.</p>"
    assert nested == "<i><a href='x'>ocho</a> siete</i>."
    assert blank == ""
    assert "<" not in text
    rows = call("translate", "--html", "--format", "jsonl", "--n-best", "2", lines[0]).stdout
    assert [h["text"].count("<b>") for h in json.loads(rows)["hypotheses"]] == [1, 1]
    assert "training an aligner" in result.stderr


def test_html_and_a_prefix_are_refused_together(call) -> None:
    result = call("translate", "--html", "--prefix", "tab", "<b>one</b>\tuno")
    assert result.returncode == 2
    assert "--html and --prefix were both given" in result.stderr
