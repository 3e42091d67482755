"""Rules on the machine: steps that wait for their data, and steps that became slow."""

from statistics import median

from transformer_mt.diagnosing.history import Finding, History
from transformer_mt.diagnosing.thresholds import threshold

FEWEST_LINES, MOST_LINES = 5, 200  # of what was usual


def data_wait(history: History) -> Finding | None:
    """The steps of the last lines waited for their batches for much of their time."""
    number = int(threshold("lines"))
    shares, seconds = history.last("train", "data_wait", number), history.last("train", "seconds", number)
    if shares is None or seconds is None:
        return None
    waited, total = sum(s * t for s, t in zip(shares, seconds, strict=True)), sum(seconds)
    if waited < threshold("waited") or waited <= threshold("data_wait") * total:
        return None
    return Finding(
        f"In the last {number} lines of the log the steps waited for their batches for {waited:.0f} of {total:.0f} "
        f"seconds, {waited / total:.0%}.",
        {"waited": waited, "seconds": total},
    )


def slow_machine(history: History) -> Finding | None:
    """The steps of the last minute took much longer a token than those before."""
    lines = history.entries["train"]
    is_double = "divergence" in lines[-1]  # a step of two passes takes twice as long, for another reason
    slow, seconds = 0, 0.0
    while seconds < threshold("slow_seconds"):
        slow += 1
        if slow > len(lines) or (took := lines[-slow].get("seconds")) is None:
            return None
        seconds += took
    earlier = lines[-slow - MOST_LINES : -slow]
    before = [line["tokens_per_second"] for line in earlier if ("divergence" in line) == is_double]
    if len(before) < FEWEST_LINES:
        return None
    usual = median(before)
    now = [line["tokens_per_second"] for line in lines[-slow:]]
    if max(now) >= threshold("pace") * usual:
        return None
    return Finding(
        f"The last {seconds:.0f} seconds of steps made {median(now):,.0f} target tokens a second, and those before "
        f"{usual:,.0f} (median).",
        {"tokens_per_second": median(now), "usual": usual, "seconds": seconds},
    )
