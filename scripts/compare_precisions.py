"""Whether a reduced precision costs quality: the same training in each precision, with several seeds, on Multi30k.

    python scripts/compare_precisions.py --data DIR [--precisions fp32 bf16] [--seeds 1 2 3] [--d-model 128]

DIR holds `tok/`, the lower-cased, tokenized Multi30k. The model has the shape of `bench_train.py`, words as tokens, at
the given d_model: d_ff four times as much, heads of 32 but 8 at most, 3 + 3 layers, dropout 0.1, label smoothing 0.1,
output tied to the target's embeddings. Each run is `tmt train`, validated once, after its last step. Printed are the
validation nll of each seed, their mean and standard deviation, and the seconds of training (a run's mean; they say
little where anything else runs on the machine). Below stands how far the means are apart, in standard deviations of one
training: the pooled one, the root of the mean of both variances. The precisions take turns, seed by seed, and a
comparison that was interrupted goes on where it stopped.
"""

import argparse
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from measuring import command
from measuring.comparing import BENCH_CONFIG, as_table, metrics, tmt


@dataclass(frozen=True)
class Result:
    """What a run came to: nats a target token of the validation split, and how long it trained."""

    nll: float
    seconds: float


def result(run: Path, steps: int) -> Result | None:
    """None where the run has not got so far."""
    found = [line for line in metrics(run, "validation") if line["step"] == steps]
    return Result(found[0]["nll"], found[0]["elapsed_seconds"]) if found else None


def name_of(precision: str, seed: int, args: argparse.Namespace) -> str:
    """Of a run."""
    return f"d{args.d_model}_{args.max_tokens}_tokens_{args.steps}_steps_{precision}_seed_{seed}"


def overrides_of(precision: str, seed: int, args: argparse.Namespace) -> list[str]:
    """Of the benchmark's config."""
    name = name_of(precision, seed, args)
    return [
        f"name={name}", f"seed={seed}", f"training.precision={precision}",
        f"data.root={args.data.resolve() / 'tok'}", f"data.cache_dir={args.work.resolve() / 'cache'}",
        f"model.d_model={args.d_model}", f"model.d_ff={4 * args.d_model}",
        f"model.num_heads={min(8, max(1, args.d_model // 32))}",
        f"model.num_encoder_layers={args.layers}", f"model.num_decoder_layers={args.layers}",
        f"training.max_tokens={args.max_tokens}", f"training.max_steps={args.steps}",
        f"training.warmup_steps={min(500, args.steps // 2)}",
        f"validation.every_steps={args.steps}",
    ]  # fmt: skip


def trained(precision: str, seed: int, args: argparse.Namespace) -> Result:
    """The run with this precision and seed, started or gone on with unless it has its steps."""
    run = args.work / name_of(precision, seed, args)
    if result(run, args.steps) is None:
        tmt(
            "train",
            "--config",
            BENCH_CONFIG,
            "--runs",
            str(args.work),
            "--resume",
            "auto",
            *overrides_of(precision, seed, args),
        )
    done = result(run, args.steps)
    assert done is not None, run
    return done


def row(precision: str, results: list[Result]) -> list[str]:
    """A row of the table."""
    nlls = [result.nll for result in results]
    seconds = statistics.mean(result.seconds for result in results)
    spread = (statistics.mean(nlls), statistics.stdev(nlls))
    return [precision, *(f"{number:.4f}" for number in (*nlls, *spread)), f"{seconds:,.0f}"]


def distance(name: str, results: list[Result], other_name: str, other_results: list[Result]) -> str:
    """How far the means of the first are above those of the second, and in standard deviations of one training."""
    one, other = ([result.nll for result in side] for side in (results, other_results))
    deviation = math.sqrt((statistics.variance(one) + statistics.variance(other)) / 2)
    difference = statistics.mean(one) - statistics.mean(other)
    return f"{name} - {other_name}: {difference:+.4f} nll, {difference / deviation:+.2f} standard deviations"


def main() -> None:
    """Parse, train, print."""
    parser = command.Parser(__doc__)
    parser.add_argument("--data", type=command.folder, required=True, help="the folder that holds tok/")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], help="all are held against the first")
    parser.add_argument("--seeds", nargs="+", type=command.count(0), default=[1, 2, 3])
    parser.add_argument("--steps", type=command.count(), default=1000)
    parser.add_argument("--d-model", type=command.count(), default=128)
    parser.add_argument("--layers", type=command.count(), default=3, help="of encoder and of decoder")
    parser.add_argument("--max-tokens", type=command.count(), default=1024, help="padded tokens a batch")
    parser.add_argument("--work", type=Path, default=Path("runs/precisions"), help="where the runs go, and stay")
    parser.add_argument("--smoke", action="store_true", help="a few steps of a tiny model: whether it runs")
    args = parser.parse_args()
    if args.smoke:
        args.seeds, args.steps, args.d_model, args.layers, args.max_tokens = [1, 2], 4, 32, 1, 256
    if len(set(args.seeds)) < max(2, len(args.seeds)):
        parser.error("--seeds: one seed, or the same twice, has no standard deviation. Name two or more.")
    for split in ("train", "val"):
        command.tokenized(args.data, split)
    for precision in args.precisions:
        command.checked(BENCH_CONFIG, overrides_of(precision, args.seeds[0], args))
    results: dict[str, list[Result]] = {precision: [] for precision in args.precisions}
    for seed in args.seeds:
        for precision in results:
            results[precision].append(trained(precision, seed, args))
    columns = ["precision", *(f"nll, seed {seed}" for seed in args.seeds), "mean", "deviation", "seconds"]
    print(as_table(columns, [row(*item) for item in results.items()]))
    first, *others = results
    for name in others:
        print(distance(name, results[name], first, results[first]))


if __name__ == "__main__":
    command.run(main)
