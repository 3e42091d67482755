"""Trains every preset at one small size on Multi30k and prints the table of docs/results.md, quality beside speed.

    python scripts/compare_presets.py --data FOLDER [--steps 3000] [--presets llama modern] [--rounds 3]

FOLDER holds train.en, train.de, val.en and val.de. All models have the width, the heads and the number of layers of the
first one and one tied table of embeddings; their d_ff is what makes their parameters equal (so transformer-big differs
from transformer-base in its dropout alone). Same pairs, same batches, same steps. A comparison that was interrupted
goes on where it stopped. Quality comes first, then the speeds, a few short runs of each preset in turn: let nothing
else run beside those.
"""

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

from measuring import command
from measuring.comparing import as_table, metrics, tmt

from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.model_size import model_size

VOCAB_SIZE = 8000
SIZE = {"d_model": 128, "num_heads": 4, "max_len": 256, "tie_embeddings": "all"}
LAYERS = {
    "encoder_decoder": {"num_encoder_layers": 3, "num_decoder_layers": 3},
    "decoder_only": {"num_encoder_layers": 0, "num_decoder_layers": 6},
}
STACKED = [name for name, model in MODELS.items() if model["architecture"] in LAYERS and model["patches"] is None]
COLUMNS = ("preset", "parameters", "validation nll", "BLEU", "target tokens/s", "sentences/s")


def small_model(preset: str, d_ff: int) -> dict[str, Any]:
    """The preset's values at this size; grouped queries keep their ratio."""
    values = {**MODELS[preset], **SIZE, "d_ff": d_ff}
    if values["num_kv_heads"] is not None:
        values["num_kv_heads"] = SIZE["num_heads"] * values["num_kv_heads"] // MODELS[preset]["num_heads"]
    return {**values, **LAYERS[values["architecture"]]}


def num_parameters(preset: str, d_ff: int) -> int:
    """Counted, not allocated."""
    config = ModelConfig(**small_model(preset, d_ff))
    return model_size(config, VOCAB_SIZE, VOCAB_SIZE).parameters


def fitting_d_ff(preset: str, wanted: int) -> int:
    """The d_ff with which the preset comes nearest to `wanted` parameters."""
    return min(range(16, 2049, 16), key=lambda d_ff: abs(num_parameters(preset, d_ff) - wanted))


def train(preset: str, d_ff: int, args: argparse.Namespace, name: str, *overrides: str) -> Path:
    """The run's folder; a run that has its steps is left as it is."""
    model = [f"model.{key}={json.dumps(value)}" for key, value in small_model(preset, d_ff).items()]
    tmt(
        "train", "--config", "multi30k_en_de.yaml", "--runs", str(args.runs), "--resume", "auto", f"name={name}",
        f"data.root={args.data}", "data.test=[]", f"tokenizer.vocab_size={VOCAB_SIZE}", f"model.preset={preset}",
        *model, f"training.max_tokens={args.max_tokens}", "training.lr=0.001",
        f"training.warmup_steps={min(500, args.steps // 2)}", *overrides,
    )  # fmt: skip
    return args.runs / name


def train_in_full(preset: str, d_ff: int, args: argparse.Namespace) -> Path:
    """The run that is judged: all steps, one validation."""
    return train(
        preset, d_ff, args, f"compare_{preset}_{args.steps}", f"training.max_steps={args.steps}",
        f"training.checkpoint_every_steps={args.steps}", f"validation.every_steps={args.steps}",
    )  # fmt: skip


def training_speed(preset: str, d_ff: int, args: argparse.Namespace) -> float:
    """Target tokens a second over two windows of 20 steps, after 20 to warm up."""
    name = f"speed_{preset}"
    shutil.rmtree(args.runs / name, ignore_errors=True)
    run = train(
        preset,
        d_ff,
        args,
        name,
        "training.max_steps=60",
        "training.warmup_steps=20",
        "training.log_every_steps=20",
        "validation.every_steps=60",
        "validation.num_translated=0",
        "validation.metric=nll",
    )
    return statistics.mean(line["tokens_per_second"] for line in metrics(run, "train")[1:])


def evaluated(run: Path) -> dict[str, Any]:
    """Scores and decoding speed of a run's last checkpoint, greedy, on the validation set."""
    tmt("evaluate", "--run", str(run), "--checkpoint", "last", "--split", "validation", "--beam-size", "1")
    (saved,) = (run / "evaluations").glob("*.json")
    return json.loads(saved.read_text(encoding="utf-8"))


def measured(runs: dict[str, Path], d_ffs: dict[str, int], args: argparse.Namespace) -> list[tuple[str, ...]]:
    """The rows of the table. Each round goes through all presets, so that a slow minute is not one preset's alone."""
    training: dict[str, list[float]] = {preset: [] for preset in runs}
    scores: dict[str, list[dict[str, Any]]] = {preset: [] for preset in runs}
    for _ in range(args.rounds):
        for preset, run in runs.items():
            training[preset].append(training_speed(preset, d_ffs[preset], args))
            scores[preset].append(evaluated(run))
    return [
        (
            f"`{preset}`", f"{num_parameters(preset, d_ffs[preset]) / 1e6:.2f} M", f"{taken[0]['nll']:.2f}",
            f"{taken[0]['bleu']:.1f}", f"{statistics.median(training[preset]):,.0f}",
            f"{statistics.median(score['sentences_per_second'] for score in taken):,.0f}",
        )
        for preset, taken in scores.items()
    ]  # fmt: skip


def main() -> None:
    """Parse, train, print."""
    parser = command.Parser(__doc__)
    parser.add_argument("--data", type=command.folder, required=True, help="the folder of Multi30k, raw")
    parser.add_argument("--steps", type=command.count(), default=3000)
    parser.add_argument("--max-tokens", type=command.count(), default=1024, help="of a batch")
    parser.add_argument("--presets", nargs="+", choices=STACKED, default=STACKED)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs go")
    parser.add_argument(
        "--rounds", type=command.count(0), default=3, help="measurements of speed; 0 trains only, prints no table"
    )
    args = parser.parse_args()
    for split in ("train", "val"):
        command.parallel(args.data / f"{split}.en", args.data / f"{split}.de")
    wanted = num_parameters("transformer-base", 512)
    d_ffs = {preset: fitting_d_ff(preset, wanted) for preset in args.presets}
    runs = {preset: train_in_full(preset, d_ffs[preset], args) for preset in args.presets}
    if args.rounds:
        print(as_table(COLUMNS, measured(runs, d_ffs, args)), end="")


if __name__ == "__main__":
    command.run(main)
