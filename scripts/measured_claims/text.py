"""Claims about text on its way to batches: unknown words, and padding."""

from typing import Literal

import numpy as np

from measured_claims.claim import Finding, Settings, decided
from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.data.batches.batching import Rows, fill, plan_batches
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.make_tokenizers import train_tokenizer

# No word of these is in the corpus; two are in scripts that it has not.
STRANGE = ("Zwölf Boxkämpfer jagen Viktor.", "Ой, грбут!", "猫は座った。", "qwxzjk 🐈")


def subwords(settings: Settings) -> Finding:
    """The target side of the validation split, and four lines of languages that the corpus has not."""
    train = [tgt for _, tgt in builtin_pairs("train")[: 2000 if settings.small else None]]
    texts = {"validation split": [tgt for _, tgt in builtin_pairs("validation")], "other languages": list(STRANGE)}
    rows, unknown, wrong = [], {}, 0
    sizes: dict[Literal["word", "bpe"], int] = {"word": 2000, "bpe": 1000}
    for kind, size in sizes.items():
        tokenizer = train_tokenizer(train, TokenizerConfig(kind=kind, vocab_size=size, min_frequency=2))
        for name, lines in texts.items():
            ids = [tokenizer.encode(line) for line in lines]
            share = sum(int(np.equal(row, UNK_ID).sum()) for row in ids) / sum(map(len, ids))
            unknown.setdefault(kind, []).append(share)
            back = sum(tokenizer.decode(row) == line for row, line in zip(ids, lines, strict=True))
            wrong += (kind == "bpe") * (len(lines) - back)
            rows.append([f"`{kind}`", name, f"{share:.2%}", f"{back} of {len(lines)}"])
    heads = ("tokenizer", "text", "unknown tokens", "lines that come back as they were")
    return Finding(heads, rows, decided(not any(unknown["bpe"]) and not wrong and min(unknown["word"]) > 0))


def padding(settings: Settings) -> Finding:
    """Batches of 2,048 tokens of the training split: pairs of like length together, and pairs as they come."""
    pairs = builtin_pairs("train")[: 2000 if settings.small else None]
    sides = ([pair[side] for pair in pairs] for side in (0, 1))
    src, tgt = (np.array([len(text.split()) + 1 for text in side], np.int32) for side in sides)
    longest = np.maximum(src, tgt).astype(np.int64)
    order = np.random.default_rng(1).permutation(len(pairs))
    plans = {
        "sorted by length": plan_batches(src, tgt, 2048, seed=1, epoch=1),
        "as they come": fill(order, longest[order], 2048, is_sorted=False),
    }

    def share(plan: list[Rows]) -> float:
        cells = sum(len(rows) * (int(src[rows].max()) + int(tgt[rows].max())) for rows in plan)
        return 1 - float(src.sum() + tgt.sum()) / cells

    shares = {name: share(plan) for name, plan in plans.items()}
    rows = [[name, f"{len(plans[name])}", f"{one:.1%}"] for name, one in shares.items()]
    holds = shares["sorted by length"] < shares["as they come"] / 3
    return Finding(("pairs in a batch", "batches", "positions that are padding"), rows, decided(holds))
