"""That the benchmarks run, and that what they print is what they measured. Never how fast anything is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from toy import toy_pairs

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"
SCRIPTS = REPOSITORY / "scripts"


def run(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPTS / script), *arguments], capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return done.stdout


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """A folder in the layout of Multi30k, with text enough for twenty batches."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "tok").mkdir()
    pairs = toy_pairs(9000)
    for split, part in (("train", pairs), ("val", pairs[:50]), ("test_2016_flickr", pairs[:50])):
        for language, side in zip(("en", "de"), zip(*part, strict=True), strict=True):
            lines = "".join(f"{line.removesuffix('.')} .\n" for line in side)
            (folder / "tok" / f"{split}.lc.norm.tok.{language}").write_text(lines, encoding="utf-8")
    return folder


def row(table: str, side: str) -> float:
    (speed,) = re.findall(rf"^\| {side} \| ([\d,]+) \| \d+% \| [\d,]+ MiB \|$", table, re.MULTILINE)
    return float(speed.replace(",", ""))


def test_bench_train_measures_ours_and_the_plain_loop(text: Path) -> None:
    if not SHARED.exists():
        pytest.skip(f"the opponent is needed: there is no folder {SHARED}")
    table = run("bench_train.py", "--data", str(text), "--plain-loop", str(SHARED / "bench/plain_loop.py"), "--smoke")
    ours, plain = row(table, "ours, auto"), row(table, "plain loop, fp32")
    last = re.fullmatch(r"(\d+\.\d\d) x plain loop", table.rstrip("\n").split("\n")[-1])
    assert last is not None
    assert float(last[1]) == pytest.approx(ours / plain, rel=0.01, abs=0.01)


def test_bench_train_measures_other_shapes_alone(text: Path) -> None:
    table = run("bench_train.py", "--data", str(text), "--d-model", "32", "--join", "4", "--smoke")
    assert row(table, "ours, auto") > 0
    assert "d_model 32" in table
    assert "plain loop" not in table
