"""`tmt trace`: a sentence through the trained model, as text and as JSON."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from copies import Copy

SENTENCE = "one two three."


def test_a_sentence_from_its_words_to_its_translation(tmt, call) -> None:
    result = tmt("trace", SENTENCE)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "run: runs/toy\n"
    assert result.stdout.startswith("one two three.  ->  uno tres dos.\n")
    assert "encoder: 1 layer x 2 = 2, decoder: 1 layer x 3 = 3; together 5" in result.stdout
    assert "── the best translation that a beam of 2 finds, step by step ──" in result.stdout
    assert "\x1b" not in result.stdout, "standard output is no terminal"
    assert max(map(len, result.stdout.split("\n"))) <= 120
    assert call("trace", SENTENCE, "--run", "runs/toy", "--checkpoint", "last", "--device", "cpu").stderr == ""


def test_json_is_one_object(call) -> None:
    result = call("trace", SENTENCE, "--format", "json")
    assert result.stdout.count("\n") == 1
    found = json.loads(result.stdout)
    assert found["translation"] == "uno tres dos."
    assert found["src_tokens"] == ["one", "two", "three", "￭.", "</s>"]
    assert [step["taken"]["token"] for step in found["steps"]] == ["uno", "tres", "dos", "￭.", "</s>"]
    assert [step["best"][0]["probability"] > 0.5 for step in found["steps"]] == [True] * 5
    encoder, decoder = found["stacks"]
    assert len(encoder["sum"]) == len(encoder["output"]) == 5
    assert len(decoder["layers"][0][1]["weights"]) == 4


def test_token_layer_and_head(call) -> None:
    result = call("trace", SENTENCE, "--token", "0", "--layer", "0", "--head", "3")
    assert result.returncode == 0
    assert "token 0 one" in result.stdout
    assert "  head 3 " in result.stdout
    assert "  head 0 " not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "The sentence is blank. Give at least one word."),
        ([" ".join(["one"] * 40)], "The sentence has 40 tokens, and the model reads 23. Give a shorter one."),
        ([SENTENCE, "--token", "5"], "--token is 5, and there are 5 in the encoder and 5 in the decoder"),
        ([SENTENCE, "--token", "-1"], "Use 0 to 4."),
        ([SENTENCE, "--layer", "1"], "--layer is 1, and there are 1 in the encoder and 1 in the decoder"),
        ([SENTENCE, "--head", "4"], "Use 0 to 3."),
        ([SENTENCE, "--head", "3", "--format", "json"], "--head is for a trace as text, and JSON has every vector"),
        ([SENTENCE, "--layer", "0", "--format", "json"], "--layer is for a trace as text"),
        ([SENTENCE, "--token", "0", "--format", "json"], "--token is for a trace as text"),
        ([SENTENCE, "--run", "nowhere"], "nowhere is not the folder of a run"),
        ([SENTENCE, "--checkpoint", "step_7"], "has no checkpoint 'step_7'"),
        ([SENTENCE, "--device", "tpu"], "is not a device"),
        ([SENTENCE, "--runs", "data"], "There is no trained run in"),
        ([SENTENCE, "--format", "yaml"], "'yaml' is not one of"),
        ([], "Missing argument"),
    ],
)
def test_mistakes_get_one_clear_sentence(call, arguments: list[str], message: str) -> None:
    result = call("trace", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_bytes_that_are_not_utf8(trained: Path) -> None:
    command = [sys.executable.encode(), b"-m", b"transformer_mt", b"trace", b"seven \xff\xfe eight."]
    result = subprocess.run(command, cwd=trained, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(("no_color", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals(trained: Path, no_color: dict[str, str], coloured: bool) -> None:
    reader, terminal = os.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | no_color
    terminal_file = Path(os.ttyname(terminal))
    process = Copy(trained, "trace", SENTENCE, "--layer", "0", environment=environment, stdout=terminal_file)
    out = b""
    while process.poll() is None or select.select([reader], [], [], 0)[0]:
        if select.select([reader], [], [], 0.1)[0]:
            out += os.read(reader, 65536)
    os.close(terminal)
    os.close(reader)
    assert process.wait() == 0
    assert b"residual connections" in out
    assert (b"\x1b[" in out) == coloured
