"""A check as one HTML page: what was found and where in the corpus it lies, the shifts, and examples of each fault."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np

from transformer_mt import __version__
from transformer_mt.checking.check import CheckedSplit, Pair
from transformer_mt.checking.faults.rules import BITS, RULES
from transformer_mt.checking.written.told import SAYS, headline, place_of, share, shift_sentence, title
from transformer_mt.pages.html_text import Html, joined, page, table, tag

STYLE = Path(__file__).with_name("check.css")
BINS = 100  # parts of a split in the picture of where a fault lies
MOST_SHOWN = 400  # characters of a side
FOUND = {rule.name: rule.found for rule in RULES}


def check_page(checked: Sequence[CheckedSplit]) -> str:
    """The whole page. What comes from texts and paths is escaped."""
    parts = [tag("h1", "What is in the corpus"), *(_about(split) for split in checked), _how(checked)]
    return page("What is in the corpus", joined(*parts), STYLE.read_text(encoding="utf-8"))


def _about(split: CheckedSplit) -> Html:
    parts = [tag("h2", title(split)), tag("p", headline(split), class_="verdict")]
    parts += [tag("p", shift_sentence(split, part), class_="shift") for part in split.shifts]
    parts += [tag("p", remark, class_="muted") for remark in split.remarks]
    if split.counts:
        parts.append(_table(split))
    for name, number in split.counts.items():
        shown = split.examples.get(name, [])
        parts.append(tag("h3", f"{name}: {number:,}"))
        parts.append(tag("p", f"Such a pair {SAYS[name]}.", class_="muted"))
        parts += [_example(split, name, pair) for pair in shown]
    return tag("section", *parts)


def _table(split: CheckedSplit) -> Html:
    heads = [tag("th", text, class_=kind) for text, kind in (("fault", None), ("pairs", "number"), ("share", "number"),
             ("from the first pair to the last", "strip"), ("such a pair", "says"))]  # fmt: skip
    rows = [
        tag("tr", tag("th", name), tag("td", f"{number:,}", class_="number"),
            tag("td", share(number, len(split)), class_="number"), tag("td", _strip(split, name), class_="strip"),
            tag("td", SAYS[name], class_="says"))
        for name, number in split.counts.items()
    ]  # fmt: skip
    return table(heads, rows)


def _strip(split: CheckedSplit, name: str) -> Html:
    """Where the pairs with a fault lie: a bar for each part of the split, as high as the share of them in it."""
    borders = np.linspace(0, len(split), min(BINS, len(split)) + 1).astype(int)
    has_it = ((split.flags & BITS[name]) != 0).astype(np.int64)
    counts = np.add.reduceat(has_it, borders[:-1]) / np.diff(borders)
    width, highest = BINS / len(counts), float(counts.max())
    bars = [
        tag("rect", x=number * width, y=1 - height, width=width, height=height, fill="var(--s0)")
        for number, value in enumerate(counts.tolist())
        if (height := max(0.12, value / highest) if value else 0.0)
    ]
    return tag("svg", *bars, viewBox=f"0 0 {BINS} 1", preserveAspectRatio="none", role="img",
               aria_label=f"where {name} lies; the highest bar is {highest:.1%} of its pairs")  # fmt: skip


def _example(split: CheckedSplit, name: str, pair: Pair) -> Html:
    others = [other for other in pair.faults if other != name]
    said = ": ".join(filter(None, (place_of(split, pair), pair.faults[name])))
    more = f"  (also {', '.join(others)})" if others else ""
    sides = [tag("p", text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…") for text in (pair.src, pair.tgt)]
    return tag("article", tag("p", said + more, class_="muted"), tag("div", *sides, class_="pair"))


def _how(checked: Sequence[CheckedSplit]) -> Html:
    """How every fault is found that was."""
    names = [rule.name for rule in RULES if any(rule.name in split.counts for split in checked)]
    rows = [tag("tr", tag("th", name), tag("td", FOUND[name])) for name in names]
    made = f"Nothing was changed or dropped. Made by transformer_mt {__version__} on {date.today().isoformat()}."
    found = tag("div", tag("table", tag("tbody", *rows)), class_="scroll") if rows else None
    return joined(tag("h2", "How it was found"), found, tag("p", made, class_="muted"))
