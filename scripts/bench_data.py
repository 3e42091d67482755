"""What data costs as it grows: reading, tokenizing, the first batch of a first and of a second start, and every batch.

    python scripts/bench_data.py --pairs 10000 100000 1000000 [--tatoeba DIR] [--tokenizers word bpe]

Pairs are made from the built-in corpus and, with `--tatoeba`, from the folder that holds `train.en` and `train.es`.
Every second pair is one of these, and every other is two of them joined to one sentence, so that all sizes are made
alike. Each start is a process of its own that prepares the data as `tmt train` does; the cache is empty in the first
and full in the second (and in the memory of the system, as far as that has room). No model is built.

A start is timed from the beginning of the process to the first batch, imports included. In brackets stand the
processor's seconds of all processes that tokenize, which other work on the machine does not change. Tokenizing is
sentences a second, both sides counted. Memory is the peak of all processes together, read every fifth of a second. In
brackets stands the first process's own memory when the batches are made; pages of mapped files count in the peak alone,
and can be dropped at any time. The time of a batch is processor time: its share of planning the epoch, plus making its
tensors at 4,096 padded tokens, as the mean of a whole epoch (of several epochs where one has few batches). The lines
above the table say how much each figure grew from the size before.
"""

import argparse
import itertools
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measuring import command
from measuring.peak_memory import peak_memory

from transformer_mt.errors import UserError

BUILTIN = "built-in"
LANGUAGES = ("en", "es")
MAX_TOKENS = 4096
NUM_MADE = 300  # batches at least
NUM_VALIDATION = 500
LEAST = 100  # pairs: in fewer hardly a word comes twice
HEADINGS = ("pairs", "batches", "sentences/s", "first start", "second start", "memory of the first",
            "memory of the second", "a batch")  # fmt: skip
NAMES = {"tokenizing": "sentences/s"}
STEP = 7919  # a prime: the partners of a sentence come from all over the corpus


def texts(corpus: str) -> list[tuple[str, str]]:
    """All training pairs of the built-in corpus, or of the folder."""
    if corpus == BUILTIN:
        from transformer_mt.data.builtin import builtin_pairs

        return builtin_pairs("train")
    src, tgt = (Path(corpus) / f"train.{language}" for language in LANGUAGES)
    pairs = [pair for pair in command.parallel(src, tgt) if all(map(str.strip, pair))]
    if not pairs:
        raise UserError(f"{src} and {tgt} have blank lines alone. Give files with text.")
    return pairs


