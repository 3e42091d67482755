"""The benchmarks run, and what they print is what they measured. Never how fast anything is."""

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from toy import toy_mapping, toy_pairs, write_toy_corpus

from transformer_mt.config.loading import load_config, parse_run_config
from transformer_mt.config.run_folder import RunFolder
from transformer_mt.config.schema import ModelConfig
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.run import start_or_resume

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
    (speed,) = re.findall(rf"^\| {side} \| ([\d,]+) \| \d+% \| [\d,]+ MiB \| (?:[\d.]+%)? \|$", table, re.MULTILINE)
    return float(speed.replace(",", ""))


@pytest.mark.parametrize(
    "shape",
    [pytest.param((), marks=pytest.mark.slow), ("--d-model", "32", "--join", "4")],
    ids=["as given", "another shape"],
)
def test_bench_train_measures_ours_and_the_plain_loop(shape: tuple[str, ...], text: Path) -> None:
    if not SHARED.exists():
        pytest.skip(f"the opponent is needed: there is no folder {SHARED}")
    opponent = ("--plain-loop", str(SHARED / "bench/plain_loop.py"))
    table = run("bench_train.py", "--data", str(text), *opponent, *shape, "--smoke")
    assert f"d_model {32 if shape else 256}\n" in table
    ours, plain = row(table, "ours, auto"), row(table, "plain loop, fp32")
    wait = re.findall(r"^\| ours, auto \|.* MiB \| ([\d.]+)% \|$", table, re.MULTILINE)
    assert 0 <= float(wait[0]) < 100
    shares = re.findall(r"^  \w.* ([\d.]+) % +[\d.]+ ms$", table, re.MULTILINE)
    assert sum(map(float, shares)) == pytest.approx(100, abs=1)
    last = re.fullmatch(r"(\d+\.\d\d) x plain loop", table.rstrip("\n").split("\n")[-1])
    assert last is not None
    assert float(last[1]) == pytest.approx(ours / plain, rel=0.01, abs=0.01)


@pytest.mark.slow
def test_bench_train_measures_another_checkout(text: Path) -> None:
    table = run("bench_train.py", "--data", str(text), "--against", str(REPOSITORY), "--d-model", "32", "--smoke")
    here, there = row(table, "ours, auto"), row(table, f"{REPOSITORY}, auto")
    *_, rounds, last = table.rstrip("\n").split("\n")
    assert rounds == f"rounds: {here:,.0f} and {there:,.0f}: {here / there:.2f}"
    found = re.fullmatch(rf"(\d+\.\d\d) x {REPOSITORY}", last)
    assert found is not None
    assert float(found[1]) == pytest.approx(here / there, abs=0.02)


def test_bench_train_refuses_a_folder_that_is_no_checkout(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "bench_train.py"), "--data", str(tmp_path), "--against", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path} is no checkout of this project: it has no folder transformer_mt.\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--profile"], "--profile has no meaning without --preset"),
        (["--max-tokens", "77"], "--max-tokens has no meaning without --preset"),
        (["--precisions", "fp32"], "--precisions needs auto, which is what is compared"),
    ],
)
def test_bench_train_refuses_what_it_would_not_do(arguments: list[str], told: str, tmp_path: Path, capsys) -> None:
    assert refused(capsys, "bench_train.py", "--data", str(tmp_path), *arguments).endswith(f"error: {told}\n")


def test_bench_decode_refuses_what_it_could_not_compare(tmp_path: Path, capsys) -> None:
    said = refused(capsys, "bench_decode.py", "--run", str(tmp_path), "--data", str(tmp_path), "--precisions", "int8")
    assert said.endswith("error: --precisions needs fp32, whose text all are held against\n")


