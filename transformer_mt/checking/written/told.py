"""What a check found: as lines for a terminal, and as JSON lines, one for each faulty pair and one for each split."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from transformer_mt.checking.check import CheckedSplit, Pair, ShiftedPart
from transformer_mt.checking.faults.rules import RULES
from transformer_mt.data.word_splitting import printable
from transformer_mt.plurals import counted

MOST_SHOWN = 100  # characters of a side
SAYS = {rule.name: rule.says for rule in RULES}


def text_lines(checked: Sequence[CheckedSplit]) -> Iterator[str]:
    """The whole result for a terminal: a table of each split, its shifts, and examples of each fault."""
    for number, split in enumerate(checked):
        if number:
            yield ""
        yield headline(split)
        yield from (f"  {shift_sentence(split, part)}" for part in split.shifts)
        yield from (f"  {remark}" for remark in split.remarks)
        for name, count in split.counts.items():
            each = "pair, which" if count == 1 else "pairs; each"
            yield f"{name}: {count:,} ({share(count, len(split))}) {each} {SAYS[name]}"
            for pair in split.examples.get(name, []):
                yield f"  {place_of(split, pair)}{f': {seen}' if (seen := pair.faults[name]) else ''}"
                yield f"    {printable(pair.src, MOST_SHOWN)}  |  {printable(pair.tgt, MOST_SHOWN)}"


def headline(split: CheckedSplit) -> str:
    """How many pairs there are, and how many are faulty."""
    names = ", ".join(source.description for source in split.sources)
    number = int((split.flags != 0).sum())
    found = f"{number:,} ({share(number, len(split))}) with something to look at" if number else "nothing found"
    return f"{title(split)}: {counted(len(split), 'pair')} ({names}); {found}"


def title(split: CheckedSplit) -> str:
    """The split's name, with its direction where there are several."""
    return f"{split.name} {'-'.join(split.direction)}" if split.direction else split.name


def shift_sentence(split: CheckedSplit, part: ShiftedPart) -> str:
    """Where the sides are shifted, from where to where, and by how much."""
    source = split.sources[part.source]
    return (
        f"SHIFT: {source.description}: from {source.unit} {part.first} to {part.last}, {source.unit} n of the source "
        f"translates {source.unit} n {'+' if part.shift > 0 else '-'} {abs(part.shift)} of the target"
    )


def place_of(split: CheckedSplit, pair: Pair) -> str:
    """Where a pair stands; the name of the source only where there are several."""
    source = split.sources[pair.source]
    return source.place(pair.line) if len(split.sources) > 1 else f"{source.unit} {pair.line}"


def share(number: int, of: int) -> str:
    """A share in per cent, of which the small ones have more digits."""
    value = 100 * number / max(1, of)
    return f"{value:.1f} %" if value >= 1 or not value else f"{value:.2g} %"


def json_lines(checked: Sequence[CheckedSplit]) -> Iterator[str]:
    """An object for each pair with a fault, in order, and behind those of a split one for the split itself."""
    for split in checked:
        for block, flags in split.blocks():
            for pair in split.pairs_of(block, np.flatnonzero(flags).tolist()):
                yield _json(_pair_object(split, pair))
        yield _json(
            {
                "split": split.name,
                **({"direction": "-".join(split.direction)} if split.direction else {}),
                "sources": [source.description for source in split.sources],
                "num_pairs": len(split),
                "num_faulty": int((split.flags != 0).sum()),
                "faults": split.counts,
                "shifts": [
                    {"source": split.sources[part.source].description, "first": part.first, "last": part.last,
                     "shift": part.shift}
                    for part in split.shifts
                ],
                "remarks": split.remarks,
            }
        )  # fmt: skip


def _pair_object(split: CheckedSplit, pair: Pair) -> dict[str, Any]:
    source = split.sources[pair.source].description
    place = {"split": split.name, "source": source, "line": pair.line}
    return {**place, "faults": pair.faults, "src": pair.src, "tgt": pair.tgt}


def _json(mapping: dict[str, Any]) -> str:
    text = json.dumps(mapping, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, which the JSON of a source may hold
        return json.dumps(mapping)
    return text
