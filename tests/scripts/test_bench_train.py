"""bench_train.py runs, and what it prints is what it measured. Never how fast anything is."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarking import REPOSITORY, SHARED, run, stub

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.transformer import Transformer

JOEY_LOGS = """
print("2026-01-01 INFO - joeynmt.training - Epoch   1, Step:       10, Batch Loss: 9.1, Tokens per Sec:     7, Lr: 0.1")
for speed in (300, 100, 250):
    print(f"Epoch   1, Step:       20, Batch Loss: 8.2, Batch Acc: 0.1, Tokens per Sec: {speed:8.0f}, Lr: 0.000300")
"""


def row(table: str, side: str) -> float:
    (speed,) = re.findall(rf"^\| {side} \| ([\d,]+) \| \d+% \| [\d,]+ MiB \| (?:[\d.]+%)? \|$", table, re.MULTILINE)
    return float(speed.replace(",", ""))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), ("--d-model", "32", "--join", "4")], ids=["as given", "another shape"])
def test_bench_train_measures_ours_and_the_plain_loop(shape: tuple[str, ...], text: Path, tmp_path: Path) -> None:
    if not SHARED.exists():
        pytest.skip(f"the opponent is needed: there is no folder {SHARED}")
    opponent = ("--plain-loop", str(SHARED / "bench/plain_loop.py"))
    joey = stub(tmp_path / "python", JOEY_LOGS)
    table = run("bench_train.py", "--data", str(text), *opponent, "--joey-python", str(joey), *shape, "--smoke")
    assert f"d_model {32 if shape else 256}\n" in table
    ours, plain = row(table, "ours, auto"), row(table, "plain loop, fp32")
    wait = re.findall(r"^\| ours, auto \|.* MiB \| ([\d.]+)% \|$", table, re.MULTILINE)
    assert 0 <= float(wait[0]) < 100
    shares = re.findall(r"^  \w.* ([\d.]+) % +[\d.]+ ms$", table, re.MULTILINE)
    assert sum(map(float, shares)) == pytest.approx(100, abs=1)
    last = re.fullmatch(r"(\d+\.\d\d) x plain loop", table.rstrip("\n").split("\n")[-1])
    assert last is not None
    assert float(last[1]) == pytest.approx(ours / plain, rel=0.01, abs=0.01)
    assert row(table, "Joey NMT, fp32") == 250
    joey_ratio, loop_ratio, *_ = table.split("\n")
    # The table rounds tokens a second to whole ones, which moves a 250th of them by at most 0.002.
    assert float(joey_ratio.removesuffix(" x Joey NMT")) == pytest.approx(ours / 250, abs=0.008)
    assert loop_ratio == last[0]


@pytest.mark.slow
def test_bench_train_measures_another_checkout(text: Path) -> None:
    table = run("bench_train.py", "--data", str(text), "--against", str(REPOSITORY), "--d-model", "32", "--smoke")
    here, there = row(table, "ours, auto"), row(table, f"{REPOSITORY}, auto")
    *_, rounds, last = table.rstrip("\n").split("\n")
    each, _, ratio = rounds.rpartition(": ")
    assert each == f"rounds: {here:,.0f} and {there:,.0f}"
    assert float(ratio) == pytest.approx(here / there, abs=0.008)
    found = re.fullmatch(rf"(\d+\.\d\d) x {REPOSITORY}", last)
    assert found is not None
    assert float(found[1]) == pytest.approx(here / there, abs=0.02)
    assert table.split("\n")[0] == last


# Other toolkits


def test_joey_is_measured_by_its_log_and_given_our_text_and_widths(
    scripts: SimpleNamespace, text: Path, tmp_path: Path
) -> None:
    config = tmp_path / "joey.yaml"
    settings = "root: FOLDER\nembedding_dim: 256\nhidden_size: 256\nff_size: 1024\nmax_length: 100\n"
    on_a_gpu = "use_cuda: False\nfp16: False\nbatch_size: 4096\nnum_layers: 3\nnum_heads: 8\nepochs: 1\n"
    config.write_text(settings + on_a_gpu, encoding="utf-8")
    python = stub(tmp_path / "python", f"assert sys.argv[1:3] == ['-m', 'joeynmt']\n{JOEY_LOGS}")
    shape = scripts.training_opponents.Shape(64, 128, num_heads=4, num_layers=2, max_tokens=9000, device="cuda")
    measured = scripts.training_opponents.joey(text, python, config, shape, tmp_path)
    assert measured.speed == 250  # the median of what comes after the first
    place = tmp_path / "joey"
    assert (place / "config.yaml").read_text(encoding="utf-8").split("\n") == [
        f"root: {place}", "embedding_dim: 64", "hidden_size: 64", "ff_size: 128", "max_length: 512", "use_cuda: True",
        "fp16: True", "batch_size: 9000", "num_layers: 2", "num_heads: 4", "epochs: 99", "",
    ]  # fmt: skip
    assert (place / "test.de").read_bytes() == (text / "tok/test_2016_flickr.lc.norm.tok.de").read_bytes()
    vocabulary = (place / "vocab.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert vocabulary[:4] == ["<unk>", "<pad>", "<s>", "</s>"]
    assert len(vocabulary) == len(set(vocabulary)) == 4 + 10 + 1  # the numbers and the full stop


@pytest.mark.slow
def test_bench_train_measures_a_preset_and_what_it_uses_of_the_device(text: Path) -> None:
    """What a GPU would run, on a CPU."""
    opponent = ("--plain-loop", str(SHARED / "bench/plain_loop.py")) if SHARED.exists() else ()
    arguments = ("--preset", "base", "--device", "cpu", "--precision", "fp32", "--profile", "--smoke", *opponent)
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
    if opponent:
        ((plain, ratio),) = re.findall(
            r"^\| plain loop, fp32 \| ([\d,]+) \|.*\n\n([\d.]+) x plain loop, fp32$", said, re.MULTILINE
        )
        assert float(ratio) == pytest.approx(speed / float(plain.replace(",", "")), rel=0.01, abs=0.01)


def test_a_training_too_short_for_a_profile_says_so_in_its_place(scripts: SimpleNamespace) -> None:
    none = "profile: nothing was profiled, for training ended before step 10 of this start"
    assert scripts.preset_speed.profile_in(f"step 8\n{none}\ntrained\n") == none
    tables = "profile of steps 10 to 14, by kind of operation:\n  other  9 %"
    assert scripts.preset_speed.profile_in(f"step 14\n{tables}\ntrace: a\ntrained\n") == tables


@pytest.mark.parametrize(
    ("name", "precision", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", (989e12, "published for H100, dense bf16")),
        ("NVIDIA H100 PCIe", "fp16", (756e12, "published for H100 PCIe, dense fp16")),
        ("NVIDIA H200 NVL", "bf16", (835e12, "published for H200 NVL, dense bf16")),
        ("NVIDIA H200", "fp16", (989e12, "published for H200, dense fp16")),
        ("NVIDIA H100 80GB HBM3", "fp32", (32.0, "float32")),
        ("Tesla T4", "fp16", (16.0, "float16")),
        ("Tesla T4", "bf16", (16.0, "bfloat16")),
    ],
)
def test_the_peak_is_that_of_the_precision(
    name: str, precision: str, expected: tuple[float, str], scripts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts.preset_speed, "machine_name", lambda device: name)
    measured: list[torch.dtype] = []
    monkeypatch.setattr(
        scripts.preset_speed,
        "measured_peak",
        lambda device, dtype, size: measured.append(dtype) or 8.0 * dtype.itemsize,
    )
    peak, source = scripts.preset_speed.peak_of(torch.device("cuda"), precision)
    if measured:
        assert source == f"measured here: a product of 8192 x 8192 matrices in {precision}"
        source = str(measured[0]).removeprefix("torch.")
    assert (peak, source) == expected


def test_needed_operations_by_hand(scripts: SimpleNamespace) -> None:
    """d 8, d_ff 16, 1 + 1 layers, 10 words; 3 source and 2 target positions, twice."""
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
    assert scripts.preset_speed.flops_per_target_token(model, *lengths) == 3 * 7296 / 2
