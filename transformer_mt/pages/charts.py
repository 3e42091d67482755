"""Charts as SVG inside a page: values with intervals in groups, and curves over steps.

Colours are the variables `--s0`, `--s1`, … of the style, so that they follow dark and light. Each series has a mark of
its own shape, too, because colours are lost in print.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from transformer_mt.pages.html_text import Html, joined, tag

WIDTH, HEIGHT = 380, 230
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 14, 44  # room around the drawing
NUM_COLOURS = 8
STYLE = """
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, "Noto Sans", sans-serif; fill: var(--muted); }
svg .grid { stroke: var(--rule); }
svg .curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.key { display: inline-block; width: 0.75em; height: 0.75em; margin: 0 0.35em 0 0; vertical-align: -0.06em; }
.legend { display: flex; flex-wrap: wrap; gap: 0.1rem 1.2rem; margin: 0.2rem 0 0.6rem; }
.legend span { overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem 2rem; }
.charts figure { margin: 0; }
figcaption { font-weight: 600; font-size: 0.9rem; }
"""


@dataclass(frozen=True)
class Point:
    """A value with the interval around it."""

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class Series:
    """Values under a name. `colour` is its number."""

    name: str
    points: Sequence[Point]
    colour: int


@dataclass(frozen=True)
class Curve:
    """Values over steps, under a name."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]
    colour: int


class _Scale:
    """From values to places: `low` at `start`, `high` at `end`."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        if high - low < (least := _least_width(low, high)):
            low, high = low - max(0.5, least), high + max(0.5, least)
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [tick for tick in round_ticks(self.low, self.high) if self.low <= tick <= self.high]


def _least_width(low: float, high: float) -> float:
    """What is less apart is one value to a chart: of a large one, what its digits no longer tell apart."""
    return 1e-9 * max(1.0, abs(low), abs(high))


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from below `low` to above `high`: steps of 1, 2 or 5 times a power of ten."""
    rough = max(high - low, _least_width(low, high)) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def group_chart(labels: Sequence[str], series: Sequence[Series], said: str, below: str) -> Html:
    """For each group a mark and the line of its interval for each series. `said` is what the picture shows, for those
    who do not see it; `below` names the groups.
    """
    points = [point for one in series for point in one.points]
    highest = max(point.high for point in points)
    ticks = round_ticks(min(point.low for point in points), highest, 4)
    top = 100 if highest <= 100.001 and ticks[-1] > 100 else ticks[-1]  # no score of these is higher
    y = _Scale(ticks[0], top, HEIGHT - BOTTOM, TOP)
    room = (WIDTH - LEFT - RIGHT) / len(labels)
    parts = _grid(y)
    for place, label in enumerate(labels):
        parts.append(tag("text", label, x=LEFT + room * (place + 0.5), y=HEIGHT - BOTTOM + 16.0, text_anchor="middle"))
    parts.append(tag("text", below, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 8.0, text_anchor="middle"))
    gap = min(18.0, room / (len(series) + 1))
    for number, one in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * gap
        for place, point in enumerate(one.points):
            x = LEFT + room * (place + 0.5) + shift
            title = f"{one.name}, {labels[place]}: {point.value:.2f} ({point.low:.2f} to {point.high:.2f})"
            parts.append(_whisker(x, y, point, one.colour, title))
    return _svg(WIDTH, HEIGHT, said, parts)


def interval_strip(series: Sequence[Series], said: str) -> Html:
    """The intervals of one number of each series on one small scale, one below the other."""
    width, row = 200, 15
    points = [one.points[0] for one in series]
    x = _Scale(min(p.low for p in points), max(p.high for p in points), 8, width - 8)
    parts = []
    for number, (one, point) in enumerate(zip(series, points, strict=True)):
        y, colour = row * (number + 0.5) + 1, f"var(--s{one.colour})"
        parts.append(tag("line", x1=x(point.low), x2=x(point.high), y1=y, y2=y, stroke=colour, stroke_width=2))
        parts.append(_mark(x(point.value), y, one.colour))
    return _svg(width, row * len(series) + 2, said, parts)


