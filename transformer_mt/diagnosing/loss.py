"""Rules on the loss and the learning rate."""

import math
from typing import Any

from transformer_mt.diagnosing.history import Finding, History
from transformer_mt.diagnosing.thresholds import threshold
from transformer_mt.plurals import counted

NUM_SHOWN = 3  # pairs of a spike
MOST_SHOWN = 80  # characters of a text


def loss_spike(history: History) -> Finding | None:
    """An update whose loss stood out; its entry was written for that."""
    spike = history.newest("spike")
    pairs, text = spike["pairs"], ""
    hardest = [pair for pair in pairs if pair.get("nll") is not None][:NUM_SHOWN]
    if hardest:
        shown = (f"{pair['where']} ({pair['nll']:.2f}): {_texts(pair)}" for pair in hardest)
        text = f" Hardest of its {counted(spike['num_pairs'], 'pair')}: {'; '.join(shown)}."
    elif pairs:
        named = "; ".join(pair["where"] for pair in pairs[:NUM_SHOWN])
        text = f" Its {counted(spike['num_pairs'], 'pair begins', 'pairs begin')} with {named}."
    seen = (
        f"The nll of the update was {spike['nll']:.2f} a token, and that of the updates before it {spike['usual']:.2f} "
        f"(median) with a spread of {spike['spread']:.2f}.{text}"
    )
    return Finding(seen, spike)


def lr_too_high(history: History) -> Finding | None:
    """The loss rose from its lowest and stays there, is far worse than chance, or is stuck high while the weights
    change a lot each step.
    """
    if len(history.levels) < history.entries_in(threshold("lines")):
        return None
    now, lowest = history.levels[-1], history.lowest
    if lowest is not None:
        rise = max(threshold("rise"), threshold("rise_share") * lowest.nll)
        if now.nll > lowest.nll + rise:
            return Finding(
                f"The training's nll is {_number(now.nll)} a token, the median of five lines of the log, and was "
                f"{_number(lowest.nll)} at step {lowest.step:,}.",
                {"nll": now.nll, "lowest": lowest.nll, "lowest_step": lowest.step},
            )
    if not history.entries["look"]:
        return None
    look = history.newest("look")
    start, ratio = math.log(look["vocabulary"]), look.get("relative_update")
    if now.nll > threshold("beyond_chance") * start:
        return Finding(
            f"The training's nll is {_number(now.nll)} a token, the median of five lines of the log, and chance gives "
            f"{start:.2f}.",
            {"nll": now.nll, "chance": start},
        )
    if ratio is None or ratio <= threshold("high_update") or not _is_stuck(history):
        return None
    if now.nll <= threshold("stuck_loss") * start:
        return None
    return Finding(
        f"The training's nll has been {now.nll:.2f} a token for {int(threshold('stuck_lines'))} lines of the log, "
        f"where chance gives {start:.2f}, and each step changes the weights by {ratio:.1%} of their size.",
        {"nll": now.nll, "chance": start, "relative_update": ratio},
    )


def lr_too_low(history: History) -> Finding | None:
    """The loss is still about where it began, and no look at the weights has seen them change much a step."""
    look, ratio, rates = history.newest("look"), history.ratio, history.last("train", "lr", 2)
    if ratio is None or ratio >= threshold("low_update") or rates is None or not history.levels:
        return None
    now, start = history.levels[-1].nll, math.log(look["vocabulary"])
    if rates[1] > rates[0] or now <= threshold("low_loss") * start:  # the warm-up is not over, or it learns
        return None
    return Finding(
        f"The training's nll is {now:.2f} a token, where chance gives {start:.2f}, and a step changes the weights by "
        f"{ratio:.4%} of their size at most; the learning rate is {rates[1]:.1e}.",
        {"nll": now, "chance": start, "relative_update": ratio, "lr": rates[1]},
    )


def _is_stuck(history: History) -> bool:
    levels, number = history.levels, history.entries_in(threshold("stuck_lines"))
    return len(levels) > number and levels[-1].nll > levels[-1 - number].nll - threshold("progress")


def _number(nll: float) -> str:
    return f"{nll:.2f}" if math.isfinite(nll) else "not a number"


def _texts(pair: dict[str, Any]) -> str:
    """Source and target, cut; a picture has no text."""
    texts = (text for text in (pair["src"], pair["tgt"]) if text)
    return " / ".join(repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…") for text in texts)
