"""A line of any length costs no verb any memory to speak of."""

import io
import re
import shutil
from pathlib import Path

import pytest
import yaml
from toy import toy_mapping, write_toy_corpus
from trainings import start_anew

# The peak of a child's own memory: what the system counts for its parent holds the memory of the tests too.
TELL_PEAK = """
import atexit
atexit.register(lambda: print(open("/proc/self/status").read()))
from transformer_mt.cli.main import main
main()
"""
TWO_GB = 2_000_000_000


def add_line_of_two_gigabytes(path: Path) -> None:
    """Zeros, which take no room on most disks; and one line behind them."""
    with path.open("r+b") as file:
        size = file.seek(0, io.SEEK_END)
        file.truncate(size + TWO_GB)
        file.seek(0, io.SEEK_END)
        file.write(b"\none two.\n")


def peak_of(folder: Path, *arguments: str) -> tuple[int, str]:
    """The peak in bytes, and what was said."""
    process = start_anew(folder, *arguments, program=("-c", TELL_PEAK))
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    found = re.search(r"VmHWM:\s+(\d+) kB", output)
    assert found, output
    return int(found[1]) * 1024, output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("train --config toy.yaml --runs {}", "line 41: a side is longer than 1,048,576 bytes"),
        ("translate --input data/train.en --output {}", "train.en, line 41: longer than 1,048,576 bytes, left blank"),
        (
            "evaluate --src data/train.en --ref data/train.es",
            "left out: 1 pair with a side longer than 1,048,576 bytes",
        ),
    ],
    ids=["train", "translate", "evaluate"],
)
def test_a_line_of_two_gigabytes_costs_no_memory(arguments: str, said: str, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    write_toy_corpus(tmp_path / "data", 40)
    mapping = toy_mapping(Path("data"), training={"max_steps": 2, "checkpoint_every_steps": 2, "warmup_steps": 1})
    mapping["data"]["cache_dir"] = "cache"
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(mapping), encoding="utf-8")
    without, output = peak_of(tmp_path, *arguments.format("without").split())
    assert said not in output
    add_line_of_two_gigabytes(tmp_path / "data" / "train.en")
    with (tmp_path / "data" / "train.es").open("a", encoding="utf-8") as file:
        file.write("uno.\nuno dos.\n")
    peak, output = peak_of(tmp_path, *arguments.format("with").split())
    assert said in output
    assert peak < without + 50_000_000