def curve_chart(curves: Sequence[Curve], said: str) -> Html:
    """Curves over steps, with the steps below."""
    width, height = 520, 300
    steps = [step for one in curves for step in one.steps]
    values = sorted(value for one in curves for value in one.values)
    low, high = values[0], values[-1]
    if len(values) > 20:  # the first loss of a training would press all that follows together
        most = values[int(len(values) * 0.97)]
        high = min(high, most * 1.1 if most > 0 else high)
    ticks = round_ticks(low, high)
    y = _Scale(ticks[0], ticks[-1], height - BOTTOM, TOP)
    x = _Scale(min(0, *steps), max(steps), LEFT + 6, width - RIGHT - 6)
    parts = _grid(y, width)
    for tick in x.ticks():
        parts.append(tag("text", f"{tick:,.0f}", x=x(tick), y=height - BOTTOM + 16.0, text_anchor="middle"))
    parts.append(tag("text", "steps", x=(LEFT + width) / 2, y=height - 8.0, text_anchor="middle"))
    for one in curves:
        places = [(x(step), max(y(value), TOP - 6)) for step, value in zip(one.steps, one.values, strict=True)]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        colour = f"var(--s{one.colour % NUM_COLOURS})"
        parts.append(tag("polyline", tag("title", one.name), points=line, class_="curve", stroke=colour))
        if len(places) <= 60:
            for (px, py), step, value in zip(places, one.steps, one.values, strict=True):
                parts.append(_mark(px, py, one.colour, f"{one.name}, step {step:,.0f}: {value:.4g}", 2.4))
    return _svg(width, height, said, parts)


def legend(names: Sequence[tuple[str, int]]) -> Html:
    """The names of series beside their marks."""
    keys = [tag("span", joined(_key(colour), tag("bdi", name))) for name, colour in names]
    return tag("div", *keys, class_="legend")


def _key(colour: int) -> Html:
    mark = _mark(6, 6, colour, size=5)
    return Html(str(tag("svg", mark, viewBox="0 0 12 12", class_="key", aria_hidden="true")))


def _svg(width: int, height: int, said: str, parts: Sequence[Html]) -> Html:
    return tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=said)


def _grid(y: _Scale, width: int = WIDTH) -> list[Html]:
    parts = []
    for tick in y.ticks():
        parts.append(tag("line", x1=LEFT, x2=width - RIGHT, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(tag("text", f"{tick:g}", x=LEFT - 6, y=y(tick) + 4, text_anchor="end"))
    return parts


def _whisker(x: float, y: _Scale, point: Point, colour: int, title: str) -> Html:
    line = tag("line", x1=x, x2=x, y1=y(point.low), y2=y(point.high), stroke=f"var(--s{colour})", stroke_width=2)
    return tag("g", tag("title", title), line, _mark(x, y(point.value), colour))


def _mark(x: float, y: float, colour: int, title: str | None = None, size: float = 4) -> Html:
    """A circle, a square, a diamond or a triangle."""
    said = tag("title", title) if title else None
    fill = f"var(--s{colour % NUM_COLOURS})"
    shape = colour % 4
    if shape == 0:
        return tag("circle", said, cx=float(x), cy=float(y), r=float(size), fill=fill)
    if shape == 1:
        side = size * 1.8
        return tag("rect", said, x=x - side / 2, y=y - side / 2, width=side, height=side, fill=fill)
    corners = [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)] if shape == 2 else [(0, -1.3), (1.25, 1), (-1.25, 1)]
    path = "M" + " L".join(f"{x + size * dx:.1f} {y + size * dy:.1f}" for dx, dy in corners) + " Z"
    return tag("path", said, d=path, fill=fill)
