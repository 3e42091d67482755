import pytest

from transformer_mt.training.validation import is_better


@pytest.mark.parametrize(
    ("metric", "now", "best", "expected"),
    [
        ("bleu", {"bleu": 1.0, "nll": 3.0}, None, True),
        ("bleu", {"bleu": 2.0, "nll": 9.0}, {"bleu": 1.0, "nll": 3.0}, True),
        ("bleu", {"bleu": 1.0, "nll": 1.0}, {"bleu": 2.0, "nll": 3.0}, False),
        ("bleu", {"bleu": 0.0, "nll": 2.0}, {"bleu": 0.0, "nll": 3.0}, True),
        ("bleu", {"bleu": 0.0, "nll": 3.0}, {"bleu": 0.0, "nll": 3.0}, False),
        ("chrf", {"chrf": 3.0, "nll": 3.0}, {"chrf": 2.0, "nll": 1.0}, True),
        ("nll", {"nll": 2.0}, {"nll": 3.0}, True),
        ("nll", {"nll": 3.0}, {"nll": 2.0}, False),
        ("ppl", {"ppl": 8.0, "nll": 2.0}, {"ppl": 9.0, "nll": 2.2}, True),
    ],
)
def test_better_by_the_metric_then_by_nll(metric: str, now: dict, best: dict | None, expected: bool) -> None:
    assert is_better(metric, now, best) is expected
