"""What going on from a model gives on a domain of few pairs, and what it costs elsewhere.

    python scripts/domain_adaptation.py --src FILE --tgt FILE --like FILE [--pairs 3000] [--seeds 1 2 3]
        [--steps 6000] [--adapting-steps 500] [--d-model 128] [--work DIR]

The pairs are those of the first two files. The domain is what is most like the text of --like, which needs no
translations: the sources with the largest difference of cross-entropies (Moore and Lewis 2010), here by words and pairs
of neighbours. All pairs of a source belong to one side. Of the domain and of the rest 500 pairs are kept as validation
and 500 as test, and no line of these stands in what is trained on.

Models of one shape learn: the rest; the domain alone; the domain, from the model of the rest (`training.init_from`);
both from there, half of each batch (`weight`); and then the rest again, from the model of the domain. Printed is BLEU
with a beam of 5 on both tests, mean and deviation over the seeds. What was trained stays in --work, and the same
command goes on from there.
"""

import argparse
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import regex
from measuring import command
from measuring.comparing import as_table, spread, trained
from pretraining_gain import key

from transformer_mt.api import evaluate
from transformer_mt.errors import UserError

Pair = tuple[str, str]
HELD_OUT = 500
FEWEST_WORDS = 4  # of a source of the domain: those of two or three words are like anything
DOMAINS = ("rest", "domain")
COLUMNS = ["model", "first", *(f"test BLEU, {domain}" for domain in DOMAINS)]


def ngrams(line: str) -> list[tuple[str, ...]]:
    """Words and pairs of neighbours, case apart."""
    words = regex.findall(r"\p{L}[\p{L}\p{M}']*|\p{N}+|[^\p{L}\p{N}\s]", line.lower())
    return [*((word,) for word in words), *pairwise(["", *words, ""])]


def likeness(lines: Iterable[str], like: Iterable[str]) -> dict[str, float]:
    """Of each line: the mean over its n-grams of how much likelier they are in `like` than in all lines."""
    lines = list(lines)
    counts = [Counter(chain.from_iterable(map(ngrams, text))) for text in (lines, like)]
    sums = [Counter() for _ in counts]
    for count, of_size in zip(counts, sums, strict=True):
        for ngram, number in count.items():
            of_size[len(ngram)] += number
    sizes = Counter(len(ngram) for ngram in counts[0].keys() | counts[1].keys())

    def log_prob(which: int, ngram: tuple[str, ...]) -> float:
        size = len(ngram)
        return math.log((counts[which][ngram] + 1) / (sums[which][size] + sizes[size]))

    def of(line: str) -> float:
        found = ngrams(line)
        return sum(log_prob(1, ngram) - log_prob(0, ngram) for ngram in found) / len(found)

    return {line: of(line) for line in lines if len(line.split()) >= FEWEST_WORDS}


def parted(pairs: list[Pair], like: list[str], num_pairs: int) -> dict[str, list[Pair]]:
    """The pairs of each domain's train, validation and test, by file names. UserError where there are too few."""
    by_source: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_source[key(pair[0])].append(pair)
    liked = likeness(by_source, like)
    order = sorted(liked, key=lambda line: (-liked[line], line))
    domain: set[str] = set()
    while order and sum(len(by_source[line]) for line in domain) < num_pairs + 2 * HELD_OUT:
        domain.add(order.pop(0))
    files: dict[str, list[Pair]] = {}
    for name, sources in zip(DOMAINS, (by_source.keys() - domain, domain), strict=True):
        found = [pair for line in sorted(sources) for pair in sorted(by_source[line])]
        if len(found) < 4 * HELD_OUT:
            raise UserError(f"There are {len(found):,} pairs for the {name}, and {4 * HELD_OUT:,} are needed.")
        random.Random(1).shuffle(found)
        files[f"{name}.validation"], files[f"{name}.test"] = found[:HELD_OUT], found[HELD_OUT : 2 * HELD_OUT]
        files[f"{name}.train"] = found[2 * HELD_OUT :]
    held = {key(line) for name, part in files.items() if not name.endswith(".train") for pair in part for line in pair}
    for name in DOMAINS:
        train = files[f"{name}.train"]
        files[f"{name}.train"] = [pair for pair in train if not held.intersection(map(key, pair))]
    return files


