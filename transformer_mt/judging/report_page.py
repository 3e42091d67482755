"""The report on judged translations: one file without outside resources, for the screen and for paper."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from transformer_mt import __version__
from transformer_mt.judging.groups import Group
from transformer_mt.judging.judgement import Judgement, verdict
from transformer_mt.judging.report_sentences import changed_sentences, extreme_sentences, faulty_sentences
from transformer_mt.judging.scores import HIGHER_IS_BETTER, NUM_RESAMPLES, Score, is_significant
from transformer_mt.pages import charts
from transformer_mt.pages.charts import Point, Series
from transformer_mt.pages.html_text import Html, joined, page, table, tag

STYLE = Path(__file__).with_name("report.css")


def report_page(judgements: Sequence[Judgement], settings: Mapping[str, Sequence[str]] | None) -> str:
    """The whole page. `settings` are those that differ between two runs, with both values.

    What comes from texts, paths and settings is escaped.
    """
    first = judgements[0]
    title = "Is B better than A?" if first.is_comparison else "How good are the translations?"
    systems = [
        tag("li", tag("b", f"{name}: ") if first.is_comparison else None, tag("bdi", output.name), _note(output.note))
        for name, output in zip(first.names, first.test_set.outputs, strict=True)
    ]
    parts = [tag("h1", title), tag("ul", *systems, class_="systems")]
    if first.is_comparison:
        parts.append(charts.legend([("A", 0), ("B", 1)]))
    parts += [_about_set(judgement) for judgement in judgements]
    parts += [_settings(settings)] if settings else []
    parts.append(_how(first))
    return page(title, joined(*parts), charts.STYLE + STYLE.read_text(encoding="utf-8"))


def _note(note: str) -> Html | None:
    return tag("small", f" ({note})") if note else None


def _about_set(judgement: Judgement) -> Html:
    """Everything about one test set."""
    test_set = judgement.test_set
    parts = [tag("h2", tag("bdi", test_set.name))]
    parts.append(tag("p", ". ".join([test_set.size, *test_set.remarks]), class_="muted"))
    if judgement.is_comparison:
        parts.append(tag("p", verdict(judgement), class_="verdict"))
    parts += [_scores(judgement), _where(judgement)]
    parts.append(_marks(judgement))
    if judgement.is_comparison:
        parts.append(changed_sentences(judgement))
    parts += [extreme_sentences(judgement), faulty_sentences(judgement), _all_numbers(judgement)]
    return tag("section", *parts)


def _marks(judgement: Judgement) -> Html:
    """What the marks in sentences mean."""
    parts = [
        "In a translation ",
        tag("mark", "this"),
        " is not in the first reference. In a reference ",
        tag("u", "this"),
    ]
    if judgement.is_comparison:
        parts += [" is missing from every translation shown, and ", tag("u", "this", class_="one"), " from one of two."]
    else:
        parts.append(" is missing from the translation.")
    return tag("p", *parts, class_="muted")


def _scores(judgement: Judgement) -> Html:
    """The table of the scores, each with a small picture of its intervals."""
    heads = ["", *(judgement.names if judgement.is_comparison else ["score"])]
    heads += ["B − A", "p"] if judgement.is_comparison else []
    rows = []
    for name, scores in judgement.scores.scores.items():
        better = "higher is better" if HIGHER_IS_BETTER[name] else "lower is better"
        cells = [tag("td", _shown(score), class_="number") for score in scores]
        if judgement.is_comparison:
            sure = "number sure" if is_significant(scores) else "number"
            cells.append(tag("td", f"{scores[1].value - scores[0].value:+.2f}", class_=sure))
            cells.append(tag("td", f"{scores[1].p_text}{' *' if is_significant(scores) else ''}", class_=sure))
        series = _series(judgement, [[score] for score in scores])
        strip = charts.interval_strip(series, f"intervals of {name}")
        first = tag("th", name, tag("small", f" {better}"))
        rows.append(tag("tr", first, *cells, tag("td", strip, class_="strip")))
    names = [tag("th", text, class_="number" if text else None) for text in heads]
    note = f"In brackets: the interval that holds 95 % of {NUM_RESAMPLES:,} resamples of the sentences."
    if judgement.is_comparison and not judgement.is_short:
        note += " * and bold: beyond chance (p < 0.05 by paired bootstrap)."
    return joined(table([*names, tag("th", class_="strip")], rows), tag("p", note, class_="muted"))


def _shown(score: Score) -> Html:
    return joined(f"{score.value:.2f} ", tag("small", f"[{score.low:.2f}, {score.high:.2f}]"))


def _series(judgement: Judgement, scores: Sequence[Sequence[Score]]) -> list[Series]:
    """A series for each system; A and B have the first two colours."""
    return [
        Series(name, [Point(one.low, one.value, one.high) for one in some], number)
        for number, (name, some) in enumerate(zip(judgement.names, scores, strict=True))
    ]


def _kinds(judgement: Judgement) -> list[tuple[str, str, str, list[Group]]]:
    """The groups that there are: title, what is below the picture, metric of the picture, groups."""
    length = "words of the source" if judgement.test_set.sources else "words of the reference"
    return [
        kind
        for kind in (
            ("By length", length, "chrF", judgement.lengths),
            ("By rarity of words", f"times {judgement.counted_words.place}", "F1", judgement.rarities),
            ("By the model's own score", "fifths of the sentences", "chrF", judgement.certainties[0]),
        )
        if kind[3]
    ]


def _where(judgement: Judgement) -> Html:
    """The pictures of the groups side by side."""
    figures = []
    for title, below, metric, groups in _kinds(judgement):
        scores = [[group.scores[metric][system] for group in groups] for system in range(len(judgement.names))]
        chart = charts.group_chart(
            [group.label for group in groups], _series(judgement, scores), f"{metric}, {title.lower()}", below
        )
        what = "F1 of words" if metric == "F1" else metric
        figures.append(tag("figure", tag("figcaption", f"{title}: {what}"), chart))
    return joined(tag("h3", "Where"), tag("div", *figures, class_="charts"))


def _all_numbers(judgement: Judgement) -> Html:
    """The numbers of the pictures, and those of the other metrics, in tables."""
    parts = [tag("h3", "All numbers")]
    for title, below, _, groups in _kinds(judgement):
        metrics = list(groups[0].scores)
        names = judgement.names if judgement.is_comparison else [""]
        heads = [tag("th", f"{metric} {name}".strip(), class_="number") for metric in metrics for name in names]
        counted = "words" if "F1" in metrics else "sentences"
        is_certainty = groups is judgement.certainties[0]
        ranges = [tag("th", f"probability {name}".strip(), class_="number") for name in names] if is_certainty else []
        rows = []
        for number, group in enumerate(groups):
            cells = [tag("td", _shown(score), class_="number") for metric in metrics for score in group.scores[metric]]
            sizes = f"{group.sizes[0]:,}" if len({*group.sizes}) == 1 else " / ".join(map(str, group.sizes))
            of = [tag("td", text, class_="number") for text in judgement.certainties[1][number]] if ranges else []
            rows.append(tag("tr", tag("th", group.label), *of, tag("td", sizes, class_="number"), *cells))
        columns = [tag("th", below), *ranges, tag("th", counted, class_="number"), *heads]
        parts += [tag("h4", title), table(columns, rows)]
    return joined(*parts)


def _settings(settings: Mapping[str, Sequence[str]]) -> Html:
    rows = [
        tag("tr", tag("th", name), *(tag("td", tag("bdi", value)) for value in values))
        for name, values in settings.items()
    ]
    heads = [tag("th", text) for text in ("setting", "A", "B")]
    return joined(tag("h2", "Settings that differ between the runs"), table(heads, rows))


def _how(judgement: Judgement) -> Html:
    """Signatures and definitions."""
    signatures = [
        tag("li", f"{name} ", tag("code", signature)) for name, signature in judgement.scores.signatures.items()
    ]
    said = [
        "Scores, intervals and p-values are sacreBLEU's, with these signatures:",
        "A sentence counts as better or worse by its own chrF.",
        "F1 of words: for each group of words, how many words of the translations are in the first reference, and how "
        "many of the reference are in the translations, in one number. A point that lies lower is a kind of words that "
        "is translated worse.",
        "The model's own score is the mean log-probability of a token; each system is grouped by its own.",
        f"Made by transformer_mt {__version__} on {date.today().isoformat()}.",
    ]
    parts = [tag("p", said[0]), tag("ul", *signatures), *(tag("p", text) for text in said[1:])]
    return joined(tag("h2", "How it was measured"), *parts)
