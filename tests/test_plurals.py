"""What messages count."""

import pytest

from transformer_mt.plurals import counted


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((0, "pair"), "0 pairs"),
        ((1, "pair"), "1 pair"),
        ((2, "pair"), "2 pairs"),
        ((1, "entry", "entries"), "1 entry"),
        ((3000, "entry", "entries"), "3,000 entries"),
    ],
)
def test_one_is_not_several(counts: tuple, said: str) -> None:
    assert counted(*counts) == said
