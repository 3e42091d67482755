"""A judgement in lines of text for a terminal."""

from collections.abc import Iterator

from transformer_mt.judging.judgement import Judgement, counts_of_changes, verdict
from transformer_mt.judging.scores import HIGHER_IS_BETTER, Score, is_significant


def lines_about(judgement: Judgement) -> Iterator[str]:
    """The scores with their intervals; of two systems p-values and the verdict; the faults; the signatures."""
    test_set = judgement.test_set
    yield f"{test_set.name}: {test_set.size}"
    yield from test_set.remarks
    for letter, output in zip(judgement.names, test_set.outputs, strict=True):
        note = f" ({output.note})" if output.note else ""
        yield f"{letter}: {output.name}{note}" if judgement.is_comparison else f"{output.name}{note}"
    yield from _table(judgement)
    if judgement.is_comparison:
        better, worse, equal = counts_of_changes(judgement)
        yield verdict(judgement)
        yield f"sentences by chrF: {better:,} better in B, {worse:,} worse, {equal:,} as good"
    for name, systems in judgement.faults.items():
        if any(systems):
            numbers = ", ".join(f"{len(some):,} in {of}" for of, some in zip(judgement.names, systems, strict=True))
            yield f"{name}: {numbers if judgement.is_comparison else format(len(systems[0]), ',')}"
    for name, signature in judgement.scores.signatures.items():
        yield f"{name} {signature}"


def _table(judgement: Judgement) -> Iterator[str]:
    comparing = judgement.is_comparison
    heads = [f"{name:>16}" for name in judgement.names] if comparing else []
    if comparing:
        yield f"{'':5}{''.join(heads)}{'B - A':>9}{'p':>8}"
    for name, scores in judgement.scores.scores.items():
        cells = "".join(f"{shown(score):>16}" for score in scores)
        if comparing:
            first, second = scores
            star = " *" if is_significant(scores) else "  "
            cells += f"{second.value - first.value:>+9.2f}{second.p_text:>8}{star}"
        yield f"{name:5}{cells}{'' if HIGHER_IS_BETTER[name] else '  lower is better'}"
    if comparing and not judgement.is_short:
        yield "*: beyond chance, p < 0.05 by sacreBLEU's paired bootstrap"


def shown(score: Score) -> str:
    """A score with half the width of its interval."""
    return f"{score.value:.2f} ± {score.half:.2f}"
