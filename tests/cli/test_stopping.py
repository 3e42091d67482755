"""What ends a command from outside: Ctrl-C while libraries load, a full disk under a log, memory that runs out."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import call_tmt
from pages import REPOSITORY
from toy import toy_mapping, write_toy_corpus
from typer.core import TyperGroup

from transformer_mt.config.loading import dump_config, parse_run_config
from transformer_mt.training import run as run_module

SLOW_LIBRARY = """
import time
print("importing", flush=True)
try:
    time.sleep(60)
except BaseException:
    print("swallowed", flush=True)
"""


ENTRY = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["tmt"]
SCRIPT = "import {0}; {0}.{1}()".format(*ENTRY.split(":"))


@pytest.mark.parametrize("program", [("-m", "transformer_mt"), ("-c", SCRIPT)], ids=["module", "script"])
@pytest.mark.parametrize("library", ["typer", "torch", "numpy"])
def test_ctrl_c_while_a_library_loads_ends_the_command(library: str, program: tuple[str, str], tmp_path: Path) -> None:
    """C code in there forgets the exception, and goes on with half a module. typer is loaded before all else."""
    (tmp_path / f"{library}.py").write_text(SLOW_LIBRARY)
    write_toy_corpus(tmp_path / "data")
    process = subprocess.Popen(
        [sys.executable, *program, "train", "--config", "quickstart.yaml"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    while "importing" not in (line := process.stdout.readline()):
        assert line, process.communicate()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (130, "tmt: stopped\n")
    assert "swallowed" not in stdout


@pytest.mark.parametrize("part", ["make_context", "invoke"])
def test_ctrl_c_is_told_wherever_it_comes(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TyperGroup, part, stop)
    result = call_tmt(tmp_path, "runs")
    assert (result.returncode, result.stderr) == (130, "tmt: stopped\n")


def write_config(folder: Path) -> None:
    mapping = toy_mapping(write_toy_corpus(folder / "data"), training={"max_steps": 4})
    (folder / "toy.yaml").write_text(dump_config(parse_run_config(mapping, "toy")), encoding="utf-8")


FULL_FROM_THE_FIRST_VALIDATION_ON = """
import os
from transformer_mt.cli.main import main
from transformer_mt.training.monitoring.monitor import Monitor
say, said = Monitor.say, []
def say_on_a_full_disk(monitor, text):
    if not said:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    said.append(text)
    say(monitor, text)
Monitor.say = say_on_a_full_disk
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_under_the_log_does_not_stop_a_training(tmp_path: Path) -> None:
    write_config(tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", FULL_FROM_THE_FIRST_VALIDATION_ON, "train", "--config", "toy.yaml"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    told = "tmt: standard output cannot be written (No space left on device); the training goes on without it."
    assert result.stderr.count(told) == 1
    assert (tmp_path / "runs" / "toy" / "checkpoints" / "step_4").is_dir()


def test_memory_that_runs_out_anywhere_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path)

    def build(*_: Any) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.")

    monkeypatch.setattr(run_module, "build_model", build)
    result = call_tmt(tmp_path, "train", "--config", "toy.yaml")
    assert result.returncode == 2
    assert "tmt: The memory ran out (" in result.stderr
    assert "you tried to allocate 99 bytes.). Take a smaller model" in result.stderr


@pytest.mark.parametrize("key", ["max_len", "num_decoder_layers", "d_model"])
def test_a_model_that_no_memory_holds_is_refused_and_nothing_is_left_behind(key: str, tmp_path: Path) -> None:
    write_config(tmp_path)
    sizes = f"model.{key}={2**30}", "training.max_tokens=2147483647"
    result = call_tmt(tmp_path, "train", "--config", "toy.yaml", *sizes)
    assert result.returncode == 2
    said = r"^tmt: This model has [\d,]+ parameters.* GiB at least, and this machine has "
    assert re.search(said, result.stderr, re.MULTILINE)
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "runs").exists()


def test_what_the_corpus_holds_is_not_obeyed_by_the_terminal(tmp_path: Path) -> None:
    write_config(tmp_path)
    for language, text in (("en", "one \x1b[31mtwo\x07"), ("es", f"uno \u202e{'x' * 20_000}")):
        path = tmp_path / "data" / f"train.{language}"
        lines = path.read_text(encoding="utf-8").split("\n")
        path.write_text("".join(f"{text} {line}\n" for line in lines[:-1]), encoding="utf-8")
    result = call_tmt(tmp_path, "train", "--config", "toy.yaml", "training.max_steps=1", "model.max_len=64")
    assert result.returncode == 0, result.stderr
    assert "one \ufffd[31mtwo\ufffd " in result.stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout)
    assert "x…" in result.stdout
    assert len(result.stdout) < 20_000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("translate", "one two."), 0),
        (("config", "show", "base.yaml"), 0),
        (("translate", "--run", "nowhere", "one."), 2),
        (("config", "show"), 2),
    ],
)
def test_a_full_disk_under_standard_error_changes_no_result(
    arguments: tuple[str, ...], status: int, trained: Path
) -> None:
    """The first two say there which run and which file they took."""
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "transformer_mt", *arguments],
            cwd=trained, stdout=subprocess.PIPE, stderr=full, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    assert (result.returncode, result.stdout != "") == (status, status == 0)
