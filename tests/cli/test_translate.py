"""`tmt translate`: one line out for every line in, in order, whatever the line holds."""

import bz2
import gzip
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import run_tmt

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


def test_greedy_and_beam_and_module_start(tmt, call) -> None:
    for start, size in ((tmt, "1"), (call, "3")):
        assert start("translate", "--run", "runs/toy", "--beam-size", size, "seven eight.").stdout == "ocho siete.\n"


def test_prefixes_come_from_a_file_or_the_line(tmt, tmp_path: Path) -> None:
    path = tmp_path / "prefixes"
    path.write_text("nueve ocho\n\ndos " + "uno " * 60 + "\n", encoding="utf-8")
    from_file = tmt("translate", "--prefix", str(path), stdin="\n".join([*SENTENCES, ""]).encode())
    first, second, third, _ = from_file.stdout.split("\n")
    assert first.startswith("nueve ocho")
    assert (second, third) == ("ocho siete.", "")
    assert re.search(
        r"line 3: the prefix has 61 tokens, and the translation may have \d+; left blank", from_file.stderr
    )
    assert tmt("translate", "--prefix", "tab", f"{next(iter(SENTENCES))}\tnueve ocho").stdout == first + "\n"
    short = tmt("translate", "--prefix", str(path), stdin=b"one.\n" * 5)
    assert (short.returncode, short.stdout.count("\n")) == (2, 3)
    assert f"{path} ends after line 3, and there are more texts to translate." in short.stderr
    assert "There is no file" in tmt("translate", "--prefix", "none.txt", "one.").stderr


def test_a_tilde_is_the_home_folder_also_where_the_shell_leaves_it(tmt, trained: Path, monkeypatch) -> None:
    """As in `--runs=~/runs`, which would else mean a folder of that name."""
    monkeypatch.setenv("HOME", str(trained))
    result = tmt("translate", "--runs=~/runs", "--output=~/home.txt", "seven eight.")
    assert result.stderr == f"run: {trained}/runs/toy\n"
    assert (trained / "home.txt").read_text() == "ocho siete.\n"
    assert tmt("translate", "--run", "~/runs/toy", "seven eight.").stdout == "ocho siete.\n"
    assert "~no-such-user/runs is not" in tmt("translate", "--run", "~no-such-user/runs", "seven eight.").stderr


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
    assert "The input is UTF-16. Convert it: iconv" in result.stderr
    packed = call("translate", stdin=(trained / "in.gz").read_bytes())  # by a pipe
    assert (packed.returncode, packed.stdout) == (2, "")
    assert "The input is gzip. Unpack it" in packed.stderr
    for module, kind, unpack in ((bz2, "bzip2", "bzcat"), (lzma, "xz", "xzcat")):
        (trained / "in.packed").write_bytes(module.compress(b"seven eight.\n"))
        result = call("translate", "--input", "in.packed")
        assert (result.returncode, result.stdout) == (2, "")
        assert f"The input is {kind}. Unpack it: {unpack} FILE | tmt translate." in result.stderr
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


def test_the_output_may_not_be_standard_input(tmt, trained: Path) -> None:
    (trained / "both.txt").write_text("seven eight.\n")
    command = [sys.executable, "-m", "transformer_mt", "translate", "--output", "both.txt"]
    with (trained / "both.txt").open("rb") as stdin:
        result = subprocess.run(command, cwd=trained, stdin=stdin, capture_output=True, text=True)
    assert result.returncode == 2
    assert "--output both.txt is the input itself" in result.stderr
    assert (trained / "both.txt").read_text() == "seven eight.\n"


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


def is_at_work(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="processes begin as copies on Linux")
def test_no_process_outlives_one_that_is_killed(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "long.en").write_text("one two three four five six seven.\n" * 100_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "translate", "--input", str(tmp_path / "long.en"),
         "--batch-size", "10000", "--beam-size", "5", "--output", str(tmp_path / "out")],
        cwd=trained, stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    begin = time.monotonic()
    while len(begun := children.read_text().split()) < 2:
        assert time.monotonic() - begin < 60
        time.sleep(0.1)
    process.kill()
    process.wait()
    for _ in range(20):  # batches of 10,000 sentences take longer
        if not any(is_at_work(child) for child in begun):
            return
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    pytest.fail("they work on")


