"""`tmt translate`: one line out for every line in, in order, whatever the line holds."""

import bz2
import gzip
import io
import json
import lzma
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from transformer_mt.cli import line_files
from transformer_mt.errors import UserError

SENTENCES = {
    "one two three.": "uno tres dos.",
    "seven eight.": "ocho siete.",
    "four five six one.": "cuatro cinco uno seis.",
}


def test_sentences_as_arguments(tmt) -> None:
    result = tmt("translate", *SENTENCES)
    assert result.returncode == 0
    assert result.stdout.split("\n") == [*SENTENCES.values(), ""]
    assert result.stderr == "run: runs/toy\n"


@pytest.mark.parametrize("beam_size", [1, 3])
def test_greedy_and_beam(beam_size: int, call) -> None:
    """A beam finds as many translations as it has places, and more are refused; the config's has 2."""
    command = ("translate", "--run", "runs/toy", "--beam-size", str(beam_size))
    assert call(*command, "seven eight.").stdout == "ocho siete.\n"
    assert call(*command, "--n-best", str(beam_size), "seven eight.").stdout.count("\n") == beam_size
    assert call(*command, "--n-best", str(beam_size + 1), "seven eight.").returncode == 2


def test_prefixes_come_from_a_file_or_the_line(call, tmp_path: Path) -> None:
    path = tmp_path / "prefixes"
    path.write_text("nueve ocho\n\ndos " + "uno " * 60 + "\n", encoding="utf-8")
    from_file = call("translate", "--prefix", str(path), stdin="\n".join([*SENTENCES, ""]).encode())
    first, second, third, _ = from_file.stdout.split("\n")
    assert first.startswith("nueve ocho")
    assert (second, third) == ("ocho siete.", "")
    assert re.search(
        r"line 3: the prefix has 61 tokens, and the translation may have \d+; left blank", from_file.stderr
    )
    assert call("translate", "--prefix", "tab", f"{next(iter(SENTENCES))}\tnueve ocho").stdout == first + "\n"
    short = call("translate", "--prefix", str(path), stdin=b"one.\n" * 5)
    assert (short.returncode, short.stdout.count("\n")) == (2, 3)
    assert f"{path} ends after line 3, and there are more texts to translate." in short.stderr
    assert "There is no file" in call("translate", "--prefix", "none.txt", "one.").stderr


def test_a_tilde_is_the_home_folder_also_where_the_shell_leaves_it(call, trained: Path, monkeypatch) -> None:
    """As in `--runs=~/runs`, which would else mean a folder of that name."""
    monkeypatch.setenv("HOME", str(trained))
    result = call("translate", "--runs=~/runs", "--output=~/home.txt", "seven eight.")
    assert result.stderr == f"run: {trained}/runs/toy\n"
    assert (trained / "home.txt").read_text() == "ocho siete.\n"
    assert call("translate", "--run", "~/runs/toy", "seven eight.").stdout == "ocho siete.\n"
    assert "~no-such-user/runs is not" in call("translate", "--run", "~no-such-user/runs", "seven eight.").stderr


def test_standard_input_comes_out_line_by_line(tmt) -> None:
    """Blank lines, CRLF, other line separators inside a line, bytes that are not UTF-8, no end on the last line."""
    lines = [
        b"one two three.", b"", b"   ", b"seven eight.\r", "one\u2028two\u0085.".encode(), b"\xff\xfe one.", b"</s>",
        b"\x00", "one \u200b two\u00a0three.".encode(), b"seven eight.",
    ]  # fmt: skip
    result = tmt("translate", stdin=b"\n".join(lines))
    assert result.returncode == 0
    out = result.stdout.split("\n")
    assert out[-1] == ""
    assert len(out) - 1 == len(lines)
    assert out[0] == "uno tres dos."
    assert out[1] == out[2] == ""
    assert out[3] == out[9] == "ocho siete."


def test_files_in_and_out(call, trained: Path) -> None:
    (trained / "in.txt").write_text("seven eight.\n\none two three.\n")
    result = call("translate", "--input", "in.txt", "--output", "out.txt")
    assert result.returncode == 0
    assert result.stdout == ""
    assert (trained / "out.txt").read_bytes() == b"ocho siete.\n\nuno tres dos.\n"


