"""Rules on the translations of a validation, as `output_figures` counts them."""

import math

from transformer_mt.diagnosing.history import Entry, Finding, History
from transformer_mt.diagnosing.thresholds import threshold


def copying(history: History) -> Finding | None:
    """Outputs that are their source, more than references are."""
    return _more_than_references(history.newest("look"), "copies", "are copies of their source")


def empty_outputs(history: History) -> Finding | None:
    """Outputs without a word, at two validations one after the other."""
    return _twice(history, "empty", "have no word in them")


def repeating_outputs(history: History) -> Finding | None:
    """Outputs that say something four times in a row, or all say the same, at two validations one after the other."""
    return _twice(history, "repeating", "say something four times in a row or more") or _twice(
        history, "same", "are one and the same"
    )


def length_drift(history: History) -> Finding | None:
    """Outputs that are together much shorter or longer than the references, at two validations one after the other."""
    ratios = history.last("look", "length_ratio", 2)
    if ratios is None or not _has_learned(history):
        return None
    if not (max(ratios) < threshold("short") or min(ratios) > threshold("long")):
        return None
    return Finding(
        f"The translations are {ratios[1]:.2f} times as long as the references, and were {ratios[0]:.2f} times as long "
        "at the validation before.",
        {"length_ratio": ratios[1], "length_ratio_before": ratios[0]},
    )


def _twice(history: History, figure: str, what: str) -> Finding | None:
    looks = history.entries["look"][-2:]
    if len(looks) < 2 or not _has_learned(history):
        return None
    found = [_more_than_references(look, figure, what) for look in looks]
    return found[1] if all(found) else None


def _more_than_references(look: Entry, figure: str, what: str) -> Finding | None:
    share, usual = look.get(figure), look.get(f"reference_{figure}")
    if share is None or usual is None or (look.get("num_outputs") or 0) < threshold("outputs"):
        return None
    if share <= usual + threshold(figure):
        return None
    seen = f"{share:.0%} of {look['num_outputs']:,} translations {what}; of the references {usual:.0%}."
    return Finding(seen, {figure: share, f"reference_{figure}": usual})


def _has_learned(history: History) -> bool:
    """Whether the training's loss is far below that of a new model."""
    look = history.newest("look")
    return bool(history.levels) and history.levels[-1].nll < threshold("learned_loss") * math.log(look["vocabulary"])
