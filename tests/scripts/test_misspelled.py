"""scripts/misspelled.py: so many letters are swapped, within their words, and the same for every model."""

from pathlib import Path

import pytest
from misspelled import row, swapped
from toy import toy_pairs
from translators import PICTURES, SMALL, make_translator, write_run

TEXT = "The coffee that their sister drank in 1999 is not hot, and nobody knows why it was so cold there. " * 40


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2])
def test_so_many_letters_stand_elsewhere(share: float) -> None:
    found = swapped(TEXT, share, 1)
    assert len(found) == len(TEXT)
    assert [sorted(word) for word in found.split()] == [sorted(word) for word in TEXT.split()]
    letters = [pair for pair in zip(TEXT, found, strict=True) if pair[0].isalpha()]
    moved = sum(one != other for one, other in letters) / len(letters)
    # A little less than asked: the last letter of a word has no neighbour to ask for, and equal ones move unseen.
    assert 0.7 * share <= moved <= share
    assert found == swapped(TEXT, share, 1)
    assert share == 0 or found != swapped(TEXT, share, 2)


def test_a_row_for_each_kind_of_source(tmp_path: Path) -> None:
    sources, references = (list(side) for side in zip(*toy_pairs(3), strict=True))
    for name, model in (("drawn", PICTURES), ("words", SMALL)):
        run = write_run(tmp_path / name, make_translator(model))
        found = row(run, [sources, [swapped(text, 0.2, 1) for text in sources]], references)
        assert found[0] == name
        assert all(0 <= float(score) <= 100 for score in found[1:])
        assert len(found) == 3