def test_a_file_may_be_packed(call, trained: Path) -> None:
    (trained / "in.gz").write_bytes(gzip.compress(b"seven eight.\n\none two three.\n"))
    result = call("translate", "--input", "in.gz")
    assert (result.returncode, result.stdout) == (0, "ocho siete.\n\nuno tres dos.\n")
    (trained / "cut.gz").write_bytes((trained / "in.gz").read_bytes()[:-12])
    result = call("translate", "--input", "cut.gz")
    assert result.returncode == 2
    assert "cut.gz cannot be read: Compressed file ended" in result.stderr
    (trained / "in.utf16").write_text("seven eight.\n", encoding="utf-16")
    result = call("translate", "--input", "in.utf16")
    assert (result.returncode, result.stdout) == (2, "")
    assert "in.utf16 is UTF-16. Convert it: iconv" in result.stderr
    packed = call("translate", stdin=(trained / "in.gz").read_bytes())  # by a pipe
    assert (packed.returncode, packed.stdout) == (2, "")
    assert "standard input is gzip. Unpack it" in packed.stderr
    for module, kind, unpack in ((bz2, "bzip2", "bzcat"), (lzma, "xz", "xzcat")):
        (trained / "in.packed").write_bytes(module.compress(b"seven eight.\n"))
        result = call("translate", "--input", "in.packed")
        assert (result.returncode, result.stdout) == (2, "")
        assert f"in.packed is {kind}. Unpack it: {unpack} FILE | tmt translate." in result.stderr
    command = f"{sys.executable} -m transformer_mt translate < in.gz"
    result = subprocess.run(["bash", "-c", command], cwd=trained, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "ocho siete.\n\nuno tres dos.\n")


def test_a_dash_is_standard_input_or_output(tmt, call) -> None:
    for start, arguments in ((tmt, ["-"]), (call, ["--input", "-"]), (call, ["--output", "-"])):
        result = start("translate", *arguments, stdin=b"seven eight.\n")
        assert (result.returncode, result.stdout) == (0, "ocho siete.\n")
    assert call("translate", "--", "-", "--input").stdout.count("\n") == 2


def test_bytes_that_are_no_text_are_told_once(call) -> None:
    result = call("translate", stdin=b"seven eight.\n\xff one.\n\xff two.\n")
    assert result.stdout.count("\n") == 3
    assert result.stderr.count("not UTF-8") == 1
    assert "line 2: not UTF-8" in result.stderr
    assert "line 11: not UTF-8" in call("translate", "--first-line", "10", stdin=b"one.\n\xff two.\n").stderr


def test_the_output_may_not_be_standard_input(trained: Path) -> None:
    (trained / "both.txt").write_text("seven eight.\n")
    command = [sys.executable, "-m", "transformer_mt", "translate", "--output", "both.txt"]
    with (trained / "both.txt").open("rb") as stdin:
        result = subprocess.run(command, cwd=trained, stdin=stdin, capture_output=True, text=True)
    assert result.returncode == 2
    assert "--output both.txt is the input itself" in result.stderr
    assert (trained / "both.txt").read_text() == "seven eight.\n"


@pytest.mark.parametrize("option", ["--prefix", "--avoid", "--glossary"])
def test_the_output_may_not_be_a_file_that_another_option_names(option: str, call, trained: Path) -> None:
    (trained / "named.txt").write_text("seven\tsiete\n")
    result = call("translate", option, "named.txt", "--output", "./named.txt", "seven eight.")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith(
        "--output named.txt is a file that another option names to be read. Name another file.\n"
    )
    assert (trained / "named.txt").read_text() == "seven\tsiete\n"


@pytest.mark.parametrize("option", ["--avoid", "--glossary"])
def test_a_list_that_is_not_there_costs_no_earlier_output(option: str, call, trained: Path) -> None:
    (trained / "earlier.txt").write_text("siete\n")
    result = call("translate", option, "nowhere.txt", "--output", "earlier.txt", "seven eight.")
    assert (result.returncode, (trained / "earlier.txt").read_text()) == (2, "siete\n")
    assert "nowhere.txt" in result.stderr


@pytest.mark.parametrize(
    ("closed", "message"),
    [("<&-", "Standard input is closed. Give sentences"), ("'a' >&-", "Standard output is closed. Name a file")],
)
def test_without_standard_input_or_output(trained: Path, closed: str, message: str) -> None:
    command = f"{sys.executable} -m transformer_mt translate {closed}"
    result = subprocess.run(["bash", "-c", command], cwd=trained, capture_output=True, text=True)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_without_standard_error(trained: Path) -> None:
    command = f"{sys.executable} -m transformer_mt translate 'seven eight.' 2>&-"
    result = subprocess.run(["bash", "-c", command], cwd=trained, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "ocho siete.\n")


def test_nothing_in_nothing_out(call) -> None:
    result = call("translate", stdin=b"")
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize("batch_size", ["1", "2", "7"])
def test_order_and_text_do_not_depend_on_the_batch(call, trained: Path, batch_size: str) -> None:
    lines = (trained / "data" / "train.en").read_text().split("\n")[:40]
    expected = call("translate", stdin="\n".join(lines).encode()).stdout
    result = call("translate", "--batch-size", batch_size, stdin="\n".join(lines).encode())
    assert result.stdout == expected
    assert len(expected.split("\n")) == 41


