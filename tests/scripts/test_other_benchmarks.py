"""The other benchmarks run, and what they print is what they measured. Never how fast anything is."""

import json
import re
from pathlib import Path

import pytest
from benchmarking import REPOSITORY, run

from transformer_mt.config.loading import load_config


@pytest.mark.slow
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
    assert table.index(ratios[0]) < table.index("| text, tokenizer |")
    memory = [float(row[-2].split()[0].replace(",", "")) for row in rows]
    told = float(re.findall(r"second memory ([\d.]+) x", ratios[0])[0])
    assert told == pytest.approx(memory[1] / memory[0], abs=0.02)
    speed = [float(row[3].replace(",", "")) for row in rows]
    told = float(re.findall(r"^sentences/s ([\d.]+) x", ratios[0])[0])
    assert told == pytest.approx(speed[1] / speed[0], rel=0.02, abs=0.01)
    starts = [float(row[4].split()[0].replace(",", "")) for row in rows]
    told = float(re.findall(r"first start ([\d.]+) x", ratios[0])[0])
    assert told == pytest.approx(starts[1] / starts[0], rel=0.1)


@pytest.mark.slow
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


@pytest.mark.slow
def test_bench_kernels_measures_each_side(text: Path) -> None:
    table = run("bench_kernels.py", "--data", str(text), "--smoke")
    rows = re.findall(r"^\| (.*) \| 64 \| fp32 \| ([\d,]+) \| ([\d.]+) \| [\d,]+ MiB \|$", table, re.MULTILINE)
    speeds = {name: float(speed.replace(",", "")) for name, speed, _ in rows}
    assert len(speeds) == len(rows) == 5
    for name, _, gain in rows:
        assert float(gain) == pytest.approx(speeds["nothing"] / speeds[name], rel=0.02)


@pytest.mark.slow
def test_bench_load_measures_each_load(text: Path, trained: Path) -> None:
    arguments = ("--data", str(text), "--run", str(trained), "--against", str(REPOSITORY), "--smoke")
    table = run("bench_load.py", *arguments)
    rows = re.findall(r"^\| ([\w ]+) \| ([\w ]+) \| ([\d,.]+) \| ([\d.]+) \| [\d.]* ?\|$", table, re.MULTILINE)
    assert [(name, beside) for name, beside, *_ in rows] == [
        *(
            (name, f"{load} busy processes")
            for load in (0, 1, 2, 4)
            for name in ("train", "translate", "translate one")
        ),
        ("train", "a training"),
    ]
    speeds = {(name, beside): float(speed.replace(",", "")) for name, beside, speed, _ in rows}
    for name, beside, _, share in rows:
        expected = speeds[name, beside] / speeds[name, "0 busy processes"]
        assert float(share) == pytest.approx(expected, rel=0.02, abs=0.01)
    assert re.search(r"^[\d.]+ x .*, both training alone", table, re.MULTILINE)
