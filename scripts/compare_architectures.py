"""Trains the Transformer and recurrent networks at equal parameters on the same pairs, and prints two tables: quality
and speed, and BLEU by the length of the source.

    python scripts/compare_architectures.py [--config quickstart.yaml] [--steps 1200] [--runs runs] [--rounds 3]
        [--smoke]

The Transformer is that of the config. A recurrent network has the width that brings it nearest to its parameters. All
see the same batches for as many steps. Each run is scored on the validation set of the config, greedy. A comparison
that was interrupted goes on where it stopped. Speeds are measured afterwards, the best of --rounds in which all models
take turns: what else the machine does slows all of them alike, so that at least the ratios mean something. --smoke: a
few steps, to see that it runs.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from measuring import command
from measuring.comparing import as_table, least_seconds, tmt

from transformer_mt.api import Evaluated, evaluate
from transformer_mt.config.loading import load_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches.batching import Rows, plan_batches
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.data.preparation import Split, prepare_data
from transformer_mt.decoding.translator import Translator
from transformer_mt.evaluation.evaluate import Row
from transformer_mt.evaluation.metrics import score_texts
from transformer_mt.evaluation.nll import tokens_at_once
from transformer_mt.judging.groups import in_groups
from transformer_mt.machine.device import choose_precision
from transformer_mt.model.model_size import model_size
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.updates import Updater

RECURRENT: dict[str, dict[str, Any]] = {
    "rnn bahdanau": {"cell": "gru", "attention": "bahdanau"},
    "rnn luong": {"cell": "lstm", "attention": "luong_general"},
    "rnn luong, no feeding": {"cell": "lstm", "attention": "luong_general", "input_feeding": False},
}
TIMED = 8  # batches
COLUMNS = ("model", "parameters", "nll", "BLEU", "trained target tokens/s", "translated sentences/s")


def train(name: str, args: argparse.Namespace, *model: str) -> Path:
    """The run's folder; a run that has its steps is left as it is."""
    folder = f"architectures_{name.replace(', ', ' ').replace(' ', '_')}_{args.steps}"
    tmt(
        "train", "--config", args.config, "--runs", str(args.runs), "--resume", "auto", f"name={folder}", *model,
        f"training.max_steps={args.steps}", f"training.warmup_steps={max(1, args.steps // 4)}",
        "training.max_minutes=null", f"training.checkpoint_every_steps={args.steps}",
        f"validation.every_steps={args.steps}", f"training.log_every_steps={max(1, args.steps // 10)}",
    )  # fmt: skip
    return args.runs / folder


def num_parameters(config: RunConfig, vocab_sizes: tuple[int, int]) -> int:
    """Counted, not allocated."""
    return model_size(config.model, *vocab_sizes).parameters


def fitting_keys(rnn: dict[str, Any], config: RunConfig, wanted: int, vocab_sizes: tuple[int, int]) -> list[str]:
    """The overrides that make the config's model a recurrent one, of the even d_model nearest to these parameters."""
    model = config.model
    keys = {"architecture": "rnn", "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": model.dropout,
            "tie_embeddings": model.tie_embeddings, "max_len": model.max_len, "rnn": rnn}  # fmt: skip

    def distance(d_model: int) -> int:
        made = type(model).model_validate({**keys, "d_model": d_model})
        return abs(model_size(made, *vocab_sizes).parameters - wanted)

    return [f"model={json.dumps({**keys, 'd_model': min(range(16, 1025, 2), key=distance)})}"]


def training_speeds(runs: dict[str, Path], rounds: int) -> dict[str, float]:
    """Target tokens a second in updates like those of the trainings, of the finished models, over the same batches."""
    works, num_tokens = [], 0
    for run in runs.values():
        translator = Translator.load(run, "last")
        config = translator.config
        split = prepare_data(config, (translator.src_tokenizer, translator.tgt_tokenizer)).train
        device = next(translator.model.parameters()).device
        precision = choose_precision(config.training.precision, device, config.model.d_model).value
        updater = Updater(translator.model, config.training, config.seed, precision, device)
        batches = plan_batches(split.src_lengths, split.tgt_lengths, tokens_at_once(config), config.seed, 1)[:TIMED]
        num_tokens = int(sum(split.tgt_lengths[rows].sum() for rows in batches))

        def updates(updater: Updater = updater, split: Split = split, batches: list[Rows] = batches) -> None:
            for step, rows in enumerate(batches, start=1):
                updater.update(split, [rows], step, "a timed update").result()

        works.append(updates)
    seconds = least_seconds(works, rounds)
    return {name: num_tokens / least for name, least in zip(runs, seconds, strict=True)}


def evaluated(runs: dict[str, Path], rounds: int) -> dict[str, Evaluated]:
    """Of each run the evaluation that was the fastest of several, in turns."""
    best: dict[str, Evaluated] = {}
    for _ in range(rounds):
        for name, run in runs.items():
            found = evaluate(run, split="validation", checkpoint="last", beam_size=1, save=False, progress=False)
            if name not in best or found.scores.seconds < best[name].scores.seconds:
                best[name] = found
    return best


def by_length(rows: dict[str, list[Row]]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the second table: BLEU of each model in groups of sources of about as many words."""
    some = next(iter(rows.values()))
    lengths = [len(row["src"].split()) for row in some]
    groups = in_groups(lengths)
    ends = [(lengths[group[0]], lengths[group[-1]]) for group in groups]
    heads = ["model", *(f"{low} words" if low == high else f"{low} to {high} words" for low, high in ends)]
    table = []
    for name, of_model in rows.items():
        scores = (
            score_texts([of_model[i]["hypothesis"] for i in group], [of_model[i]["ref"] for i in group]).bleu
            for group in groups
        )
        table.append([name, *(f"{score:.1f}" for score in scores)])
    return heads, table


def main() -> None:
    """Parse, train, print."""
    parser = command.Parser(__doc__)
    parser.add_argument("--config", default="quickstart.yaml", help="of a Transformer; its data and training are all's")
    parser.add_argument("--steps", type=command.count(), default=1200)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs go")
    parser.add_argument("--rounds", type=command.count(), default=3, help="measurements of speed")
    parser.add_argument("--smoke", action="store_true", help="12 steps each, to see that it runs")
    args = parser.parse_args()
    args.steps = 12 if args.smoke else args.steps
    config = load_config(args.config).config
    runs = {"transformer": train("transformer", args)}
    sides = load_tokenizers(RunFolder(runs["transformer"]).tokenizers, config.tokenizer)
    vocab_sizes = sides[0].vocab_size, sides[1].vocab_size
    wanted = num_parameters(config, vocab_sizes)
    for name, rnn in RECURRENT.items():
        runs[name] = train(name, args, *fitting_keys(rnn, config, wanted, vocab_sizes))
    speeds, found = training_speeds(runs, args.rounds), evaluated(runs, args.rounds)
    table = [
        (
            name, f"{num_parameters(load_config(str(run / 'config.yaml')).config, vocab_sizes) / 1e6:.2f} M",
            f"{found[name].scores.nll:.3f}", f"{found[name].scores.bleu:.1f}", f"{speeds[name]:,.0f}",
            f"{found[name].scores.sentences_per_second:,.0f}",
        )
        for name, run in runs.items()
    ]  # fmt: skip
    heads, lengths = by_length({name: one.rows for name, one in found.items()})
    print(as_table(COLUMNS, table), as_table(heads, lengths), sep="\n", end="")


if __name__ == "__main__":
    command.run(main)
