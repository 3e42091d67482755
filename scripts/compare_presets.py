"""Trains every preset at one small size on Multi30k and prints the table of README: quality and speed side by side.

    python scripts/compare_presets.py --data FOLDER [--steps 3000] [--presets llama modern] [--output FILE]

FOLDER holds train.en, train.de, val.en and val.de. All models have the width, the heads and the number of layers of the
first one and one tied table of embeddings; their d_ff is what makes their parameters equal (so transformer-big differs
from transformer-base in its dropout alone). Same pairs, same batches,
same steps. A comparison that was interrupted goes on where it stopped. Timings are of this machine at this time: the
presets are trained one after another, so let nothing else run.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from transformer_mt.config.presets import MODELS
from transformer_mt.config.schema import ModelConfig
from transformer_mt.model.architectures import ARCHITECTURES

VOCAB_SIZE = 8000
SIZE = {"d_model": 128, "num_heads": 4, "max_len": 256, "tie_embeddings": "all"}
LAYERS = {
    "encoder_decoder": {"num_encoder_layers": 4, "num_decoder_layers": 4},
    "decoder_only": {"num_encoder_layers": 0, "num_decoder_layers": 8},
}
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
    with torch.device("meta"):
        model = ARCHITECTURES[config.architecture](config, VOCAB_SIZE, VOCAB_SIZE)
    return sum(parameter.numel() for parameter in model.parameters())


def fitting_d_ff(preset: str, wanted: int) -> int:
    """The d_ff with which the preset comes nearest to `wanted` parameters."""
    return min(range(16, 2049, 16), key=lambda d_ff: abs(num_parameters(preset, d_ff) - wanted))


def tmt(*arguments: str) -> None:
    """`tmt`, its messages on standard error; a failure ends the comparison."""
    print("tmt", *arguments, file=sys.stderr, flush=True)
    status = subprocess.run([sys.executable, "-m", "transformer_mt", *arguments], stdout=sys.stderr).returncode
    if status:
        sys.exit(status)


def train_and_score(preset: str, d_ff: int, args: argparse.Namespace) -> tuple[str, ...]:
    """One row of the table."""
    run = args.runs / f"compare_{preset}_{args.steps}"
    model = [f"model.{key}={json.dumps(value)}" for key, value in small_model(preset, d_ff).items()]
    tmt(
        "train", "--config", "multi30k_en_de.yaml", "--runs", str(args.runs), "--resume", "auto", f"name={run.name}",
        f"data.root={args.data}", "data.test=[]", f"tokenizer.vocab_size={VOCAB_SIZE}", f"model.preset={preset}",
        *model, f"training.max_tokens={args.max_tokens}", f"training.max_steps={args.steps}",
        f"training.warmup_steps={min(500, args.steps // 2)}", f"training.checkpoint_every_steps={args.steps}",
        f"training.log_every_steps={min(20, args.steps)}", f"validation.every_steps={args.steps}",
    )  # fmt: skip
    tmt("evaluate", "--run", str(run), "--checkpoint", "last", "--split", "validation", "--beam-size", "1")
    (saved,) = (run / "evaluations").glob("*.json")
    scores = json.loads(saved.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    speed = statistics.median(line["tokens_per_second"] for line in lines if line["kind"] == "train")
    return (
        f"`{preset}`", f"{num_parameters(preset, d_ff) / 1e6:.2f} M", f"{scores['nll']:.2f}", f"{scores['bleu']:.1f}",
        f"{speed:,.0f}", f"{scores['sentences_per_second']:,.0f}",
    )  # fmt: skip


def as_table(rows: list[tuple[str, ...]]) -> str:
    """Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    """Parse, train, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of Multi30k, raw")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--max-tokens", type=int, default=1024, help="of a batch")
    parser.add_argument("--presets", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs go")
    parser.add_argument("--output", type=Path, help="also write the table here")
    args = parser.parse_args()
    wanted = num_parameters("transformer-base", 512)
    rows = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for preset in args.presets:
        rows.append(train_and_score(preset, fitting_d_ff(preset, wanted), args))
        if args.output is not None:
            args.output.write_text(as_table(rows), encoding="utf-8")
    print(as_table(rows), end="")


if __name__ == "__main__":
    main()
