"""Small test sets, by hand."""

from transformer_mt.judging.scored_set import Output, ScoredSet


def small_set(
    sources: list[str] | None, references: list[str], *systems: list[str], certainty: list[float] | None = None
) -> ScoredSet:
    """A test set with one reference a sentence."""
    outputs = [Output(f"system {number}", list(texts), certainty) for number, texts in enumerate(systems)]
    places = [f"line {number}" for number in range(1, len(references) + 1)]
    return ScoredSet("few", sources, [references], places, outputs)
