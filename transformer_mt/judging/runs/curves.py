"""Curves of several runs: a picture, or a page that needs nothing from outside."""

from collections.abc import Sequence
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.inspect.fonts import fonts_for, no_word_of_missing_glyphs
from transformer_mt.judging.runs.summary import RunSummary
from transformer_mt.judging.runs.table import cell, rows_of
from transformer_mt.pages import charts
from transformer_mt.pages.html_text import Html, joined, page, table, tag
from transformer_mt.storage.files import make_file, replace_file, writing

DEFAULTS = ("train/loss", "validation/nll", "validation/bleu", "validation/chrf")
COLOURS = ("#08519c", "#b45309", "#15803d", "#7e22ce", "#be123c", "#0e7490", "#4d7c0f", "#6b7280")
STYLE = """
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.2rem 0.9rem 0.2rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { font-weight: 600; }
thead th { color: var(--muted); font-weight: 400; }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  figure { break-inside: avoid; }
  .charts { grid-template-columns: 1fr 1fr; }
  .scroll { overflow: visible; }
  table { font-size: 7pt; }
}
"""


def chosen_metrics(summaries: Sequence[RunSummary], asked: Sequence[str]) -> list[str]:
    """The names of the curves to draw: those asked for, by their whole names or the part behind the slash, or else the
    usual ones. UserError where no run has a curve of that name.
    """
    there = list(dict.fromkeys(name for summary in summaries for name in summary.curves))
    if not there:
        raise UserError("None of these runs has a line of metrics yet. Wait for the first, or name another folder.")
    found = []
    for name in asked:
        fitting = [one for one in (name, f"validation/{name}", f"train/{name}") if one in there]
        if not fitting:
            raise UserError(f"No run has the metric {name!r}. There are {', '.join(sorted(there))}.")
        found.append(fitting[0])
    return found or [name for name in DEFAULTS if name in there] or there[:4]


def save_curves(path: Path, summaries: Sequence[RunSummary], asked: Sequence[str]) -> None:
    """Write `.png` or `.html`. UserError for another ending, an unknown metric, and a place that cannot be written."""
    ending = path.suffix.lower()
    if ending not in (".png", ".html"):
        raise UserError(f"{path} ends neither in .png nor in .html. Name the file of --curves so.")
    metrics = chosen_metrics(summaries, asked)
    with writing(path, "Name another place."):
        if ending == ".html":
            replace_file(path, curves_page(summaries, metrics))
        else:
            make_file(path, lambda place: _draw(place, summaries, metrics))


def curves_page(summaries: Sequence[RunSummary], metrics: Sequence[str]) -> str:
    """A chart for each metric, and the table of the runs."""
    figures = []
    for metric in metrics:
        curves = [
            charts.Curve(summary.name, *summary.curves[metric], number)
            for number, summary in enumerate(summaries)
            if metric in summary.curves
        ]
        figures.append(tag("figure", tag("figcaption", metric), charts.curve_chart(curves, f"{metric} over steps")))
    names = [(summary.name, number) for number, summary in enumerate(summaries)]
    problems = [
        tag("li", tag("bdi", summary.name), f": {problem}") for summary in summaries for problem in summary.problems
    ]
    body = joined(
        tag("h1", "Runs"),
        charts.legend(names),
        tag("div", *figures, class_="charts"),
        tag("h2", "Settings that differ, and scores"),
        _table(summaries),
        tag("ul", *problems) if problems else None,
    )
    return page("Runs", body, charts.STYLE + STYLE)


def _table(summaries: Sequence[RunSummary]) -> Html:
    rows = rows_of(summaries)
    lines = [tag("tr", *(tag("td", tag("bdi", cell(name, value))) for name, value in row.items())) for row in rows]
    return table([tag("th", name) for name in rows[0]], lines)


def _draw(path: Path, summaries: Sequence[RunSummary], metrics: Sequence[str]) -> None:
    """The charts side by side, two in a row."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(2, len(metrics))
    rows = -(-len(metrics) // columns)
    legend_rows = -(-len(summaries) // 3)
    with rc_context({"font.family": fonts_for([*metrics, *(summary.name for summary in summaries)])}):
        figure = Figure(figsize=(6 * columns, 3.6 * rows + 0.3 * legend_rows), dpi=130, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flatten()
        lines = {}
        for axis, metric in zip(axes, metrics, strict=False):
            for number, summary in enumerate(summaries):
                if metric in summary.curves:
                    marker = "" if len(summary.curves[metric][0]) > 60 else "os^D"[(number + number // 8) % 4]
                    style = {"color": COLOURS[number % 8], "marker": marker, "markersize": 4, "linewidth": 1.4}
                    (lines[_plain(summary.name)],) = axis.plot(*summary.curves[metric], **style)
            axis.set_title(metric, fontsize=11)
            axis.set_xlabel("steps")
            axis.grid(alpha=0.3)
        for axis in axes[len(metrics) :]:
            axis.remove()
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3, fontsize=9)
        with no_word_of_missing_glyphs():
            figure.savefig(path, format="png")


def _plain(name: str) -> str:
    """A name of which matplotlib takes no part for a formula, and which it does not leave out of a legend."""
    return (" " * name.startswith("_")) + name.replace("$", r"\$")
