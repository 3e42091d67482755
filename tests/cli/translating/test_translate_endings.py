"""What ends `tmt translate` from outside: Ctrl-C, a kill, a reader that goes away; and no process is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from marks import on_linux


def is_at_work(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def group_of(process: str) -> int | None:
    try:
        return os.getpgid(int(process))
    except (ValueError, ProcessLookupError):
        return None


@pytest.mark.slow
@on_linux
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


@on_linux
def test_ctrl_c_ends_all_processes_of_a_search(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "long.en").write_text("one two three four five six seven.\n" * 100_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "translate", "--input", str(tmp_path / "long.en")],
        cwd=trained, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"uno dos tres")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert b"\ntmt: stopped" in errors
    assert [number for number in os.listdir("/proc") if group_of(number) == process.pid and is_at_work(number)] == []


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


def test_ctrl_c_at_an_open_pipe_ends_quietly(trained: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "translate"],
        cwd=trained, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
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