@pytest.mark.parametrize("beam_size", ["1", "4"])
def test_order_and_text_do_not_depend_on_the_cores(call, trained: Path, beam_size: str, begun) -> None:
    lines = (trained / "data" / "train.en").read_text().split("\n")[:60]
    command = ("translate", "--batch-size", "4", "--beam-size", beam_size)
    expected = call(*command, stdin="\n".join(lines).encode())
    assert not begun
    result = call(*command, stdin="\n".join(lines).encode(), threads=2)
    assert (result.returncode, result.stdout) == (0, expected.stdout)
    assert len(expected.stdout.split("\n")) == 61
    assert len(begun) == 2


def test_a_sentence_that_is_too_long_is_a_blank_line_and_named(call) -> None:
    long = " ".join(["one"] * 40)
    result = call("translate", stdin=f"seven eight.\n{long}\nseven eight.\n".encode())
    assert result.returncode == 0
    assert result.stdout == "ocho siete.\n\nocho siete.\n"
    assert "line 2: longer than the model's 24 positions, left blank" in result.stderr
    truncated = call("translate", "--too-long", "truncate", "--format", "jsonl", long, "seven eight.")
    assert truncated.returncode == 0
    first, second = [json.loads(line) for line in truncated.stdout.split("\n")[:-1]]
    assert first["hypotheses"][0]["text"].startswith("uno")
    assert first["too_long"]
    assert "too_long" not in second
    assert "line 1: longer than the model's 24 positions, the beginning was translated" in truncated.stderr


def test_a_sentence_that_is_too_long_is_translated_in_pieces_when_asked(call) -> None:
    """Its sentences one by one, with the white space between them; 24 positions, EOS among them."""
    sentences = ["one two three."] * 5 + ["seven eight."] * 4
    expected = [call("translate", sentence).stdout.rstrip("\n") for sentence in sentences]
    arguments = ("translate", "--too-long", "split", "--format", "jsonl", "--n-best", "2")
    result = call(*arguments, " \t".join(sentences), "seven eight.")
    assert result.returncode == 0
    long, short = [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    assert long["hypotheses"][0]["text"] == " \t".join(expected)
    assert long["too_long"]
    for hypothesis in long["hypotheses"]:
        length = len(hypothesis["tokens"]) + 9  # nine pieces, nine EOS
        assert hypothesis["score"] == pytest.approx(hypothesis["log_prob"] / ((5 + length) / 6) ** 0.6, abs=1e-5)
    assert short["hypotheses"][0]["text"] == "ocho siete."
    assert "line 1: longer than the model's 24 positions, translated in pieces" in result.stderr
    told = call("translate", "--too-long", "split", "--constraints", "ordered", f"{' '.join(sentences)}\tuno")
    assert told.stdout == "\n"
    assert re.fullmatch("run: .*\nline 1: it would be translated in pieces, .*; left blank\n", told.stderr)


def test_a_precision_that_was_found_is_told_with_the_reason(call) -> None:
    assert "precision: " not in call("translate", "--precision", "fp32", "seven eight.").stderr
    told = call("translate", "--precision", "auto", "a").stderr
    assert re.search(r"^precision: (fp32|bf16|int8), .*(this CPU|below d_model 256)", told, re.M)


def test_from_python(trained: Path) -> None:
    from transformer_mt import Translator

    translator = Translator.load(trained / "runs" / "toy")
    assert translator.translate(list(SENTENCES)) == list(SENTENCES.values())
    assert translator.translate([]) == []
    assert translator.translate(sentence for sentence in SENTENCES) == list(SENTENCES.values())
    with pytest.raises(UserError, match=r"and got one alone\. Put it into a list: \['seven eight\.'\]"):
        translator.translate("seven eight.")
    assert translator.translate(["", "seven eight."], beam_size=1) == ["", "ocho siete."]


def test_bytes_on_the_command_line_that_are_not_utf8(trained: Path) -> None:
    command = [sys.executable.encode(), b"-m", b"transformer_mt", b"translate", b"seven \xff\xfe eight."]
    result = subprocess.run(command, cwd=trained, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(b"\n") == 1


def test_what_is_typed_into_a_console_of_windows_is_read_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """There `open` has a stream of its own for a console, which gives UTF-8, and `io.FileIO` bytes of a code page."""
    console = io.BytesIO("über\n".encode())
    monkeypatch.setattr(sys, "stdin", Mock(fileno=lambda: 0))
    monkeypatch.setattr(line_files, "open", lambda *_, **options: console, raising=False)
    with line_files.open_lines(line_files.STANDARD, "--input") as lines:
        assert lines.read() == "über\n".encode()