def recombined(pairs: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Without end: a pair as it is, then one joined with another, and so on; no joined one comes twice for long."""
    size = len(pairs)
    for i in itertools.count():
        src, tgt = pairs[i % size]
        if i % 2:
            other_src, other_tgt = pairs[(i // size + STEP * i) % size]
            src, tgt = f"{src} {other_src}", f"{tgt} {other_tgt}"
        yield src, tgt


def write_corpus(folder: Path, corpus: str, number: int) -> None:
    """`train.en` and `train.es` of so many pairs, `valid.en` and `valid.es` of a few of them."""
    pairs = texts(corpus)
    for split, size in (("train", number), ("valid", min(number, NUM_VALIDATION))):
        src_path, tgt_path = (folder / f"{split}.{language}" for language in LANGUAGES)
        with src_path.open("w", encoding="utf-8") as src_file, tgt_path.open("w", encoding="utf-8") as tgt_file:
            for src, tgt in itertools.islice(recombined(pairs), size):
                src_file.write(src + "\n")
                tgt_file.write(tgt + "\n")


def config_of(folder: Path, tokenizer: str) -> dict[str, Any]:
    """A config as YAML would give it."""
    return {
        "name": "bench", "seed": 1,
        "data": {
            "src_lang": "en", "tgt_lang": "es", "root": str(folder), "cache_dir": str(folder / "cache"),
            "train": [{"src": "train.en", "tgt": "train.es"}],
            "validation": [{"src": "valid.en", "tgt": "valid.es"}],
        },
        "tokenizer": {"kind": tokenizer, "vocab_size": 8000, "joint": tokenizer != "word"},
        "model": {"max_len": 256},
        "training": {"max_tokens": MAX_TOKENS, "max_steps": 1},
    }  # fmt: skip


def own_memory() -> int:
    """Bytes of this process that are no mapped file; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").split("\n")
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def processor_seconds() -> float:
    """What this process took, and those that it began and that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


def start(mapping: dict[str, Any], began: float) -> dict[str, float]:
    """One start, measured: this is what the child process runs."""
    from transformer_mt.config.loading import parse_run_config
    from transformer_mt.data import preparation
    from transformer_mt.data.batches.batching import plan_batches

    spent: dict[str, float] = {}

    def timed(name: str) -> None:
        work: Callable[..., Any] = getattr(preparation, name)

        def measured(*arguments: Any) -> Any:
            begin = time.perf_counter()
            result = work(*arguments)
            spent.setdefault(name, time.perf_counter() - begin)  # the training split comes first
            return result

        setattr(preparation, name, measured)

    timed("encode_corpus")
    config = parse_run_config(mapping, "bench")
    found: dict[str, Any] = {}

    def work() -> None:
        train = preparation.prepare_data(config).train
        lengths = train.src_lengths, train.tgt_lengths  # found once a start, not once an epoch
        begin = time.process_time()
        plan = plan_batches(*lengths, MAX_TOKENS, config.seed, 0)
        planned = time.process_time() - begin
        train.batch(plan[0])
        found.update(first_batch=time.time() - began, first_batch_cpu=processor_seconds())
        chosen = plan * math.ceil(NUM_MADE / len(plan))
        begin = time.process_time()
        for rows in chosen:
            train.batch(rows)
        made = time.process_time() - begin
        found.update(num_pairs=len(train), num_batches=len(plan), own_memory=own_memory())
        found.update(planning=planned / len(plan), making=made / len(chosen))

    peak = peak_memory(work, seconds=0.2)
    return {**found, "peak_memory": peak, "tokenizing": spent["encode_corpus"]}


def measured_start(mapping: dict[str, Any]) -> dict[str, float]:
    """`start` in a process of its own. A failure, of which that has told, ends the benchmark."""
    arguments = [sys.executable, __file__, "--child", json.dumps(mapping), "--began", str(time.time())]
    process = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        sys.exit(process.returncode)
    return json.loads(process.stdout.split("\n")[-2])


def measure(corpus: str, tokenizer: str, number: int) -> dict[str, float]:
    """The text written, a first and a second start; what the table needs of both."""
    with tempfile.TemporaryDirectory() as place:
        write_corpus(Path(place), corpus, number)
        mapping = config_of(Path(place), tokenizer)
        first, second = measured_start(mapping), measured_start(mapping)
    assert first["num_batches"] == second["num_batches"]
    return {
        "pairs": second["num_pairs"], "batches": second["num_batches"],
        "tokenizing": 2 * first["num_pairs"] / first["tokenizing"],
        "first start": first["first_batch"], "first processor": first["first_batch_cpu"],
        "second start": second["first_batch"], "second processor": second["first_batch_cpu"],
        "first memory": first["peak_memory"], "first own": first["own_memory"],
        "second memory": second["peak_memory"], "second own": second["own_memory"],
        "planning": 1e6 * second["planning"], "making": 1e6 * second["making"],
        "batch": 1e6 * (second["planning"] + second["making"]),
    }  # fmt: skip


def as_row(name: str, row: dict[str, float]) -> str:
    """One of the markdown table."""
    mib = {key: f"{row[key] / 2**20:,.0f}" for key in ("first memory", "first own", "second memory", "second own")}
    return (
        f"| {name} | {row['pairs']:,.0f} | {row['batches']:,.0f} | {row['tokenizing']:,.0f} "
        f"| {row['first start']:,.1f} ({row['first processor']:,.1f}) s "
        f"| {row['second start']:,.1f} ({row['second processor']:,.1f}) s "
        f"| {mib['first memory']} ({mib['first own']}) MiB | {mib['second memory']} ({mib['second own']}) MiB "
        f"| {row['planning']:,.0f} + {row['making']:,.0f} = {row['batch']:,.0f} µs |"
    )


def growth(name: str, before: dict[str, float], row: dict[str, float]) -> str:
    """How much more each is than at the size before: of sentences/s more is better."""
    keys = ("tokenizing", "first start", "first processor", "second start", "second processor", "first memory",
            "second memory", "batch")  # fmt: skip
    ratios = ", ".join(f"{NAMES.get(key, key)} {row[key] / before[key]:.2f} x" for key in keys)
    sizes = [before["pairs"], row["pairs"]]
    return f"{name}, {sizes[0]:,.0f} -> {sizes[1]:,.0f} pairs ({sizes[1] / sizes[0]:.1f} x): {ratios}"


def main() -> None:
    """Parse, measure, print; each row also on standard error as soon as it is there."""
    parser = command.Parser(__doc__)
    parser.add_argument("--pairs", type=command.count(LEAST), nargs="+")
    parser.add_argument("--tatoeba", type=command.folder, help="a folder with train.en and train.es, measured too")
    parser.add_argument("--tokenizers", nargs="+", default=["word", "bpe"], choices=["word", "bpe", "unigram"])
    parser.add_argument("--smoke", action="store_true", help="two small sizes: whether it runs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(start(json.loads(args.child), args.began)))
        return
    command.fill(args, {"pairs": [300, 1200] if args.smoke else [10**4, 10**5, 10**6, 10**7]})
    corpora = [BUILTIN]
    if args.tatoeba:
        corpora.append(str(args.tatoeba.resolve()))
        texts(corpora[-1])  # now, not after the built-in corpus
    rows, ratios = [], []
    for corpus in corpora:
        for tokenizer in args.tokenizers:
            name = f"{Path(corpus).name}, {tokenizer}"
            before = None
            for number in args.pairs:
                row = measure(corpus, tokenizer, number)
                rows.append(as_row(name, row))
                print(rows[-1], file=sys.stderr, flush=True)
                ratios += [growth(name, before, row)] if before else []
                before = row
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if ratios:
        print("\n".join(ratios) + "\n")
    print(f"{cores} cores\n")
    print(" | ".join(("| text, tokenizer", *HEADINGS)) + " |\n" + "|---" * (1 + len(HEADINGS)) + "|")
    print("\n".join(rows))


if __name__ == "__main__":
    command.run(main)
