"""Rules on attention and weights, at which a validation looks."""

from transformer_mt.diagnosing.history import Entry, Finding, History
from transformer_mt.diagnosing.thresholds import threshold

NUM_NAMED = 6


def dead_heads(history: History) -> Finding | None:
    """Heads that add next to nothing to their layer."""
    heads = _heads(history.newest("look"), "contributions")
    dead = [name for name, size in heads.items() if size < threshold("dead_head")]
    if not dead:
        return None
    return Finding(
        f"{len(dead):,} of {len(heads):,} attention heads add less than {threshold('dead_head'):.1%} of the size of "
        f"their layer's input: {_named(dead)}.",
        {"dead": dead, "num_heads": len(heads)},
    )


def saturated_attention(history: History) -> Finding | None:
    """Most heads give all of their weight to one word, whatever they read."""
    heads = _heads(history.newest("look"), "sharpness")
    sharp = [name for name, weight in heads.items() if weight > threshold("sharp_head")]
    if not heads or len(sharp) <= threshold("sharp_heads") * len(heads):
        return None
    return Finding(
        f"{len(sharp):,} of {len(heads):,} attention heads give more than {threshold('sharp_head'):.0%} of their "
        f"weight to a single word: {_named(sharp)}.",
        {"saturated": sharp, "num_heads": len(heads)},
    )


def unmoved_embeddings(history: History) -> Finding | None:
    """Most rows of a table of embeddings have had no gradient, after an epoch at least."""
    look = history.newest("look")
    if look.get("epoch", 0) < 1:
        return None
    unmoved = {name: share for name, share in (look.get("unmoved") or {}).items() if share > threshold("unmoved_rows")}
    if not unmoved:
        return None
    tables = ", ".join(f"{share:.0%} of the rows of {name}" for name, share in unmoved.items())
    return Finding(f"{tables} have not moved: no training pair has these words.", {"unmoved": unmoved})


def _heads(look: Entry, figure: str) -> dict[str, float]:
    """The figure of each head, by the name of its module and its number from 0, as in a trace."""
    return {
        f"{module} head {number}": value
        for module, values in (look.get(figure) or {}).items()
        for number, value in enumerate(values)
    }


def _named(names: list[str]) -> str:
    return ", ".join(names[:NUM_NAMED]) + (", …" if len(names) > NUM_NAMED else "")
