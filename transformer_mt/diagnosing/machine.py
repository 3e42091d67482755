"""Rules on the machine: steps that wait for their data, and steps that became slow."""

from bisect import bisect_right
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
    lines, ends = history.entries["train"], history.elapsed
    is_double = "divergence" in lines[-1]  # a step of two passes takes twice as long, for another reason
    first = bisect_right(ends, ends[-1] - threshold("slow_seconds"))
    if first < max(1, history.num_unpaced):
        return None
    earlier = lines[max(0, first - MOST_LINES) : first]
    alike = [line.get("tokens_per_second") for line in earlier if ("divergence" in line) == is_double]
    before = [pace for pace in alike if pace is not None]
    if len(before) < FEWEST_LINES:
        return None
    usual = median(before)
    enough = threshold("pace") * usual
    # The newest line mostly is enough, and a minute may have thousands.
    if any(lines[at]["tokens_per_second"] >= enough for at in reversed(range(first, len(lines)))):
        return None
    seconds, now = ends[-1] - ends[first - 1], [line["tokens_per_second"] for line in lines[first:]]
    return Finding(
        f"The last {seconds:.0f} seconds of steps made {median(now):,.0f} target tokens a second, and those before "
        f"{usual:,.0f} (median).",
        {"tokens_per_second": median(now), "usual": usual, "seconds": seconds},
    )
