"""The part of a report that shows sentences: what changed, the best and the worst, the faults."""

from collections.abc import Sequence

from transformer_mt.data.word_splitting import printable
from transformer_mt.judging.differences import marked_pair, missed_by
from transformer_mt.judging.faults import FAULTS
from transformer_mt.judging.judgement import Judgement, best_and_worst, counts_of_changes, largest_changes
from transformer_mt.pages.html_text import Html, joined, table, tag

NUM_CHANGED = 8
NUM_BEST, NUM_WORST = 4, 8
NUM_FAULTY = 3  # sentences of each fault
MOST_LETTERS = 1500  # of a text are shown


def changed_sentences(judgement: Judgement) -> Html:
    """How many sentences are better and worse in the second system, and those that changed most."""
    better, worse, equal = counts_of_changes(judgement)
    won, lost = largest_changes(judgement, NUM_CHANGED)
    total = len(judgement.test_set)
    bars = [
        tag("div", f"{number:,} {what}", class_=f"share {kind}", style=f"flex-grow: {number}")
        for number, what, kind in ((better, "better in B", "up"), (equal, "as good", "same"), (worse, "worse", "down"))
        if number
    ]
    parts = [
        tag("h3", "What changed from A to B"),
        tag("p", f"Of {total:,} sentences, by chrF of each:", class_="muted"),
        tag("div", *bars, class_="shares"),
    ]
    for title, places in (("Gained most", won), ("Lost most", lost)):
        if places:
            parts += [tag("h4", title), _blocks(judgement, places, (0, 1))]
    return joined(*parts)


def extreme_sentences(judgement: Judgement) -> Html:
    """The worst and the best sentences of each system."""
    parts = []
    for system, name in enumerate(judgement.names):
        best, worst = best_and_worst(judgement, system, NUM_WORST)
        of = f" of {name}" if judgement.is_comparison else ""
        parts += [tag("h4", f"Worst{of}"), _blocks(judgement, worst, (system,))]
        if best:
            parts += [tag("h4", f"Best{of}"), _blocks(judgement, best[:NUM_BEST], (system,))]
    return joined(tag("h3", "Worst and best sentences"), *parts)


def faulty_sentences(judgement: Judgement) -> Html:
    """How often each fault was found, and examples."""
    total = len(judgement.test_set)
    heads = [tag("th", name if judgement.is_comparison else "sentences", class_="number") for name in judgement.names]
    rows, examples = [], []
    for fault, (_, meaning) in FAULTS.items():
        systems = judgement.faults[fault]
        cells = [tag("td", f"{len(places):,} ({len(places) / total:.1%})", class_="number") for places in systems]
        rows.append(tag("tr", tag("th", fault), *cells, tag("td", meaning)))
        for system, places in enumerate(systems):
            if places and fault != "empty":
                of = f" in {judgement.names[system]}" if judgement.is_comparison else ""
                examples += [tag("h4", f"{fault.capitalize()}{of}")]
                examples.append(_blocks(judgement, places[:NUM_FAULTY], (system,)))
    counts = table([tag("th", "fault"), *heads, tag("th", "what it is")], rows)
    return joined(tag("h3", "Faults that a program can see"), counts, *examples)


def _blocks(judgement: Judgement, places: Sequence[int], systems: Sequence[int]) -> Html:
    return tag("div", *(_block(judgement, place, systems) for place in places), class_="sentences")


def _block(judgement: Judgement, place: int, systems: Sequence[int]) -> Html:
    """A sentence: source, references, and the translations of these systems with their differences marked."""
    test_set = judgement.test_set
    references = [printable(texts[place], MOST_LETTERS) for texts in test_set.references]
    texts = [printable(test_set.outputs[system].texts[place], MOST_LETTERS) for system in systems]
    lines = []
    if test_set.sources is not None:
        lines.append(_line("source", printable(test_set.sources[place], MOST_LETTERS), class_="source"))
    names = [judgement.names[system] for system in systems]
    lines.append(_line("reference", *_reference(texts, references[0], names)))
    lines += [_line("or", other) for other in references[1:]]
    for system, text in zip(systems, texts, strict=True):
        name = judgement.names[system] if judgement.is_comparison else "translation"
        pieces = [
            tag("mark", piece) if is_marked else piece for piece, is_marked in marked_pair(text, references[0])[0]
        ]
        lines.append(_line(name, *pieces) if text.strip() else _line(name, "nothing", class_="none"))
    scores = [judgement.sentence_scores[system][place] for system in systems]
    said = " → ".join(f"{score:.1f}" for score in scores)
    if len(scores) == 2:
        said += f" ({scores[1] - scores[0]:+.1f})"
    head = tag("p", tag("bdi", test_set.places[place]), f" · chrF {said}", class_="muted")
    return tag("article", head, tag("dl", *lines))


def _reference(texts: list[str], reference: str, names: list[str]) -> list[str]:
    """A reference with what the translations lack marked; what only one of two lacks is marked as such."""
    parts: list[str] = []
    for piece, lacking in missed_by(texts, reference):
        one = len(lacking) < len(texts)
        said = f"missing from {' and '.join(names[number] for number in lacking)}"
        parts.append(tag("u", piece, class_="one" if one else None, title=said) if lacking else piece)
    return parts


def _line(name: str, *content: str, class_: str | None = None) -> Html:
    return joined(tag("dt", name), tag("dd", *content, dir="auto", class_=class_))
