"""The built-in English-Spanish corpus: 25,000 sentence pairs, shipped as files.

A grammar in scripts/builtin_corpus made them; `python scripts/write_builtin_corpus.py` writes the files again.
One English sentence has one Spanish translation, and no two splits share a sentence on either side.
"""

import lzma
from pathlib import Path

from transformer_mt.config.sections.section import SPLITS

# These identify the corpus to cache entries and runs. They are the hashes of the grammar's files from the time when the
# grammar was part of the package, so that runs of that time go on. Whoever changes a single pair must replace them.
IDENTITY = (
    "5275cfe652d602cfb81c816a1aca3bbf0c97db30",
    "3d3d87cb5220b4b0c2e564209668150202dc30b9",
    "5d0aacfc1141e0150661ea3521f39e40453dcf10",
    "f127bce97be08e461dbe32b4fad69ed7a2499a9c",
    "62c10217d6f25148d70277950a5fc10d6f188ccb",
    "80c3340090f6229a93d430c4b4645dfa98a26138",
    "bf6114665077a7dbe953e0345cae777e5c86ae59",
    "b0165df9e067637e41a3b74edd1a541b421656d9",
    "3648ab7ea4eedaa98b3f3777c56c7c7df6ccb125",
    "771ebc9a6f31dff5f44a668de6a19c953ad6a386",
    "984f4ff4398b4f270e8a3742e4d941d7a7633189",
    "0b2dc8ee7f08971e81f3adb3405297c19e472e35",
    "5cced4a4fd4a589b5b85b9a4ce9fba5353e46e15",
)
# The sizes of the same files in bytes, which identify it to a streamed run.
SIZES = (312, 7005, 5044, 8199, 7788, 4853, 7543, 1832, 2800, 21649, 8954, 10011, 4465)


def builtin_file(split: str) -> Path:
    """The pairs of "train", "validation" or "test": a line a pair, a tab between its sides, packed by xz."""
    if split not in SPLITS:
        raise AssertionError(f"no split is called {split!r}; there are {', '.join(SPLITS)}")
    return Path(__file__).with_name(f"{split}.tsv.xz")


def builtin_pairs(split: str) -> list[tuple[str, str]]:
    """The (English, Spanish) sentences of a split, always the same in the same order."""
    with lzma.open(builtin_file(split), "rt", encoding="utf-8", newline="\n") as file:
        return [(src, tgt) for src, tgt in (line.rstrip("\n").split("\t") for line in file)]
