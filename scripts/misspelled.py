"""BLEU where letters of the source are swapped: of a model that reads pictures, beside models of words and of pieces.

    python scripts/misspelled.py [--runs runs] [--sentences 500] [--smoke] [RUN …]

Each RUN is the folder of a trained run on the built-in corpus. Without one, three are trained into --runs, each by its
own config: pictures.yaml, quickstart.yaml (words), and quickstart.yaml with 2,000 pieces by BPE; a training that was
interrupted goes on where it stopped. In the sources of the built-in test split, neighbouring letters of a word change
places, until so many per cent of the letters stand elsewhere. No letter moves twice, and the first and the last of a
word may move. The same letters are swapped for every run. --smoke: a few steps, to see that it runs.
"""

import argparse
import random
from pathlib import Path

from measuring import command
from measuring.comparing import as_table, tmt

from transformer_mt import Translator
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.corpus import load_corpus
from transformer_mt.evaluation.metrics import score_texts

SHARES = (0.0, 0.1, 0.2)
SEED = 28
TRAINED: dict[str, list[str]] = {
    "pictures": ["--config", "pictures.yaml"],
    "words": ["--config", "quickstart.yaml"],
    "pieces": ["--config", "quickstart.yaml", "tokenizer.kind=bpe", "tokenizer.vocab_size=2000"],
}


def swapped(text: str, share: float, seed: int) -> str:
    """The text in which about this share of all letters stands one place from where it stood."""
    dice, letters, place = random.Random(seed), list(text), 0
    while place + 1 < len(letters):
        # A swap by the probability q moves two letters, and skips a place: of all letters 2 q / (1 + q) move.
        if letters[place].isalpha() and letters[place + 1].isalpha() and dice.random() < share / (2 - share):
            letters[place], letters[place + 1] = letters[place + 1], letters[place]
            place += 1
        place += 1
    return "".join(letters)


def trained(args: argparse.Namespace) -> list[Path]:
    """The folders of the three runs."""
    few = ["training.max_steps=4", "validation.every_steps=4", "validation.num_translated=4"] if args.smoke else []
    for name, settings in TRAINED.items():
        tmt("train", "--runs", str(args.runs), "--resume", "auto", *settings, f"name=misspelled_{name}", *few)
    return [args.runs / f"misspelled_{name}" for name in TRAINED]


def row(run: Path, texts: list[list[str]], references: list[str]) -> list[str]:
    """Name, and BLEU under each share."""
    translator = Translator.load(run)
    scores = [score_texts(translator.translate(some), references, "13a").bleu for some in texts]
    return [run.name, *(f"{score:.1f}" for score in scores)]


def main() -> None:
    parser = command.Parser(__doc__)
    parser.add_argument("run", nargs="*", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--sentences", type=command.count(), default=500)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    runs = args.run or trained(args)
    data = Translator.load(runs[0]).config.data
    number = 8 if args.smoke else args.sentences
    pairs = list(load_corpus([SourceConfig(builtin="en-es", split="test")], data))[:number]
    texts = [[swapped(src, share, SEED + number) for number, (src, _) in enumerate(pairs)] for share in SHARES]
    rows = [row(run, texts, [tgt for _, tgt in pairs]) for run in runs]
    print(as_table(("run", *(f"BLEU, {share:.0%} swapped" for share in SHARES)), rows))


if __name__ == "__main__":
    command.run(main)
