"""An explanation as lines for a terminal and as JSON."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from transformer_mt.data.word_splitting import printable
from transformer_mt.explaining.explain import Explanation
from transformer_mt.explaining.importance import LEAVE_ONE_OUT, Importance
from transformer_mt.explaining.runners_up import Choice
from transformer_mt.inspect.text_table import Paint, column_width, fit

NUMBER_WIDTH = 18


def lines_about(explanation: Explanation, paint: Paint) -> Iterator[str]:
    """The translation, the words that mattered, the choices along it, and the nearest training pairs."""
    yield f"source: {printable(explanation.sentence)}"
    of = "target" if explanation.is_given else "translation"
    yield f"{of}: {printable(explanation.translation)}  (log-probability {explanation.importance.log_prob:.4f})"
    yield ""
    yield paint.heading("words that mattered")
    yield from _importance(explanation.importance, paint)
    yield ""
    yield paint.heading("what else it might have said")
    yield from _choices(explanation.choices, paint)
    if explanation.neighbours or explanation.no_neighbours:
        yield ""
        yield paint.heading("nearest training pairs")
        if explanation.no_neighbours:
            yield f"not shown. {explanation.no_neighbours}"
        for neighbour in explanation.neighbours:
            yield f"{neighbour.cosine:.3f}  {paint.dim(printable(neighbour.where))}"
            yield f"       {printable(neighbour.src)}"
            yield f"       {printable(neighbour.tgt)}"


def _importance(importance: Importance, paint: Paint) -> Iterator[str]:
    measures = importance.measures
    width = column_width([*importance.words, "drop without its first 3"], 30)
    yield f"{fit('', width)}{''.join(f'{name:>{NUMBER_WIDTH}}' for name in measures)}"
    for number, word in enumerate(importance.words):
        cells = []
        for measure in measures.values():
            cell = f"{measure.scores[number]:>{NUMBER_WIDTH}.4f}"
            cells.append(paint.strong(cell) if measure.scores[number] == max(measure.scores) else cell)
        yield fit(word, width) + "".join(cells)
    correlations = ("-" if one.correlation is None else f"{one.correlation:.2f}" for one in measures.values())
    yield f"{fit('rank correlation', width)}{''.join(f'{cell:>{NUMBER_WIDTH}}' for cell in correlations)}"
    for k in range(len(measures[LEAVE_ONE_OUT].drops)):
        cells = "".join(f"{one.drops[k]:>{NUMBER_WIDTH}.4f}" for one in measures.values())
        yield f"{fit(f'drop without its first {k + 1}', width)}{cells}"
    for name, why in importance.missing.items():
        yield f"no {name}: {why}"


def _choices(choices: list[Choice], paint: Paint) -> Iterator[str]:
    width = column_width([one.token for choice in choices for one in [choice.taken, *choice.best]], 14)
    for choice in choices:
        cells = [f"{fit(choice.taken.token, width)} {choice.taken.probability:.4f}"]
        others = [f"{fit(one.token, width)} {one.probability:.4f}" for one in choice.best if one.id != choice.taken.id]
        place = "" if choice.rank == 1 else f"  (place {choice.rank:,})"
        yield "  ".join([paint.strong(cells[0]), *others[: len(choice.best) - 1]]) + place


def as_json(explanation: Explanation) -> str:
    """All of it as one JSON object, with every digit."""
    return json.dumps(asdict(explanation), ensure_ascii=False)