def refused(capsys: pytest.CaptureFixture[str], script: str, *arguments: str) -> str:
    """In this process, which has loaded torch: nothing is measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        patch.setattr(sys, "argv", [script, *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPTS / script), run_name="__main__")
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_bench_train_measures_a_preset_and_what_it_uses_of_the_device(text: Path) -> None:
    """What a GPU would run, on a CPU."""
    arguments = ("--preset", "base", "--device", "cpu", "--precision", "fp32", "--profile", "--smoke")
    said = run("bench_train.py", "--data", str(text), *arguments, "--set", "seed=5")
    needed, peak = re.findall(r"needed: ([\d,.]+) MFLOP a target token; device: ([\d.]+) TFLOP/s, measured here", said)[
        0
    ]
    row = re.findall(
        r"^\| fp32 \| ([\d,]+) \| ([\d.]+) \| ([\d.]+)% \| [\d,]+ MiB \| [\d.]+% \| 0 \|$", said, re.MULTILINE
    )
    speed, used, share = (float(number.replace(",", "")) for number in row[0])
    assert used == pytest.approx(speed * float(needed) / 1e6, rel=0.05, abs=0.001)
    assert share == pytest.approx(100 * used / float(peak), rel=0.05, abs=0.2)
    assert "matrix products" in said


def test_needed_operations_by_hand() -> None:
    """d 8, d_ff 16, 1 + 1 layers, 10 words; 3 source and 2 target positions, twice."""
    spec = importlib.util.spec_from_file_location("preset_speed", SCRIPTS / "preset_speed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = ModelConfig(d_model=8, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    with torch.device("meta"):
        model = Transformer(config, 10, 10)
    encoder = (
        3 * 4 * 2 * 8 * 8 + 2 * 2 * 9 * 8 + 3 * 2 * 2 * 8 * 16
    )  # projections, 3 x 3 scores and values, feed-forward
    decoder = 2 * 4 * 2 * 8 * 8 + 2 * 2 * 3 * 8 + 2 * 2 * 2 * 8 * 16  # of the 2 x 2 scores 3 are allowed
    cross = 2 * 2 * 2 * 8 * 8 + 3 * 2 * 2 * 8 * 8 + 2 * 2 * 6 * 8
    forward = encoder + decoder + cross + 2 * 2 * 8 * 10
    assert forward == 7296
    lengths = (np.array([3, 3], np.int32), np.array([2, 2], np.int32))
    assert module.flops_per_target_token(model, *lengths) == 3 * 7296 / 2


def test_bench_data_measures_every_size_and_how_it_grows() -> None:
    table = run("bench_data.py", "--tokenizers", "word", "--smoke")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.split("\n")
        if line.startswith("| built-in, word |")
    ]
    assert [row[1] for row in rows] == ["300", "1,200"]
    counts = [int(row[2]) for row in rows]
    assert 1 <= counts[0] < counts[1]
    for row in rows:
        cost = re.fullmatch(r"([\d,]+) \+ ([\d,]+) = ([\d,]+) µs", row[-1])
        assert cost is not None
        planning, making, both = (int(number.replace(",", "")) for number in cost.groups())
        assert abs(planning + making - both) <= 1
    ratios = re.findall(r"^built-in, word, 300 -> 1,200 pairs \(4\.0 x\): (.*)$", table, re.MULTILINE)
    assert len(ratios) == 1
    memory = [float(row[-2].split()[0].replace(",", "")) for row in rows]
    told = float(re.findall(r"second memory ([\d.]+) x", ratios[0])[0])
    assert told == pytest.approx(memory[1] / memory[0], abs=0.02)
    speed = [float(row[3].replace(",", "")) for row in rows]
    told = float(re.findall(r"^sentences/s ([\d.]+) x", ratios[0])[0])
    assert told == pytest.approx(speed[1] / speed[0], rel=0.02, abs=0.01)
    starts = [float(row[4].split()[0].replace(",", "")) for row in rows]
    told = float(re.findall(r"first start ([\d.]+) x", ratios[0])[0])
    assert told == pytest.approx(starts[1] / starts[0], rel=0.1)


def test_bench_decode_measures_sides_that_agree(text: Path, tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "run")
    write_toy_corpus(tmp_path / "data")
    mapping = toy_mapping(tmp_path / "data", training={"max_steps": 20, "checkpoint_every_steps": 20})
    start_or_resume(parse_run_config(mapping, "toy"), run_folder, resume=False)
    table = run("bench_decode.py", "--run", str(run_folder.path), "--data", str(text), "--threads", "1", "--smoke")
    cells = r"^\| (.*?) \| ([\d,.]+) \| [\d,]+ \| 8 \| [\d,]+ MiB \| [\d.]+ \| (\d+) \|$"
    rows = re.findall(cells, table, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["ours, fp32", "CTranslate2, float32", "ours without a cache, fp32"]
    same = {name: int(number) for name, _, number in rows}
    assert same["ours without a cache, fp32"] == same["ours, fp32"] == 20
    speeds = {name: float(speed.replace(",", "")) for name, speed, _ in rows}
    told = re.findall(r"^([\d.]+) x ours without a cache, fp32 \(ours, fp32\)$", table, re.MULTILINE)
    expected = speeds["ours, fp32"] / speeds["ours without a cache, fp32"]
    assert float(told[0]) == pytest.approx(expected, rel=0.05, abs=0.02)
    assert len(re.findall(r"^\| (?:from a loaded model, fp32|`tmt .*) \| [\d,.]+ \|$", table, re.MULTILINE)) == 3


def test_compare_precisions_keeps_finished_runs_and_tells_what_it_trained(text: Path, tmp_path: Path) -> None:
    """Both seeds in fp32 are there by hand, with a mean of 5.1 and a variance of 0.02; those in bf16 are trained."""
    for seed, nll in ((1, 5.0), (2, 5.2)):
        run_dir = tmp_path / f"d32_256_tokens_4_steps_fp32_seed_{seed}"
        run_dir.mkdir()
        line = {"kind": "validation", "step": 4, "nll": nll, "elapsed_seconds": 10 * seed}
        (run_dir / "metrics.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    said = run("compare_precisions.py", "--data", str(text), "--work", str(tmp_path), "--smoke")
    assert "| fp32 | 5.0000 | 5.2000 | 5.1000 | 0.1414 | 15 |\n" in said

    nlls = []
    for seed in (1, 2):
        run_dir = tmp_path / f"d32_256_tokens_4_steps_bf16_seed_{seed}"
        training = load_config(str(run_dir / "config.yaml")).config.training
        assert (training.precision, training.max_steps) == ("bf16", 4)
        lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        nlls += [line["nll"] for line in map(json.loads, lines) if line["kind"] == "validation"]
    assert len(set(nlls)) == 2
    mean, variance = sum(nlls) / 2, (nlls[0] - nlls[1]) ** 2 / 2
    cells = f"| bf16 | {nlls[0]:.4f} | {nlls[1]:.4f} | {mean:.4f} | {variance**0.5:.4f} |"
    assert cells in said
    told = re.findall(r"^bf16 - fp32: ([+-][\d.]+) nll, ([+-][\d.]+) standard deviations$", said, re.MULTILINE)
    expected = (mean - 5.1, (mean - 5.1) / ((0.02 + variance) / 2) ** 0.5)
    assert [float(number) for number in told[0]] == pytest.approx(expected, abs=0.006)
