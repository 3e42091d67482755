"""Training speed on this machine: ours beside a plain torch.nn.Transformer loop, and Joey NMT where it is installed.

    python scripts/bench_train.py --data DIR [--joey-python PATH] [--d-model 512] [--join 8]

DIR holds `tok/`, the lower-cased, tokenized Multi30k. The model: d_model 256, 3 + 3 layers, d_ff 1024, 8 heads, dropout
0.1, label smoothing 0.1, output tied to the target's embeddings, words seen twice or more; 4,096 padded tokens a batch.
Each side is a process of its own and trains for real: reading, batching and logging are in the time. Printed are target
tokens a second, padding not counted, as the median of windows of five steps after five steps of warm-up; the share of
the largest speed that this machine's matrix products would allow; the peak memory of the process; and, of ours, the
share of the time in which training waits for a batch. The sides take turns, `--rounds` times, and the best round of
each counts, since other work on the machine can only slow one down. The ratios stand first. Below the table stands
where the time of a few steps of ours goes (`tmt train --profile`, in a process of its own). The last line is again
`N.NN x plain loop`: ours as `precision: auto` runs it over the plain loop in fp32.

    python scripts/bench_train.py --data DIR --against CHECKOUT [--rounds 3]

takes another checkout of this project for the opponent, trained in turn with this one: what a change was worth. The
first and the last line are then `N.NN x CHECKOUT`, the ratio of the medians of the rounds; above the last one is that
of each.

    python scripts/bench_train.py --data DIR --preset big --device cuda --max-tokens 25000 --precision bf16 [--profile]

measures a preset of ours, and how much of the device it uses, beside the opponents that `--plain-loop` and
`--joey-python` name: see `measuring/preset_speed.py`.
"""

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from measuring import command
from measuring.comparing import BENCH_CONFIG, metrics
from measuring.preset_speed import PRESETS, measure
from measuring.training_opponents import Measured, Shape, joey, joey_settings, loop_at, plain_loop, run_measured

from transformer_mt.errors import UserError

WARM_UP, WINDOW = 5, 5
ROWS = 3600  # positions of a batch that are no padding, about
MAX_TOKENS, MAX_LEN = 4096, 256  # padded tokens of a batch; tokens of a sentence
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# The defaults of options; those for --smoke come first where it is given.
OF_SIDES = {"plain_loop": None, "joey_python": None, "joey_config": None, "against": None, "d_model": 256,
            "precisions": ["fp32", "bf16", "auto"], "rounds": 2}  # fmt: skip
OPPONENTS = {"plain_loop", "joey_python", "joey_config"}  # of a preset too
OF_A_PRESET = {"device": "auto", "max_tokens": 25000, "precision": "bf16", "warm_up": 20, "profile": False, "set": []}
SMOKE_OF_SIDES = {"steps": WINDOW, "precisions": ["auto"], "rounds": 1}
SMOKE_OF_A_PRESET = {"steps": 15, "warm_up": 5, "max_tokens": 512}


def overrides_of(data: Path, shape: Shape, precision: str, steps: int, folder: Path) -> list[str]:
    """Of the benchmark's config."""
    return [
        f"name=ours_{precision}", f"data.root={data / 'tok'}", f"data.cache_dir={folder / 'cache'}",
        f"model.d_model={shape.d_model}", f"model.d_ff={shape.d_ff}",
        f"model.num_heads={shape.num_heads}", f"model.num_encoder_layers={shape.num_layers}",
        f"model.num_decoder_layers={shape.num_layers}",
        f"training.max_steps={steps + WARM_UP}", f"training.log_every_steps={WINDOW}",
        f"training.precision={precision}", "training.schedule=constant", "training.lr=0.0003",
        f"training.checkpoint_every_steps={steps + WARM_UP}",
        "validation.every_steps=100000",
    ]  # fmt: skip