def write_data(args: argparse.Namespace) -> None:
    """The files of every training, in a folder of --work; says how many pairs there are, and which are like."""
    files = parted(command.parallel(args.src, args.tgt), command.lines_of(args.like), args.pairs)
    folder = args.work / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in files.items():
        for language, side in zip(("src", "tgt"), zip(*part, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    print("; ".join(f"{name}: {len(part):,} pairs" for name, part in files.items()))
    print("domain:", " | ".join(src for src, _ in files["domain.test"][:5]))
    print("rest:", " | ".join(src for src, _ in files["rest.test"][:5]), flush=True)


def config_of(args: argparse.Namespace, seed: int, domains: list[str], first: str | None) -> dict[str, Any]:
    """The config that learns these domains, from random weights or from those of another run of the seed."""
    weight = {"weight": 1} if len(domains) > 1 else {}
    training: dict[str, Any] = {"max_tokens": 2048, "max_steps": args.steps, "lr": 0.002}
    training["warmup_steps"] = max(1, min(500, args.steps // 5))
    if domains == ["domain"]:
        training["max_steps"] = max(1, args.steps // 3)  # so few pairs are soon known by heart
    if first is not None:
        training |= {"schedule": "constant", "lr": 0.0002, "warmup_steps": max(1, min(100, args.adapting_steps // 5))}
        training |= {"max_steps": args.adapting_steps, "init_from": str(args.work / f"{first}_seed_{seed}")}
    steps = training["max_steps"]
    return {
        "extends": "tatoeba_en_es.yaml",
        "seed": seed,
        "data": {
            "root": str(args.work / "data"),
            "cache_dir": str(args.work / "cache"),
            "train": [{"src": f"{name}.train.src", "tgt": f"{name}.train.tgt", **weight} for name in domains],
            "validation": [{"src": f"{domains[-1]}.validation.src", "tgt": f"{domains[-1]}.validation.tgt"}],
        },
        "model": {"d_model": args.d_model, "d_ff": 4 * args.d_model, "num_heads": 4, "dropout": 0.2},
        "training": {**training, "checkpoint_every_steps": max(1, steps // 10), "keep_checkpoints": 1},
        "validation": {"every_steps": max(1, steps // 5), "metric": "nll", "patience": None},
    }


def bleu(args: argparse.Namespace, run: Path, domain: str) -> float:
    """Of the best checkpoint on a domain's test."""
    src, ref = (args.work / "data" / f"{domain}.test.{side}" for side in ("src", "tgt"))
    return evaluate([run], src=src, ref=ref, save=False, beam_size=5).scores.bleu


def main() -> None:
    """Parse, part the pairs, train all, print the table."""
    parser = command.Parser(__doc__)
    for name in ("--src", "--tgt", "--like"):
        parser.add_argument(name, type=command.file, required=True)
    parser.add_argument("--pairs", type=command.count(), default=3000, help="of the domain, to train on")
    parser.add_argument("--seeds", nargs="+", type=command.count(0), default=[1, 2, 3])
    parser.add_argument("--steps", type=command.count(), default=6000)
    parser.add_argument("--adapting-steps", type=command.count(), default=500)
    parser.add_argument("--d-model", type=command.count(), default=128)
    parser.add_argument("--work", type=Path, default=Path("runs/domain_adaptation"))
    args = parser.parse_args()
    args.work = args.work.resolve()
    write_data(args)
    models: list[tuple[str, list[str], str | None]] = [
        ("rest", ["rest"], None),
        ("domain", ["domain"], None),
        ("adapted", ["domain"], "rest"),
        ("mixed", ["rest", "domain"], "rest"),
        ("back", ["rest"], "adapted"),
    ]
    table = []
    for name, domains, first in models:
        runs = [trained(args.work, f"{name}_seed_{s}", config_of(args, s, domains, first)) for s in args.seeds]
        scores = [spread([bleu(args, run, domain) for run in runs], 1) for domain in DOMAINS]
        table.append([f"{name}: {' and '.join(domains)}", first or "", *scores])
        print(as_table(COLUMNS, table), flush=True)


if __name__ == "__main__":
    command.run(main)