def test_nothing_in_nothing_out(tmt) -> None:
    result = tmt("translate", stdin=b"")
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize("batch_size", ["1", "2", "50"])
def test_order_and_text_do_not_depend_on_the_batch(call, trained: Path, batch_size: str) -> None:
    lines = (trained / "data" / "train.en").read_text().split("\n")[:40]
    expected = call("translate", stdin="\n".join(lines).encode()).stdout
    result = call("translate", "--batch-size", batch_size, stdin="\n".join(lines).encode())
    assert result.stdout == expected
    assert len(expected.split("\n")) == 41


@pytest.mark.parametrize("beam_size", ["1", "4"])
def test_order_and_text_do_not_depend_on_the_cores(call, trained: Path, beam_size: str) -> None:
    lines = (trained / "data" / "train.en").read_text().split("\n")[:60]
    command = ("translate", "--batch-size", "4", "--beam-size", beam_size)
    expected = call(*command, stdin="\n".join(lines).encode())
    result = run_tmt(trained, *command, stdin="\n".join(lines).encode(), threads=2)
    assert (result.returncode, result.stdout) == (0, expected.stdout)
    assert len(expected.stdout.split("\n")) == 61


@pytest.mark.skipif(sys.platform != "linux", reason="processes begin as copies on Linux")
def test_ctrl_c_ends_all_processes_of_a_search(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "long.en").write_text("one two three four five six seven.\n" * 100_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "translate", "--input", str(tmp_path / "long.en")],
        cwd=trained, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"uno dos tres")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert b"\ntmt: stopped" in errors
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


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
    assert call("translate", "--first-line", "0", "one").returncode == 2


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