def windows_of(folder: Path, precision: str) -> tuple[float, float]:
    """Target tokens a second of the run in this folder, and the share of the time that it waits for data: medians."""
    windows = metrics(folder / f"runs/ours_{precision}", "train")[WARM_UP // WINDOW :]
    speed, wait = (statistics.median(line[key] for line in windows) for key in ("tokens_per_second", "data_wait"))
    return speed, wait


def ours(
    data: Path,
    shape: Shape,
    precision: str,
    steps: int,
    folder: Path,
    checkout: Path | None = None,
    options: tuple[str, ...] = (),
) -> Measured:
    """`tmt train`, by its own metrics; of the package as it is installed, or of a checkout."""
    overrides = overrides_of(data, shape, precision, steps, folder)
    said, memory = run_measured(
        [sys.executable, "-m", "transformer_mt", "train", "--config", BENCH_CONFIG, *overrides, *options],
        folder,
        checkout,
    )
    speed, wait = windows_of(folder, precision)
    return Measured(speed, memory, wait, said)


def where_time_goes(data: Path, shape: Shape) -> str:
    """Ours at `precision: auto`: the table of its profile."""
    with tempfile.TemporaryDirectory() as folder:
        said = ours(data, shape, "auto", 2 * WINDOW, Path(folder), options=("--profile",)).said
    (table,) = re.findall(r"^profile of steps .*?(?=^trace:)", said, re.MULTILINE | re.DOTALL)
    return table


def gflops(shape: tuple[int, int, int], dtype: torch.dtype, seconds: float = 0.3) -> float:
    """The speed of a product (m, k) x (k, n), the best of what fits into the time."""
    m, k, n = shape
    a, b = torch.ones(m, k, dtype=dtype), torch.ones(k, n, dtype=dtype)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - start)
    return 2e-9 * m * k * n / best


def ceiling(shape: Shape, vocab_size: int, dtype: torch.dtype, rows: int) -> float:
    """Target tokens a second if a step were its matrix products alone, each at the speed that this machine has for it:
    forward once, and twice as much backward. Of attention's own products, small on short sentences, none is counted.

    A target token brings one source token with it, which is nearly so in Multi30k, and no padding.
    """
    d, ff = shape.d_model, shape.d_ff
    per_layer = {(d, d): 4 + 8, (d, ff): 2, (ff, d): 2}  # encoder: 4 projections; decoder: 8; a feed-forward each
    products = {key: number * shape.num_layers for key, number in per_layer.items()}
    products[d, vocab_size] = 1
    seconds = sum(3 * number * 2 * k * n / (1e9 * gflops((rows, k, n), dtype)) for (k, n), number in products.items())
    return 1 / seconds


