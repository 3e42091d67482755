"""What exactly is wrong with one pair, in a few words for each of its faults."""

import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from transformer_mt.checking.faults.languages import other_language
from transformer_mt.checking.faults.leaks import HeldOut
from transformer_mt.checking.faults.names import other_names
from transformer_mt.checking.faults.pair_texts import loop_in, markup_in, misread, other_numbers, two_scripts_in
from transformer_mt.checking.faults.rules import names_of
from transformer_mt.checking.second_look import Learned, foreign_script
from transformer_mt.data.longest_line import LONGEST_LINE

MOST = 60  # characters of a piece of text


class Case(NamedTuple):
    """A faulty pair with all that is known beside it."""

    src: str
    tgt: str
    shift: int
    learned: Learned
    held_out: HeldOut | None
    is_beyond: bool  # a side was too long to be kept in memory, and is empty here

    @property
    def sides(self) -> tuple[str, str]:
        """Both texts."""
        return self.src, self.tgt


def explain(case: Case, flags: int) -> dict[str, str]:
    """For each fault of the pair what was seen; empty where its name says it all."""
    return {name: _SEEN[name](case) if name in _SEEN else "" for name in names_of(flags)}


def _lengths(case: Case) -> str:
    return f"{len(case.src.strip()):,} and {len(case.tgt.strip()):,} characters"


def _too_long(case: Case) -> str:
    if case.is_beyond:
        return f"over {LONGEST_LINE:,} bytes"
    return _lengths(case)


def _piece(look: Callable[[str], str | None]) -> Callable[[Case], str]:
    def seen(case: Case) -> str:
        found = [piece for text in case.sides if (piece := look(text))]
        return found[0][:MOST] if found else ""

    return seen


def _damage(case: Case) -> str:
    piece = _piece(misread)(case)
    return f"U+{ord(piece):04X}" if len(piece) == 1 and unicodedata.category(piece) == "Cc" else piece


def _script(case: Case) -> str:
    found = (foreign_script(text, case.learned.scripts[side]) for side, text in enumerate(case.sides))
    return next((script for script in found if script), None) or _piece(two_scripts_in)(case)


def _language(case: Case) -> str:
    for name, own, text in zip(("source", "target"), case.learned.languages, case.sides, strict=True):
        if own and (language := other_language(text, own)):
            return f"{name}: {language} instead of {own}"
    return "words of the other side"


def _both(found: tuple[list, list] | None) -> str:
    return " / ".join(", ".join(map(str, side[:5])) for side in found) if found else ""


def _leak(case: Case) -> str:
    if case.held_out is None:
        return ""
    said = []
    for side, (name, text) in enumerate(zip(("source", "target"), case.sides, strict=True)):
        if place := case.held_out.where(side, text):
            split, line, share = place
            said.append(f"{name}: {split}, pair {line:,}" + (f" ({share:.0%} in common)" if share < 1 else ""))
    return "; ".join(said)


_SEEN: dict[str, Callable[[Case], str]] = {
    "too_long": _too_long,
    "ratio": _lengths,
    "script": _script,
    "language": _language,
    "numbers": lambda case: _both(other_numbers(*case.sides)),
    "names": lambda case: _both(other_names(*case.sides, case.learned.names)),
    "markup": _piece(markup_in),
    "encoding": _damage,
    "repetition": _piece(loop_in),
    "leak": _leak,
    "near_leak": _leak,
    "shift": lambda case: (
        f"the source translates the target {abs(case.shift)} line{'s' * (abs(case.shift) > 1)} "
        + ("further down" if case.shift > 0 else "further up")
    ),
}
