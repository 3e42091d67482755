"""What `bench_train.py --preset` measures: a known model on one device, and how much of the device it uses.

Model FLOP utilisation is the arithmetic that the model needs, over what the device could do in the time. Needed is: for
each pair, of S source and T target positions without padding, EOS and BOS counted, every matrix product of the forward
pass, a multiply-add as 2, and twice as much again for the backward pass. Attention counts the pairs of positions that
its mask allows: S x S in the encoder, T (T + 1) / 2 in the decoder, S x T across. Embeddings, norms, softmax, dropout,
the loss and the optimizer count nothing, and neither does padding. `transformer_mt/inspect/flops.py` does the counting.
The opponents that are named train a model of the same shape with as large batches, on the same device, after ours.
"""

import argparse
import re
import statistics
import sys
import tempfile
import timeit
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from measuring.command import checked
from measuring.comparing import BENCH_CONFIG, metrics
from measuring.training_opponents import Shape, joey, plain_loop, run_measured
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.data.preparation import prepare_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.errors import UserError
from transformer_mt.inspect.flops import flops_by_part
from transformer_mt.machine.device import DTYPES, choose_device, choose_precision, machine_name
from transformer_mt.model.interface import TranslationModel

PRESETS = {"base": "transformer-base", "big": "transformer-big"}
# Operations a second of dense products in 16 bits (fp16 and bf16 alike), as the maker publishes them, by a part of the
# device's name. The first part that fits counts.
PEAKS = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200 NVL": 835e12, "H200": 989e12, "A100": 312e12}
SMOKE = ["model.d_model=64", "model.d_ff=128", "model.num_heads=2", "model.num_encoder_layers=1",
         "model.num_decoder_layers=1"]  # fmt: skip


def flops_per_target_token(
    model: TranslationModel, src_lengths: NDArray[np.int32], tgt_lengths: NDArray[np.int32]
) -> float:
    """Operations of a training step over pairs of these lengths, EOS counted; the top of this file says what counts."""
    pairs = Counter(zip(src_lengths.tolist(), tgt_lengths.tolist(), strict=True))
    forward = sum(number * sum(flops_by_part(model, *lengths).values()) for lengths, number in pairs.items())
    return 3 * forward / int(tgt_lengths.sum())


def peak_of(device: torch.device, precision: str) -> tuple[float, str]:
    """Operations a second that the device could do, and where that is known from."""
    name = machine_name(device)
    for part, peak in PEAKS.items():
        if precision in DTYPES and part in name:
            return peak, f"published for {part}, dense {precision}"
    dtype = DTYPES.get(precision, torch.float32)
    size = 8192 if device.type == "cuda" else 1024
    return measured_peak(device, dtype, size), f"measured here: a product of {size} x {size} matrices in {precision}"


def measured_peak(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Operations a second of a square matrix product, the best of ten."""
    a = torch.ones(size, size, dtype=dtype, device=device)

    def product() -> None:
        torch.mm(a, a)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return 2 * size**3 / min(timeit.repeat(product, "gc.enable()", repeat=11, number=1))


def measure(args: argparse.Namespace, data: Path, folder: Path) -> None:
    """Train, read what the run wrote, and print a table; then the opponents, and by how much ours is faster."""
    device = torch.device(choose_device(args.device).value)
    window = max(args.steps // 3, 1)  # in steps; each line of metrics waits for the GPU
    overrides = [
        "name=preset", f"data.root={data / 'tok'}", f"data.cache_dir={folder / 'cache'}",
        f"model.preset={PRESETS[args.preset]}", "model.tie_embeddings=decoder",
        f"training.max_tokens={args.max_tokens}", f"training.precision={args.precision}",
        f"training.device={args.device}", f"training.max_steps={args.warm_up + args.steps}",
        "training.schedule=constant", "training.lr=0.0003", f"training.log_every_steps={window}",
        "training.checkpoint_every_steps=1000000",
        "validation.every_steps=1000000",
        *(SMOKE if args.smoke else []), *args.set,
    ]  # fmt: skip
    config = checked(BENCH_CONFIG, overrides)
    if config.name != "preset" or config.training.max_steps < args.warm_up + window:
        raise UserError("--set changes the name or leaves no step to measure. Leave name and training.max_steps alone.")
    command = [sys.executable, "-m", "transformer_mt", "train", "--config", BENCH_CONFIG, *overrides]
    said, host_memory = run_measured([*command, "--profile"] if args.profile else command, folder)
    prepared = prepare_data(config)
    with torch.device("meta"):
        model = build_model(config, prepared.src_tokenizer, prepared.tgt_tokenizer)
    needed = flops_per_target_token(model, prepared.train.src_lengths, prepared.train.tgt_lengths)
    precision = choose_precision(args.precision, device, config.model.d_model).value
    peak, whence = peak_of(device, precision)
    lines = metrics(folder / "runs/preset", "train")
    windows = [line for line in lines if line["step"] >= args.warm_up + window]
    speed = statistics.median(line["tokens_per_second"] for line in windows)
    print(
        f"{machine_name(device)}, torch {torch.__version__}, {PRESETS[args.preset]}, {args.max_tokens:,} padded tokens"
    )
    print(f"needed: {needed / 1e6:,.1f} MFLOP a target token; device: {peak / 1e12:,.4g} TFLOP/s, {whence}\n")
    if args.profile:
        print(f"{profile_in(said)}\n")
    memory = windows[-1].get("peak_memory", host_memory)
    graphs = windows[-1].get("compiled_graphs", 0)
    wait = statistics.median(line["data_wait"] for line in windows)
    print("| precision | target tokens/s | TFLOP/s | utilisation | peak memory | data wait | graphs compiled |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {precision} | {speed:,.0f} | {speed * needed / 1e12:,.4g} | {speed * needed / peak:.1%} | "
        f"{memory / 2**20:,.0f} MiB | {wait:.2%} | {graphs} |"
    )
    for name, other in opponents(args, data, config.model, device):
        arithmetic = f"{other * needed / 1e12:,.4g} | {other * needed / peak:.1%}"
        print(f"| {name} | {other:,.0f} | {arithmetic} | | | |\n\n{speed / other:.2f} x {name}", flush=True)


def profile_in(said: str) -> str:
    """What a training said of its profile: the tables, or that and why there are none."""
    (found,) = re.findall(r"^profile of steps .*?(?=^trace:)|^profile: [^\n]*", said, re.MULTILINE | re.DOTALL)
    return found.rstrip()


def opponents(
    args: argparse.Namespace, data: Path, model: ModelConfig, device: torch.device
) -> Iterator[tuple[str, float]]:
    """Target tokens a second of those that the command line names, each as soon as it is measured."""
    layers = model.num_encoder_layers
    shape = Shape(model.d_model, model.d_ff, model.num_heads, layers, args.max_tokens, device.type)
    precision = "fp32" if args.precision == "fp32" else "bf16"
    with tempfile.TemporaryDirectory() as place:
        if args.plain_loop:
            loop = plain_loop(data, args.plain_loop, shape, precision, args.steps, Path(place))
            yield f"plain loop, {precision}", loop.speed
        if args.joey_python:
            yield "Joey NMT", joey(data, args.joey_python, args.joey_config, shape, Path(place)).speed
