"""What pre-training on text in one language gives a model of few pairs.

    python scripts/pretraining_gain.py --src FILE --tgt FILE --valid-src FILE --valid-tgt FILE [--pairs 5000]
        [--seeds 1 2 3] [--kinds infilling spans] [--steps 2000] [--pretraining-steps 5000]

Of the pairs of the first two files some are kept, drawn by a seed. Of the others only the text is, each side by itself:
a source and its translation never meet. Lines that stand in the validation files are taken out of both. Every second
pair of the validation files is the validation, by which the checkpoint is chosen, and the rest is the test.

A model learns the pairs alone, with a tokenizer learned of them. For each kind of `data.noise` another model of the
same shape learns both sides' text first, once, and then the pairs. Printed is BLEU with a beam of 5, the mean over
seeds with its deviation, and the minutes. What was trained stays in --work, and the same command goes on from there.
"""

import argparse
import random
import unicodedata
from pathlib import Path
from typing import Any

from measuring import command
from measuring.comparing import as_table, metrics, spread, trained

from transformer_mt.api import evaluate
from transformer_mt.config.sections.noise import NOISES

LANGUAGES = ("src", "tgt")
TAGS = ("<2src>", "<2tgt>")
SPLITS = ("validation", "test")


def key(line: str) -> str:
    """Equal for lines that differ in case, spaces and the composition of letters alone."""
    return " ".join(unicodedata.normalize("NFC", line).lower().split())


def write_data(args: argparse.Namespace) -> Path:
    """The files of every training, in a folder of --work."""
    folder = args.work / "data"
    folder.mkdir(parents=True, exist_ok=True)
    valid = command.parallel(args.valid_src, args.valid_tgt)
    seen = {key(line) for pair in valid for line in pair}
    pairs = [pair for pair in command.parallel(args.src, args.tgt) if not seen.intersection(map(key, pair))]
    random.Random(0).shuffle(pairs)
    parts = {"pairs": pairs[: args.pairs], "text": pairs[args.pairs :], "validation": valid[::2], "test": valid[1::2]}
    for name, part in parts.items():
        for language, side in zip(LANGUAGES, zip(*part, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return folder


def base(args: argparse.Namespace, data: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    """A config; `sections` are merged into it."""
    steps = {"max_tokens": 2048, "checkpoint_every_steps": 500, "keep_checkpoints": 1}
    config: dict[str, Any] = {
        "extends": "tatoeba_en_es.yaml",
        "data": {"root": str(args.work / "data"), "cache_dir": str(args.work / "cache"), "test": [], **data},
        "tokenizer": {"kind": "bpe", "joint": True, "vocab_size": args.vocab_size},
        "model": {"d_model": args.d_model, "d_ff": 4 * args.d_model, "num_heads": 4, "dropout": 0.2},
        "training": {"schedule": "cosine", "lr": 0.001, "warmup_steps": max(1, min(400, args.steps // 5)), **steps},
    }
    for name, section in sections.items():
        config.setdefault(name, {}).update(section)
    return config


def of_pairs(args: argparse.Namespace, kind: str | None) -> dict[str, Any]:
    """The config that learns the pairs, alone or after pre-training of a kind."""
    tag = {} if kind is None else {"tag": TAGS[1]}
    data = {
        split: [{"src": f"{name}.src", "tgt": f"{name}.tgt", **tag}]
        for split, name in (("train", "pairs"), ("validation", "validation"), ("test", "test"))
    }
    every = {"every_steps": max(1, args.steps // 10), "num_translated": 500, "patience": None}
    training: dict[str, Any] = {"max_steps": args.steps}
    tokenizer: dict[str, Any] = {"vocab_size": args.vocab_size_of_pairs}
    model = {"dropout": 0.3}
    if kind is not None:
        training["init_from"] = str(args.work / f"text_{kind}")
        tokenizer = {"tags": list(TAGS)}
    return base(args, data, training=training, tokenizer=tokenizer, model=model, validation=every)


def of_text(args: argparse.Namespace, kind: str) -> dict[str, Any]:
    """The config that learns both sides' text."""
    data: dict[str, Any] = {
        split: [{"mono": f"{name}.{language}", "tag": tag} for language, tag in zip(LANGUAGES, TAGS, strict=True)]
        for split, name in (("train", "text"), ("validation", "validation"))
    }
    data["noise"] = {"kind": kind}
    every = {"every_steps": max(1, args.pretraining_steps // 5), "metric": "nll", "patience": None}
    training = {"max_steps": args.pretraining_steps}
    return base(args, data, training=training, tokenizer={"tags": list(TAGS), "masks": 100}, validation=every)


def minutes(run: Path) -> float:
    """Of a training, up to its last validation."""
    return metrics(run, "validation")[-1]["elapsed_seconds"] / 60


def main() -> None:
    """Parse, train all, print the table."""
    parser = command.Parser(__doc__)
    for name in ("--src", "--tgt", "--valid-src", "--valid-tgt"):
        parser.add_argument(name, type=command.file, required=True)
    parser.add_argument("--pairs", type=command.count(), default=5000)
    parser.add_argument("--seeds", nargs="+", type=command.count(0), default=[1, 2, 3])
    parser.add_argument("--kinds", nargs="+", choices=list(NOISES), default=["infilling"])
    parser.add_argument("--steps", type=command.count(), default=2000)
    parser.add_argument("--pretraining-steps", type=command.count(), default=5000)
    parser.add_argument("--d-model", type=command.count(), default=256)
    parser.add_argument("--vocab-size", type=command.count(), default=8000)
    parser.add_argument("--vocab-size-of-pairs", type=command.count(), default=2000, help="without pre-training")
    parser.add_argument("--work", type=Path, default=Path("runs/pretraining_gain"))
    args = parser.parse_args()
    args.work = args.work.resolve()
    write_data(args)
    table = []
    for kind in (None, *args.kinds):
        before = 0.0
        if kind is not None:
            before = minutes(trained(args.work, f"text_{kind}", {"seed": 1, **of_text(args, kind)}, "pretrain"))
        found = [
            trained(args.work, f"pairs_{kind}_seed_{seed}", {"seed": seed, **of_pairs(args, kind)})
            for seed in args.seeds
        ]
        scores = [
            spread([evaluate([run], split=split, save=False, beam_size=5).scores.bleu for run in found])
            for split in SPLITS
        ]
        table.append([kind or "pairs alone", *scores, f"{before:.0f}", spread(list(map(minutes, found)), 0)])
        print(
            as_table(["first", *(f"{split} BLEU" for split in SPLITS), "minutes first", "minutes"], table), flush=True
        )


if __name__ == "__main__":
    command.run(main)