def joined(data: Path, number: int, folder: Path) -> Path:
    """The same text as sentences of `number` neighbours each: `tok/` in another folder."""
    (folder / "tok").mkdir()
    for path in command.folder(data / "tok").glob("*.lc.norm.tok.*"):
        lines = command.lines_of(path)
        rows = [" ".join(lines[i : i + number]) for i in range(0, len(lines), number)]
        (folder / "tok" / path.name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def sides_of(args: argparse.Namespace, data: Path) -> dict[str, Callable[[Path], Measured]]:
    """Who is measured."""
    shape = Shape(args.d_model, 4 * args.d_model)
    sides: dict[str, Callable[[Path], Measured]] = {
        f"ours, {precision}": partial(ours, data, shape, precision, args.steps) for precision in args.precisions
    }
    if args.against:
        checkout = command.folder(args.against)
        sides[f"{args.against}, auto"] = partial(ours, data, shape, "auto", args.steps, checkout=checkout)
        return sides
    for precision in ("fp32", "bf16"):
        if precision in args.precisions or precision == "fp32":
            sides[f"plain loop, {precision}"] = partial(plain_loop, data, args.plain_loop, shape, precision, args.steps)
    if args.joey_python:
        sides["Joey NMT, fp32"] = partial(joey, data, args.joey_python, args.joey_config, shape)
    return sides


def default_opponent(args: argparse.Namespace, name: str) -> Path:
    """The opponents' files are looked for beside the data."""
    return command.file(args.data.resolve().parent.parent / "bench" / name)


def parse() -> argparse.Namespace:
    """The command line, with what would not be done refused."""
    parser = command.Parser(__doc__)
    parser.add_argument("--data", type=command.folder, required=True, help="the folder that holds tok/")
    parser.add_argument(
        "--plain-loop", type=command.file, help="default: plain_loop.py in ../../bench, seen from --data"
    )
    parser.add_argument("--joey-python", type=command.python("joeynmt.training"), help="of an environment with joeynmt")
    parser.add_argument("--joey-config", type=command.file, help="default: joey_w1.yaml beside the plain loop")
    parser.add_argument("--against", help="another checkout of this project, to be measured instead")
    parser.add_argument("--precisions", nargs="+")
    parser.add_argument("--d-model", type=command.count(), help="d_ff is four times as much")
    parser.add_argument(
        "--join", type=command.count(), default=1, help="neighbouring sentences made one: 8 give about 100 tokens"
    )
    parser.add_argument("--steps", type=command.count())
    parser.add_argument("--rounds", type=command.count())
    parser.add_argument("--smoke", action="store_true", help="a few steps, once: whether it runs")
    alone = parser.add_argument_group("a preset of ours, on any device")
    alone.add_argument("--preset", choices=PRESETS)
    alone.add_argument("--device")
    alone.add_argument("--max-tokens", type=command.count(), help="padded tokens a batch")
    alone.add_argument("--precision")
    alone.add_argument("--warm-up", type=command.count(0), help="steps before those that count")
    alone.add_argument(
        "--profile", action="store_true", default=None, help="print where the time goes, by kind of operation"
    )
    alone.add_argument("--set", nargs="+", help="settings that replace those of the benchmark")
    args = parser.parse_args()
    if args.preset:
        command.refuse(args, [name for name in OF_SIDES if name not in OPPONENTS], "with --preset")
        if args.joey_python:
            args.joey_config = args.joey_config or default_opponent(args, "joey_w1.yaml")
        command.fill(args, SMOKE_OF_A_PRESET if args.smoke else {}, {**OF_A_PRESET, "steps": 30})
        return args
    command.refuse(args, OF_A_PRESET, "without --preset")
    if args.against:
        command.refuse(args, ("plain_loop", "joey_python", "joey_config", "precisions"), "with --against")
        args.precisions = ["auto"]
    if not args.joey_python:
        command.refuse(args, ("joey_config",), "without --joey-python")
    command.fill(args, SMOKE_OF_SIDES if args.smoke else {}, {**OF_SIDES, "steps": 30})
    if "auto" not in args.precisions:
        parser.error("--precisions needs auto, which is what is compared. Add it.")
    if args.steps < WINDOW:
        parser.error(f"--steps {args.steps} is less than a window. Give {WINDOW} or more.")
    return args


def check(args: argparse.Namespace, data: Path) -> None:
    """UserError for what a side would stumble over, before the first is measured."""
    shape = Shape(args.d_model, 4 * args.d_model)
    for precision in args.precisions:
        command.checked(BENCH_CONFIG, overrides_of(data, shape, precision, args.steps, data))
    lengths = [1 + max(len(text.split()) for text in pair) for pair in command.tokenized(data, "train")]
    padded = sum(length for length in lengths if length <= MAX_LEN)
    command.tokenized(data, "val")
    if padded < (WARM_UP + WINDOW) * MAX_TOKENS:
        raise UserError(
            f"--data with --join {args.join} has text for {padded // MAX_TOKENS} batches of {MAX_TOKENS:,} tokens, and "
            f"{WARM_UP + WINDOW} are the least that can be measured. Give more text."
        )
    if args.against:
        if not (command.folder(args.against) / "transformer_mt").is_dir():
            raise UserError(
                f"{args.against} is no checkout of this project: it has no folder transformer_mt. Name another."
            )
        return
    args.plain_loop = args.plain_loop or default_opponent(args, "plain_loop.py")
    if shape != Shape():
        loop_at(args.plain_loop, shape)
    if args.joey_python:
        command.tokenized(data, "test_2016_flickr")
        args.joey_config = args.joey_config or command.file(args.plain_loop.with_name("joey_w1.yaml"))
        joey_settings(args.joey_config, shape, data)


def main() -> None:
    """Parse, measure in turn, print."""
    args = parse()
    with tempfile.TemporaryDirectory() as place:
        data = args.data if args.join == 1 else joined(args.data, args.join, Path(place))
        if args.preset:
            measure_preset(args, data)
            return
        check(args, data)
        best: dict[str, Measured] = {}
        speeds: dict[str, list[float]] = {}
        for number in range(args.rounds):
            for name, side in sides_of(args, data).items():
                with tempfile.TemporaryDirectory() as folder:
                    measured = side(Path(folder))
                print(f"round {number + 1}: {name}: {measured.speed:,.0f}", file=sys.stderr, flush=True)
                speeds.setdefault(name, []).append(measured.speed)
                if name not in best or measured.speed > best[name].speed:
                    best[name] = measured
        shape = Shape(args.d_model, 4 * args.d_model)
        ratios = [against(args.against, speeds)] if args.against else ratios_of(best)
        print("\n".join(ratios) + "\n")
        print_table(best, shape, data)
        if args.against:
            here, there = speeds.values()
            print("rounds:", ", ".join(f"{a:,.0f} and {b:,.0f}: {a / b:.2f}" for a, b in zip(here, there, strict=True)))
        else:
            print(where_time_goes(data, shape))
        print(ratios[-1])


def measure_preset(args: argparse.Namespace, data: Path) -> None:
    """`--preset`, in a folder of its own."""
    for split in ("train", "val"):
        command.tokenized(data, split)
    with tempfile.TemporaryDirectory() as place:
        measure(args, data, Path(place))


def print_table(best: dict[str, Measured], shape: Shape, data: Path) -> None:
    """Markdown."""
    words = Counter((data / "tok" / "train.lc.norm.tok.de").read_text(encoding="utf-8").split())
    vocab_size = 4 + sum(number > 1 for number in words.values())
    ceilings = {name: ceiling(shape, vocab_size, dtype, ROWS) for name, dtype in DTYPES.items()}
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, d_model {shape.d_model}\n")
    print("| side | target tokens/s | of the ceiling | peak memory | data wait |\n|---|---|---|---|---|")
    for name, measured in best.items():
        limit = ceilings.get(name.rpartition(" ")[2], max(ceilings.values()))
        wait = "" if measured.data_wait is None else f"{measured.data_wait:.2%}"
        print(
            f"| {name} | {measured.speed:,.0f} | {measured.speed / limit:.0%} | {measured.memory / 2**20:,.0f} MiB | "
            f"{wait} |"
        )
    for name, limit in ceilings.items():
        print(f"| ceiling, {name} | {limit:,.0f} | | | |")
    print()


def ratios_of(best: dict[str, Measured]) -> list[str]:
    """The one that counts last."""
    opponents = {"Joey NMT, fp32": "Joey NMT", "plain loop, fp32": "plain loop"}
    ours = best["ours, auto"].speed
    return [f"{ours / best[name].speed:.2f} x {what}" for name, what in opponents.items() if name in best]


def against(checkout: str, speeds: dict[str, list[float]]) -> str:
    """By the medians of the rounds."""
    here, there = map(statistics.median, speeds.values())
    return f"{here / there:.2f} x {checkout}"


if __name__ == "__main__":
    command.run(main)
