"""An explanation as one HTML page, which needs nothing from outside and runs no script."""

from collections.abc import Sequence

from transformer_mt.explaining.explain import Explanation
from transformer_mt.explaining.importance import Importance, Measure
from transformer_mt.explaining.neighbours import Neighbour
from transformer_mt.explaining.runners_up import Choice
from transformer_mt.inspect.trace import Candidate
from transformer_mt.pages.html_text import Html, joined, page, table, tag

STYLE = """
table { border-collapse: collapse; margin: 0.4rem 0; }
th, td { padding: 0.15rem 0.7rem 0.15rem 0; text-align: start; }
.number { text-align: end; font-variant-numeric: tabular-nums; }
.word { padding: 0.1rem 0.3rem; border-radius: 0.2rem; }
.words { font-size: 1.15rem; margin: 0.2rem 0; line-height: 1.8; }
"""


def explanation_page(explanation: Explanation, model: str) -> str:
    """The page. `model` names the run; what comes from texts and paths is escaped."""
    importance = explanation.importance
    of = "Target" if explanation.is_given else "Translation"
    parts = [
        tag("h1", "Why this translation?"),
        tag("p", tag("bdi", model), class_="muted"),
        tag("p", "Source: ", tag("bdi", explanation.sentence)),
        tag("p", f"{of}: ", tag("bdi", explanation.translation), f" (log-probability {importance.log_prob:.4f})"),
        tag("h2", "Words that mattered"),
        *(_shaded(name, importance.words, measure) for name, measure in importance.measures.items()),
        _numbers(importance),
        *(tag("p", f"No {name}: {why}.", class_="muted") for name, why in importance.missing.items()),
        tag("h2", "What else it might have said"),
        _choices(explanation.choices),
    ]
    if explanation.neighbours or explanation.no_neighbours:
        parts.append(tag("h2", "Nearest training pairs"))
        problem = explanation.no_neighbours
        parts.append(tag("p", f"Not shown. {problem}") if problem else _neighbours(explanation.neighbours))
    return page("Why this translation?", joined(*parts), STYLE)


def _shaded(name: str, words: Sequence[str], measure: Measure) -> Html:
    """The words, the darker the more one mattered: blue for the translation, orange against it."""
    largest = max(map(abs, measure.scores)) or 1.0
    spans = []
    for word, score in zip(words, measure.scores, strict=True):
        share = 100 * abs(score) / largest * 0.6  # the ink stays readable on it
        colour = f"background: color-mix(in srgb, var(--s{int(score < 0)}) {share:.0f}%, transparent)"
        spans += [tag("span", word, class_="word", style=colour, title=f"{score:.4f}"), " "]
    return joined(tag("div", name, class_="muted"), tag("p", *spans, class_="words", dir="auto"))


def _numbers(importance: Importance) -> Html:
    """Every number, the correlations, and the drops."""
    measures = list(importance.measures.values())
    rows = [
        (word, [f"{measure.scores[number]:.4f}" for measure in measures])
        for number, word in enumerate(importance.words)
    ]
    correlations = ["–" if one.correlation is None else f"{one.correlation:.2f}" for one in measures]
    rows.append(("rank correlation with the first", correlations))
    for k in range(len(measures[0].drops)):
        rows.append((f"drop without its first {k + 1}", [f"{one.drops[k]:.4f}" for one in measures]))
    return _table(["", *importance.measures], [[tag("bdi", name), *cells] for name, cells in rows])


def _choices(choices: Sequence[Choice]) -> Html:
    def shown(one: Candidate) -> Html:
        return joined(tag("bdi", one.token), f" {one.probability:.4f}")

    rows = []
    for choice in choices:
        others = [shown(one) for one in choice.best if one.id != choice.taken.id][: len(choice.best) - 1]
        rows.append([tag("b", shown(choice.taken)), f"{choice.rank:,}", *others])
    return _table(["token", "place", "others"], rows)


def _neighbours(neighbours: Sequence[Neighbour]) -> Html:
    rows = [
        [f"{one.cosine:.3f}", tag("bdi", one.src), tag("bdi", one.tgt), tag("small", tag("bdi", one.where))]
        for one in neighbours
    ]
    return _table(["cosine", "source", "target", "where"], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    body = [
        tag("tr", *(tag("td", cell, class_=None if isinstance(cell, Html) else "number") for cell in row))
        for row in rows
    ]
    return table([tag("th", text) for text in heads], body)
