"""The parts of the page: each is markup of its own, so that a browser exchanges only what has changed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from transformer_mt.config.schema import RunConfig
from transformer_mt.diagnosing.diagnoses import Diagnosis
from transformer_mt.pages import charts
from transformer_mt.pages.html_text import Html, joined, tag
from transformer_mt.plurals import counted, rounded
from transformer_mt.training.monitoring.metrics_file import best_scores
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.watching.event_files import EventFiles
from transformer_mt.watching.metrics_tail import MetricsTail, thinned

MOST_POINTS = 300  # of a curve
# Curves that are drawn together, and what the chart is called.
CHARTS = (
    ("nll, in training and validation", ("train/nll", "validation/nll")),
    ("BLEU", ("validation/bleu",)),
    ("chrF", ("validation/chrf",)),
    ("loss", ("train/loss",)),
    ("learning rate", ("train/lr",)),
    ("norm of the gradient", ("train/grad_norm",)),
    ("target tokens a second", ("train/tokens_per_second",)),
    ("waiting for data, share of the time", ("train/data_wait",)),
)
LEFT_OUT = {"validation/ppl"}  # it is nll once more


@dataclass(frozen=True)
class Now:
    """What is known at this moment. `trouble` is why the folder could not be read."""

    name: str
    state: str
    config: RunConfig
    metrics: MetricsTail
    events: EventFiles
    newest: TrainingState | None
    diagnoses: Sequence[Diagnosis]
    trouble: str | None


def parts(now: Now) -> dict[str, Html]:
    """The parts of the page by the names of their places in it."""
    return {
        "state": _state(now),
        "diagnoses": _diagnoses(now.diagnoses),
        "curves": _curves(now),
        "samples": _samples(now.events),
        "pictures": _pictures(now),
    }


def _state(now: Now) -> Html:
    train, validation = now.metrics.last.get("train", {}), now.metrics.last.get("validation", {})
    step = max(int(train.get("step", 0)), int(validation.get("step", 0)), now.newest.step if now.newest else 0)
    training, end = now.config.training, _last_step(now)
    facts: list[tuple[str, str]] = [("step", f"{step:,}" + _of(training.max_steps))]
    if train:
        epoch = min(train["epoch"] + 1, training.max_epochs or math.inf)
        facts.append(("epoch", f"{epoch:,}" + _of(training.max_epochs)))
        facts.append(("minutes of training", f"{train['elapsed_seconds'] / 60:,.1f}"))
        facts.append(("target tokens a second", f"{float(train.get('tokens_per_second') or 0.0):,.0f}"))
    if now.state == "training" and (left := _minutes_left(now, step)) is not None:
        facts.append(("minutes left, about", f"{left:,.0f}" if left >= 1 else "less than 1"))
    best = best_scores(now.metrics.curves).items()
    facts += [(f"best {name}", f"{rounded(value)} at step {at:,}") for name, (value, at) in best]
    checkpoint = f"newest checkpoint: step {now.newest.step:,}" if now.newest else "no checkpoint yet"
    broken = f"; {counted(now.metrics.num_broken, 'line')} of metrics cannot be read" if now.metrics.num_broken else ""
    return joined(
        tag("p", now.trouble, class_="trouble", role="alert") if now.trouble else None,
        tag("p", tag("strong", now.state), f" ({checkpoint}{broken})") if now.state else None,
        tag("progress", value=float(min(step, end)), max=end, aria_label="steps made") if end else None,
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts)),
    )


def _of(most: int | None) -> str:
    return "" if most is None else f" of {most:,}"


def _last_step(now: Now) -> float | None:
    """The step at which the config's steps or epochs are over; None while it is not known. A pass over the pairs, of
    which an epoch of both directions has two, is taken to have as many steps as those that were over at the newest
    checkpoint.
    """
    training, newest, num_passes = now.config.training, now.newest, now.config.data.num_passes
    limits = [] if training.max_steps is None else [float(training.max_steps)]
    if training.max_epochs is not None and newest is not None and newest.epoch:
        steps = newest.step - newest.micro_batch / newest.micro_batches_per_update
        limits.append(num_passes(0, training.max_epochs) * steps / num_passes(0, newest.epoch))
    return min(limits, default=None)


def _minutes_left(now: Now, step: int) -> float | None:
    training, pace = now.config.training, now.metrics.pace
    limits = []
    if training.max_minutes is not None and (train := now.metrics.last.get("train")):
        limits.append(training.max_minutes - train["elapsed_seconds"] / 60)
    if (end := _last_step(now)) is not None and pace is not None:
        first, steps, seconds = pace
        seconds_a_pass = seconds / training.passes_from(first + 1, steps)
        limits.append(training.passes_from(step + 1, end - step) * seconds_a_pass / 60)
    return max(0.0, min(limits)) if limits else None


def _diagnoses(diagnoses: Sequence[Diagnosis]) -> Html:
    if not diagnoses:
        return tag("p", "None.", class_="muted")
    return joined(*(_diagnosis(one) for one in diagnoses))


def _diagnosis(one: Diagnosis) -> Html:
    since = f"since step {one.first_step:,}" if one.holds else f"steps {one.first_step:,} to {one.last_step:,}"
    return tag("p", tag("strong", one.name), f" ({since}): {one.finding.seen} ", tag("em", one.tries))


def _curves(now: Now) -> Html:
    known = {name for _, names in CHARTS for name in names} | LEFT_OUT
    others = [(name, (name,)) for name in sorted(now.metrics.curves) if name.startswith("validation/")
              and name not in known]  # fmt: skip
    figures = [_chart(now, title, names) for title, names in (*CHARTS, *others)]
    figures = [figure for figure in figures if figure is not None]
    return tag("div", *figures, class_="charts") if figures else tag("p", "No line of metrics yet.", class_="muted")


def _chart(now: Now, title: str, names: Sequence[str]) -> Html | None:
    drawn = []
    for number, name in enumerate(names):
        if name in now.metrics.curves:
            drawn.append(charts.Curve(name, *thinned(now.metrics.curves[name], MOST_POINTS), number))
    if not drawn:
        return None
    last = ", ".join(f"{curve.name} {curve.values[-1]:.4g} at step {curve.steps[-1]:,}" for curve in drawn)
    legend = charts.legend([(curve.name, curve.colour) for curve in drawn]) if len(names) > 1 else None
    return tag("figure", tag("figcaption", title), legend, charts.curve_chart(drawn, f"{title} over steps: {last}"))


def _samples(events: EventFiles) -> Html:
    if not events.samples:
        return tag("p", "They come with the first validation.", class_="muted")
    return joined(*(_sample(number, events) for number in sorted(events.samples)))


def _sample(number: int, events: EventFiles) -> Html:
    """A sentence, its reference and its newest translation side by side, and the earlier ones to be opened."""
    texts = events.samples[number]
    newest = max(texts)
    sample = texts[newest]
    columns = (("source", sample.source), ("reference", sample.reference),
               (f"translation, step {newest:,}", sample.translation))  # fmt: skip
    cells = [tag("div", tag("h3", name), tag("p", text or "(empty)", dir="auto")) for name, text in columns]
    earlier = [
        tag("li", f"{step:,}: ", tag("bdi", texts[step].translation or "(empty)")) for step in sorted(texts)[:-1]
    ]
    before = tag("details", tag("summary", "earlier"), tag("ul", *earlier), id=f"earlier-{number}") if earlier else None
    return tag("article", tag("div", *cells, class_="sample"), before)


def _pictures(now: Now) -> Html:
    if not now.events.pictures:
        return tag("p", "They come with the first validation, where the model has attention.", class_="muted")
    figures = []
    for name, (step, _) in sorted(now.events.pictures.items()):
        said = f"{name} at step {step:,}"
        picture = tag("img", src=f"picture?name={quote(name, safe='')}&step={step}", alt=f"A heat map: {said}")
        figures.append(tag("figure", tag("figcaption", said), picture))
    return joined(*figures)
