"""Writes the files of the built-in corpus, transformer_mt/data/builtin/*.tsv.xz, from its grammar.

    python scripts/write_builtin_corpus.py

Whoever changes the grammar runs it, and replaces `IDENTITY` in transformer_mt/data/builtin, by which caches and runs
know the corpus. `tests/data/test_builtin.py` fails while the files are not what the grammar makes.
"""

import lzma

from builtin_corpus.corpus import builtin_pairs
from measuring import command

from transformer_mt.data.builtin import SPLITS, builtin_file


def main() -> None:
    """Write every split."""
    command.Parser(__doc__).parse_args()
    for split in SPLITS:
        lines = "".join(f"{src}\t{tgt}\n" for src, tgt in builtin_pairs(split))
        packed = lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME)
        builtin_file(split).write_bytes(packed)
        print(f"{builtin_file(split)}: {len(packed):,} bytes")


if __name__ == "__main__":
    command.run(main)
