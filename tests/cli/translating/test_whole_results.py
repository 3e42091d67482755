"""What a command has computed stays, whole: where nobody reads, where a disk is full, where Ctrl-C ends it."""

import contextlib
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import full_disk

from transformer_mt.cli.line_sink import LineSink
from transformer_mt.cli.main import main
from transformer_mt.decoding.lines import line_stream

LINES = ["one two three.", "seven eight."] * 200


def write_input(folder: Path, lines: list[str] = LINES) -> Path:
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder / "in.txt"


def call_unread(folder: Path, *arguments: str) -> int:
    """The exit status of `tmt` whose standard output is a pipe without a reader, and is not buffered."""
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["tmt", *arguments])
        raw = io.FileIO(writer, "w")
        stack.callback(raw.close)
        stack.enter_context(contextlib.redirect_stdout(io.TextIOWrapper(raw, write_through=True)))
        ended = stack.enter_context(pytest.raises(SystemExit))
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        ("evaluate --beam-size 1", "runs/toy/evaluations/test_step_1200_beam1.json"),
        ("average runs/toy --last 1", "runs/toy/checkpoints/average/model.safetensors"),
        ("attention one --output unread", "unread/cross_layer_0.png"),
        ("data export builtin:en-es unread", "unread/train.en"),
        (
            "train --config toy.yaml name=unread training.max_steps=2 training.warmup_steps=1",
            "runs/unread/checkpoints/step_2",
        ),
        ("trace one", "runs/toy"),
    ],
)
def test_a_reader_that_goes_away_takes_no_result_with_it(
    arguments: str, made: str, trained: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(trained, tmp_path / "copy")
    assert call_unread(folder, *arguments.split()) == 0
    assert (folder / made).exists()


def test_a_reader_that_goes_away_in_an_unbuffered_container(trained: Path) -> None:
    command = f"set -o pipefail; {sys.executable} -m transformer_mt evaluate --lowercase | true"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(["bash", "-c", command], cwd=trained, capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert (trained / "runs/toy/evaluations/test_step_1200_beam2_lp0.6_lc.json").exists()


def test_a_disk_that_fills_up_under_translations(tmp_path: Path, call) -> None:
    """What is written is whole lines, and the advice completes it."""
    source, out = write_input(tmp_path), tmp_path / "out.txt"
    with full_disk(3072):
        result = call("translate", "--input", str(source), "--batch-size", "4", "--output", str(out))
    assert result.returncode == 2
    written = out.read_text()
    num_lines = written.count("\n")
    assert 0 < num_lines < len(LINES)
    assert written.endswith("\n")
    command = f"tail -n +{num_lines + 1} {source} | tmt translate … >> {out}"
    assert (
        f"{out} cannot be written: File too large. {out} holds the translations of the first {num_lines} lines. "
        in (result.stderr)
    )
    assert result.stderr.endswith(f"Free some space, and go on with the same options: {command}\n")
    rest = call("translate", stdin="".join(f"{line}\n" for line in LINES[num_lines:]).encode())
    assert written + rest.stdout == call("translate", *LINES[:2]).stdout * 200


def stopped_after_the_first(translate_chunks: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Ctrl-C comes while the second chunk is translated."""

    def stopped(*arguments: Any) -> Iterator[Any]:
        yield next(translate_chunks(*arguments))
        raise KeyboardInterrupt

    return stopped


def test_ctrl_c_leaves_whole_lines_and_says_how_to_go_on(
    call, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_stream, "translate_chunks", stopped_after_the_first(line_stream.translate_chunks))
    source, out = write_input(tmp_path), tmp_path / "out.txt"
    result = call("translate", "--input", str(source), "--batch-size", "4", "--output", str(out))
    assert result.returncode == 130
    num_lines = out.read_text().count("\n")
    assert 0 < num_lines < len(LINES)
    assert result.stderr.endswith(
        f"\ntmt: stopped. {out} holds the translations of the first {num_lines} lines. Go on with the same options: "
        f"tail -n +{num_lines + 1} {source} | tmt translate … >> {out}\n"
    )
    assert call("translate", "seven eight.").stderr.endswith("\ntmt: stopped\n"), "sentences are soon typed again"


def test_ctrl_c_at_a_terminal_says_how_to_go_on_with_a_file(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard input is a terminal there, and the lines come from elsewhere."""
    monkeypatch.setattr(line_stream, "translate_chunks", stopped_after_the_first(line_stream.translate_chunks))
    monkeypatch.setattr(os, "pipe", os.openpty)  # of which `call` makes standard input
    source, out = write_input(tmp_path), tmp_path / "out.txt"
    result = call("translate", "--input", str(source), "--batch-size", "4", "--output", str(out))
    assert result.returncode == 130
    first = out.read_text().count("\n") + 1
    assert f"Go on with the same options: tail -n +{first} {source} | tmt translate … >> {out}" in result.stderr


def test_ctrl_c_between_a_write_and_its_count_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said to be there, and by which command the others follow, is what the file holds."""
    with (tmp_path / "out").open("w", encoding="utf-8") as stream:
        sink = LineSink(stream, tmp_path / "out", lambda first: f"tail -n +{first} IN |")
        sink.write(["one", "two"], 2)

        def stopped(*arguments: object) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "lseek", stopped)
        with pytest.raises(KeyboardInterrupt):
            sink.write(["three"], 1)
        sink.cut()
    assert (tmp_path / "out").read_text() == "one\ntwo\n"
    assert "the first 2 lines. Go on with the same options: tail -n +3 IN | >> " in sink.way_on()


@pytest.mark.parametrize(
    ("options", "is_counted"),
    [
        ([], False),
        (["--n-best", "2"], True),
        (["--format", "moses"], True),
        (["--format", "jsonl", "--n-best", "2"], False),
        (["--sampling-topk", "5"], True),
        (["--prefix", "prefixes"], True),
    ],
    ids=["plain", "numbered", "moses", "jsonl", "sampled", "prefixed"],
)
def test_who_goes_on_as_told_gets_what_an_unbroken_run_gives(
    options: list[str], is_counted: bool, call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "in.packed", tmp_path / "out.txt"
    lines = LINES[:150]  # 64 are a chunk
    source.write_bytes(gzip.compress(write_input(tmp_path, lines).read_bytes()))
    (tmp_path / "prefixes").write_text("uno\n\n" * (len(lines) // 2))
    options = [str(tmp_path / part) if part == "prefixes" else part for part in options]
    command = ("translate", "--batch-size", "4", *options)
    whole = call(*command, "--input", str(source)).stdout
    with monkeypatch.context() as patch:
        patch.setattr(line_stream, "translate_chunks", stopped_after_the_first(line_stream.translate_chunks))
        result = call(*command, "--input", str(source), "--output", str(out))
    way = re.search(
        rf"the same options: zcat {re.escape(str(source))} \| tail -n \+(\d+) \| tmt translate …( --first-line \d+)?",
        result.stderr,
    )
    assert way
    assert 1 < int(way[1]) < len(lines)
    assert way[2] == (f" --first-line {way[1]}" if is_counted else None)
    rest = "".join(f"{line}\n" for line in lines[int(way[1]) - 1 :]).encode()
    assert out.read_text() + call(*command, *(way[2] or "").split(), stdin=rest).stdout == whole


@pytest.mark.parametrize("threads", [1, 2])
def test_unknown_words_are_told_once(threads: int, call, begun) -> None:
    lines = ["Zebras juggle", "one two.", "quantum Zebras, one", "", "six " * 30 + "quartz", *["two"] * 20]
    command = ("translate", "--batch-size", "2")
    result = call(*command, stdin="\n".join(lines).encode(), threads=threads)
    assert result.returncode == 0
    assert len(begun) == (2 if threads == 2 else 0)
    told = [line for line in result.stderr.split("\n") if "does not know" in line]
    assert told == [
        "the model does not know 6 words of the input, and guesses what they mean: Zebras, juggle, quantum, ‘,’, quartz"
    ]


def test_many_unknown_words_are_counted_and_a_few_named(call) -> None:
    result = call("translate", " ".join(f"word{i}\x1b" for i in range(5)) + " " + " ".join(f"w{i}" for i in range(9)))
    assert "\x1b" not in result.stderr
    assert result.stderr.endswith(", …\n")
    assert "does not know 1 word of the input, and guesses what it means: Zebra\n" in call("translate", "Zebra").stderr
    assert ": U+202E, U+202C\n" in call("translate", "\u202e one \u202c").stderr, "which print alike"
    assert "does not know" not in call("translate", "seven eight.").stderr