def test_from_python(trained: Path) -> None:
    from transformer_mt import Translator

    translator = Translator.load(trained / "runs" / "toy")
    assert translator.translate(list(SENTENCES)) == list(SENTENCES.values())
    assert translator.translate([]) == []
    assert translator.translate(sentence for sentence in SENTENCES) == list(SENTENCES.values())
    with pytest.raises(UserError, match=r"Write translate\(\['seven eight\.'\]\)"):
        translator.translate("seven eight.")
    assert translator.translate(["", "seven eight."], beam_size=1) == ["", "ocho siete."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "nowhere", "a"], "nowhere is not the folder of a run"),
        (["--run", "runs/toy/checkpoints/step_1200", "a"], "Did you mean runs/toy?"),
        (["--checkpoint", "step_7", "a"], "has no checkpoint 'step_7'; there are "),
        (["--checkpoint", "average", "a"], "Make one with `tmt average runs/toy --last 1`"),
        (["--beam-size", "2147483647", "a"], "A beam of 2,147,483,647 takes "),
        (["--input", "none.txt"], "none.txt cannot be read: No such file"),
        (["--input", "toy.yaml", "a"], "Sentences and --input were both given"),
        (["--input", "toy.yaml", "-"], "Sentences and --input were both given"),
        (["--input", "toy.yaml", "--output", "toy.yaml"], "is the input itself"),
        (["--output", "no/such/folder", "a"], "no/such/folder cannot be written"),
        (["--beam-size", "0", "a"], "beam_size: 0 is not allowed; must be at least 1"),
        (["--n-best", "3", "--beam-size", "2", "a"], "Use beam_size 3 or more"),
        (["--length-penalty", "-1", "a"], "length_penalty: -1.0 is not allowed; must be at least 0"),
        (["--length-penalty", "nan", "a"], "length_penalty: nan is not allowed; must be a finite number"),
        (["--device", "cuda:x", "a"], "'cuda:x' is not a device"),
        (["--device", "cuda:7", "a"], "CUDA devices. Use auto or cpu"),
        (["--device", "tpu", "a"], "is not a device"),
        (["--precision", "fp8", "a"], "precision: 'fp8' is not one of fp32, bf16, fp16, int8, auto"),
        (["--runs", "data", "a"], "There is no trained run in"),
    ],
)
def test_mistakes_get_one_clear_sentence(call, arguments: list[str], message: str) -> None:
    result = call("translate", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_a_damaged_run_is_a_user_error(call, trained: Path, tmp_path: Path) -> None:
    import shutil

    for file in ("model.safetensors", "state.json"):
        copy = tmp_path / file
        shutil.copytree(trained / "runs" / "toy", copy)
        damaged = copy / "checkpoints" / "step_1200" / file
        damaged.write_bytes(damaged.read_bytes()[:-20])
        result = call("translate", "--run", str(copy), "one.")
        assert result.returncode == 2
        assert f"{file}" in result.stderr
        assert "damaged" in result.stderr
    named = call("translate", "--run", str(tmp_path / "state.json"), "--checkpoint", "step_1200", "seven eight.")
    assert named.stdout == "ocho siete.\n", "a damaged state stops nobody from naming a step"


def test_a_reader_that_goes_away_is_no_error(tmt, trained: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "translate", "--format", "jsonl"],
        cwd=trained, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.write(b"one two.\n" * 3000)
    process.stdin.close()
    errors = process.stderr.read().decode()
    assert "Traceback" not in errors
    assert "Exception" not in errors
    assert process.wait(timeout=60) == 1


def test_help_answers_without_torch(tmt) -> None:
    code = (
        "import sys\nfrom transformer_mt.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as e:\n    assert e.code == 0\n"
        "bad = {'torch', 'datasets', 'pydantic', 'yaml', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "translate" in result.stdout


def test_options_that_do_not_go_together_are_told_without_torch(trained: Path) -> None:
    code = (
        "import sys\nfrom transformer_mt.cli.main import app\n"
        "from transformer_mt.errors import UserError\n"
        "try:\n    app(['translate', '--html', '--prefix', 'tab', 'a'], standalone_mode=False)\n"
        "except UserError as error:\n    assert '--html and --prefix' in str(error)\n"
        "else:\n    raise AssertionError\n"
        "assert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=trained)
    assert result.returncode == 0, result.stderr


def test_ctrl_c_at_an_open_pipe_ends_quietly(trained: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "translate"],
        cwd=trained, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A shell has its background jobs, these tests among them, ignore Ctrl-C, and they leave that to their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"seven eight.\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"ocho siete.\n", "an answer after every line, without waiting for more"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert b"Fatal" not in errors


def test_a_command_that_fails_leaves_the_output_as_it_was(call, trained: Path) -> None:
    (trained / "old.txt").write_text("precious\n")
    assert call("translate", "--run", "nowhere", "--input", "toy.yaml", "--output", "old.txt").returncode == 2
    assert call("translate", "--beam-size", "0", "--input", "toy.yaml", "--output", "old.txt").returncode == 2
    assert (trained / "old.txt").read_text() == "precious\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_under_the_output(call, trained: Path) -> None:
    result = call("translate", "--output", "/dev/full", "seven eight.")
    assert result.returncode == 2
    assert "/dev/full cannot be written: No space left on device" in result.stderr
    command = f"env -u PYTHONUNBUFFERED {sys.executable} -m transformer_mt translate 'seven eight.' > /dev/full"
    result = subprocess.run(["bash", "-c", command], cwd=trained, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.endswith(
        "tmt: Standard output cannot be written: No space left on device. Free some space there, or name a file with "
        "--output.\n"
    )


def test_bytes_on_the_command_line_that_are_not_utf8(trained: Path) -> None:
    command = [sys.executable.encode(), b"-m", b"transformer_mt", b"translate", b"seven \xff\xfe eight."]
    result = subprocess.run(command, cwd=trained, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(b"\n") == 1


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
