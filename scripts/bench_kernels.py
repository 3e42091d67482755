"""What our own kernels of a training are worth: with all of them, and with each taken out.

    python scripts/bench_kernels.py --data DIR [--d-model 128 256] [--precisions fp32 bf16] [--rounds 2] [--steps 30]
        [--device cuda]

DIR holds `tok/`, the lower-cased, tokenized Multi30k. The model, its batches and the measure are those of
`bench_train.py`. Each side is a process of its own, `tmt train` with a part replaced by the way that is taken without
it: on a CPU a part of `transformer_mt/model/cpu`, which numba compiles; on a GPU one of `transformer_mt/model/gpu`, or
the graphs of passes. The sides take turns, and the median of the rounds counts. A gain is the time of a step without
the part over the time with all of them.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import bench_train
from bench_train import WINDOW, Shape
from measuring import command
from measuring.comparing import BENCH_CONFIG

ATTENTION = "import transformer_mt.model.cpu.attention as a; a.loaded_kernels = lambda: None; "
UNPADDED = "import transformer_mt.model.transformer as t; t.Transformer.goes_unpadded = lambda self: False; "
SEPARATE = "import transformer_mt.model.parts.attention as a; a.MultiHeadAttention._goes_jointly = lambda *x: False; "
ENDS = "import transformer_mt.model.stack as s; s.takes_norm = lambda *x: False; "
RELU = "import transformer_mt.model.parts.feed_forward as f; f.draws_for = lambda x: False; "
LOSS = "import transformer_mt.model.loss as l; l.takes_output = lambda *x: False; "
PASSES = "import transformer_mt.model.cpu.find_kernels as f; f.loaded_kernels = lambda: None; "
# What is put in the place of a part. Without attention's kernels no batch goes without its padding either, and without
# that nothing is captured.
ON_A_CPU = {
    "nothing": "",
    "padding left out (unpadded.py)": UNPADDED,
    "attention (attention_kernels.py, lanes.py) and padding": ATTENTION,
    "dropout and loss (kernels.py)": PASSES,
    "all of numba": "import sys; sys.modules['numba'] = None; "
    "import transformer_mt.machine.numba_modules as n; n.has_numba = lambda: False; ",
}
ON_A_GPU = {
    "nothing": "",
    "graphs (pass_graphs.py)": "import transformer_mt.training.updates as u; u.can_be_captured = lambda *a: False; ",
    "dropout (gpu/dropout.py)": "import transformer_mt.model.parts.dropout as d; d.draws_for = lambda x: False; ",
    "joint products of queries, keys and values (parts/attention.py)": SEPARATE,
    "ends of sublayers (gpu/post_norm.py)": ENDS,
    "relu with dropout (gpu/relu_dropout.py)": RELU,
    "output and loss (gpu/output_loss.py)": LOSS,
    "attention (gpu/attention.py), padding and graphs": UNPADDED,
}
START = "from transformer_mt.cli.main import main; main()"


def measured(data: Path, shape: Shape, precision: str, steps: int, device: str, patch: str) -> tuple[float, int]:
    """Target tokens a second and peak memory in bytes of ours, with a part replaced."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        overrides = bench_train.overrides_of(data, shape, precision, steps, folder)
        arguments = [sys.executable, "-c", patch + START, "train", "--config", BENCH_CONFIG, *overrides]
        arguments.append(f"training.device={device}")
        _, memory = bench_train.run_measured(arguments, folder)
        return bench_train.windows_of(folder, precision)[0], memory


def main() -> None:
    """Parse, measure in turn, print."""
    parser = command.Parser(__doc__)
    parser.add_argument("--data", type=command.folder, required=True, help="the folder that holds tok/")
    parser.add_argument("--d-model", type=command.count(), nargs="+", default=[128, 256])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--steps", type=command.count(WINDOW), default=30)
    parser.add_argument("--rounds", type=command.count(), default=2)
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cpu", help="on a GPU give some 400 steps: it prepares for 200"
    )
    parser.add_argument("--smoke", action="store_true", help="a few steps, once: whether it runs")
    args = parser.parse_args()
    if args.smoke:
        args.d_model, args.precisions, args.steps, args.rounds = [64], ["fp32"], WINDOW, 1
    print(
        "| taken out | d_model | precision | target tokens/s | gain of having it | peak memory |\n" + 6 * "|---" + "|"
    )
    sides = ON_A_CPU if args.device == "cpu" else ON_A_GPU
    for d_model in args.d_model:
        for precision in args.precisions:
            found: dict[str, list[tuple[float, int]]] = {name: [] for name in sides}
            for _ in range(args.rounds):
                for name, patch in sides.items():
                    shape = Shape(d_model, 4 * d_model)
                    found[name].append(measured(args.data, shape, precision, args.steps, args.device, patch))
            for name, rounds in found.items():
                speed, memory = (statistics.median(values) for values in zip(*rounds, strict=True))
                gain = statistics.median(speed for speed, _ in found["nothing"]) / speed
                print(
                    f"| {name} | {d_model} | {precision} | {speed:,.0f} | {gain:.2f} | {memory / 2**20:,.0f} MiB |",
                    flush=True,
                )


if __name__ == "__main__":
    command.run(main)
