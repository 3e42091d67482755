"""The rule on the scores of validations."""

from transformer_mt.diagnosing.history import Finding, History
from transformer_mt.diagnosing.thresholds import threshold


def overfitting(history: History) -> Finding | None:
    """The validation's nll has risen from its lowest while that of the training fell, and BLEU gained nothing."""
    scores = [entry for entry in history.entries["validation"] if entry.get("nll") is not None]
    if not scores:
        return None
    best = min(range(len(scores)), key=lambda i: scores[i]["nll"])
    now, then = scores[-1], scores[best]
    if len(scores) - 1 - best < threshold("overfit_validations"):
        return None
    rise = max(threshold("overfit_rise"), threshold("overfit_share") * then["nll"])
    if now["nll"] <= then["nll"] + rise or not _falls(then["train_nll"], now["train_nll"]):
        return None
    since = [entry["bleu"] for entry in scores[best + 1 :] if entry.get("bleu") is not None]
    if since and then.get("bleu") is not None and max(since) > then["bleu"] + threshold("overfit_bleu"):
        return None
    return Finding(
        f"The validation's nll is {now['nll']:.2f}, and was {then['nll']:.2f} at step {then['step']:,}; the training's "
        f"is {now['train_nll']:.2f}.",
        {"nll": now["nll"], "lowest": then["nll"], "lowest_step": then["step"], "train_nll": now["train_nll"]},
    )


def _falls(then: float | None, now: float | None) -> bool:
    """Whether the training's loss fell. Its level is not known before the first line of the log."""
    return now is not None and (then is None or now < then)
