"""What `tmt data check` costs: seconds and peak memory, and beside them those of reading the same pairs alone.

    python scripts/bench_data_check.py [--tatoeba DIR] [--pairs 100000 10000000] [--validation 1000]

Pairs are made from the built-in corpus, or from the folder that holds `train.en` and `train.es`: every other one is two
sentences joined, so that all sizes are made alike, and every pair beyond the first has a number that makes it another
one. The first pairs, as many as `--validation` says, with a word more, are a validation. Each side is a process of its
own, on as many cores as torch has. Memory is the peak of all processes together, read every
fifth of a second. Processor seconds are those of all cores, and change less where other work fills these.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench_data import BUILTIN, recombined, texts
from measuring import command
from measuring.peak_memory import peak_memory

READ = """
import sys
from transformer_mt.data.sources.files import read_line_blocks
from pathlib import Path
for name in sys.argv[1:3]:
    for block in read_line_blocks(Path(name)):
        pass
"""
SIDES = {
    "reading alone": (sys.executable, "-c", READ),
    "check": (sys.executable, "-m", "transformer_mt", "data", "check"),
}


def made(pairs: list[tuple[str, str]], number: int) -> Iterator[tuple[str, str]]:
    """So many pairs; a second and later round through the sentences adds its number to both sides."""
    for n, pair in enumerate(itertools.islice(recombined(pairs), number)):
        src, tgt = (f"{text} {n // len(pairs)}" if n >= len(pairs) else text for text in pair)
        yield src, tgt


def write(folder: Path, name: str, pairs: Iterator[tuple[str, str]]) -> list[str]:
    """Two files; their names."""
    names = [str(folder / f"{name}.{side}") for side in ("en", "es")]
    with open(names[0], "w", encoding="utf-8") as src, open(names[1], "w", encoding="utf-8") as tgt:
        for a, b in pairs:
            src.write(a + "\n")
            tgt.write(b + "\n")
    return names


def measured(arguments: list[str]) -> tuple[float, float, int]:
    """Seconds, seconds of all processors, and bytes of a process and those that it begins."""

    def work() -> None:
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)

    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = peak_memory(work, seconds=0.2)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, processor, peak


def main() -> None:
    """Make the pairs, measure both sides, and print a table."""
    parser = command.Parser(__doc__)
    parser.add_argument("--tatoeba", type=command.folder)
    parser.add_argument("--pairs", type=command.count(1000), nargs="+", default=[100_000])
    parser.add_argument("--validation", type=command.count(0), default=1000)
    args: argparse.Namespace = parser.parse_args()
    sentences = texts(BUILTIN if args.tatoeba is None else str(args.tatoeba))
    print("| pairs | side | seconds | processor seconds | peak memory |\n|---|---|---|---|---|", flush=True)
    for number in args.pairs:
        with tempfile.TemporaryDirectory() as name:
            files = write(Path(name), "train", made(sentences, number))
            more = ((f"{a} More.", f"{b} Más.") for a, b in itertools.islice(iter(sentences), args.validation))
            held_out = ["--validation", *write(Path(name), "validation", more)] if args.validation else []
            for side, call in SIDES.items():
                seconds, processor, peak = measured([*call, *files, *(held_out if side == "check" else [])])
                print(f"| {number:,} | {side} | {seconds:.1f} | {processor:.1f} | {peak / 1e6:,.0f} MB |", flush=True)


if __name__ == "__main__":
    command.run(main)
