"""The word aligner: how long it takes, and its alignment error rate on the built-in corpus.

    python scripts/bench_align.py [--src FILE --tgt FILE] [--pairs 100000] [--rounds 1]
        [--run RUN] [--eflomal-python PYTHON]

The pairs are the first of two aligned files, else those of the built-in corpus. Seconds are those of training both
directions at once, from text, and of aligning the same pairs as `tmt align` does; the best of the rounds counts. Loops
are compiled before. The error rate (Och and Ney 2003) is of an aligner trained on the built-in training split, over the
test split, by the links that the tables of its grammar know (scripts/builtin_corpus/links.py): with sure links S,
possible links P and found links A it is 1 - (|A and S| + |A and P|) / (|A| + |S|). `--shown` prints so many pairs with
their wrong and missing links.

With --run, a run on the built-in corpus, the rate of its model's attention comes too, for each layer. With
--eflomal-python, the Python of an environment with `pip install eflomal`, eflomal (Ostling and Tiedemann 2016) aligns
the same pairs, split into the same words in lower case, in both directions; ours symmetrises. It has no model that is
kept, so it trains on the test split too.
"""

import subprocess
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

import torch
from builtin_corpus.links import Links, links
from measuring import command

from transformer_mt.aligning.aligner import Aligner, Pair
from transformer_mt.aligning.alignment import Alignment
from transformer_mt.aligning.find_kernels import compiled_kernels
from transformer_mt.aligning.symmetrisation import SYMMETRISATIONS
from transformer_mt.aligning.words import words_of
from transformer_mt.cli.verbs.align import CHUNK_LINES
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.finishing.attention_alignment import AttentionAligner


def timed(work: Callable[[], object], rounds: int) -> float:
    """The least seconds of the rounds."""
    return min(timeit.repeat(work, "gc.enable()", repeat=rounds, number=1))


def align_all(aligner: Aligner, pairs: list[Pair]) -> None:
    """As `tmt align` does, some at a time."""
    for first in range(0, len(pairs), CHUNK_LINES):
        aligner.align(pairs[first : first + CHUNK_LINES])


def gold_links(alignment: Alignment) -> tuple[Links, Links]:
    """The sure and the possible links of an aligned pair of the built-in corpus."""
    src, tgt = ([word.text.lower() for word in words] for words in (alignment.src_words, alignment.tgt_words))
    return links(src, tgt)


def error_rate(alignments: list[Alignment]) -> tuple[float, float, float]:
    """The alignment error rate over all pairs; the precision by the possible links, and the recall of the sure ones."""
    num_found = num_sure = num_found_sure = num_found_possible = 0
    for alignment in alignments:
        sure, possible = gold_links(alignment)
        found = set(alignment.links)
        num_found, num_sure = num_found + len(found), num_sure + len(sure)
        num_found_sure += len(found & sure)
        num_found_possible += len(found & possible)
    rate = 1 - (num_found_sure + num_found_possible) / (num_found + num_sure)
    return rate, num_found_possible / num_found, num_found_sure / num_sure


def show(alignment: Alignment) -> None:
    """Print a pair with the links that are wrong and those that are missing."""
    sure, possible = gold_links(alignment)
    found = set(alignment.links)
    src, tgt = ([word.text for word in words] for words in (alignment.src_words, alignment.tgt_words))
    print(" ".join(src), "|", " ".join(tgt))
    for name, some in (("wrong", found - possible), ("missing", sure - found)):
        print(f"  {name}:", ", ".join(f"{src[i]}-{tgt[j]}" for i, j in sorted(some)))


def rate_line(name: str, alignments: list[Alignment]) -> str:
    """A name and the numbers of `error_rate`."""
    rate, precision, recall = error_rate(alignments)
    return f"{name}: alignment error rate {rate:.4f}, precision {precision:.4f}, recall {recall:.4f}"


def links_by_eflomal(python: Path, pairs: list[Pair]) -> tuple[list[set[tuple[int, int]]], list[set[tuple[int, int]]]]:
    """The links of each pair in both directions; how long that took is printed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = {"-s": "src", "-t": "tgt", "-f": "forward", "-r": "reverse"}
        for side, file in enumerate(("src", "tgt")):
            lines = (" ".join(word.text.lower() for word in words_of(pair[side])) for pair in pairs)
            (folder / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        options = [part for option, file in names.items() for part in (option, str(folder / file))]
        start = time.perf_counter()
        subprocess.run([python.with_name("eflomal-align"), "--overwrite", *options], check=True)
        print(f"eflomal, {len(pairs):,} pairs in both directions: {time.perf_counter() - start:.1f} s")
        files = ((folder / file).read_text().removesuffix("\n").split("\n") for file in ("forward", "reverse"))
        one, other = (
            [{(int(i), int(j)) for i, j in (link.split("-") for link in line.split())} for line in lines]
            for lines in files
        )
    return one, other


def compare_with_eflomal(python: Path, pairs: list[Pair], builtin: list[Pair], test: list[Pair]) -> None:
    """Its seconds on the pairs, and its error rate on the test split."""
    if pairs != builtin:
        links_by_eflomal(python, pairs)
    words = [(words_of(src), words_of(tgt)) for src, tgt in test]
    one, other = (links[-len(test) :] for links in links_by_eflomal(python, [*builtin, *test]))
    for name, symmetrise in SYMMETRISATIONS.items():
        alignments = [
            Alignment(sorted(symmetrise(*both)), *of_pair) for *both, of_pair in zip(one, other, words, strict=True)
        ]
        print(rate_line(f"eflomal, {name}", alignments))


def main() -> None:
    """Measure and print."""
    parser = command.Parser(__doc__)
    parser.add_argument("--src", type=Path)
    parser.add_argument("--tgt", type=Path)
    parser.add_argument("--pairs", type=command.count(), default=100_000)
    parser.add_argument("--rounds", type=command.count(), default=1)
    parser.add_argument("--shown", type=command.count(0), default=0)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--eflomal-python", type=Path)
    args = parser.parse_args()
    if (args.src is None) != (args.tgt is None):
        raise UserError("--src and --tgt go together. Give both, or neither for the built-in corpus.")
    builtin = builtin_pairs("train")
    pairs = builtin[: args.pairs] if args.src is None else command.parallel(args.src, args.tgt)[: args.pairs]
    compiled_kernels()
    print(f"{len(pairs):,} pairs, {torch.get_num_threads()} threads")
    print(f"training both directions: {timed(lambda: Aligner.train(pairs), args.rounds):.1f} s")
    aligner = Aligner.train(pairs)
    print(f"aligning: {timed(lambda: align_all(aligner, pairs), args.rounds):.1f} s")
    aligner = Aligner.train(builtin)
    test = builtin_pairs("test")
    print(f"tensions {aligner.forward.tension:.1f} and {aligner.backward.tension:.1f}")
    for name in SYMMETRISATIONS:
        print(rate_line(name, aligner.align(test, name)))
    if args.run is not None:
        translator = Translator.load(args.run)
        for layer in range(len(translator.search_model.source_attentions)):
            print(rate_line(f"attention, layer {layer + 1}", AttentionAligner(translator, layer).align(test)))
    if args.eflomal_python is not None:
        compare_with_eflomal(args.eflomal_python, pairs, builtin, test)
    for alignment in aligner.align(test[: args.shown]):
        show(alignment)


if __name__ == "__main__":
    command.run(main)
