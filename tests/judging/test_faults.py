"""Copies, empties, repetitions, lengths and marked differences, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sets import small_set

from transformer_mt.judging.differences import Piece, marked_pair, missed_by
from transformer_mt.judging.faults import faults_of


@pytest.mark.parametrize(
    ("source", "reference", "text", "faults"),
    [
        ("A dog.", "Ein Hund.", "Ein Hund.", []),
        ("A dog.", "Ein Hund.", "", ["empty"]),
        ("A dog.", "Ein Hund.", " ", ["empty"]),
        ("A dog.", "", "", []),
        ("A dog.", "Ein Hund.", "a dog", ["copied"]),
        ("Berlin!", "Berlin!", "Berlin!", []),
        ("…", "…", "…", []),
        ("I see it.", "Ich sehe es.", "Ich sehe sehe es.", ["repeated"]),
        ("Very very good.", "Sehr gut, sehr.", "Sehr sehr gut.", []),  # the source repeats as much
        ("It was so.", "Es war sehr, sehr so.", "Es war sehr sehr so.", []),
        ("I go home now, he said.", "Ich gehe heim, sagte er.", "Ich gehe heim und ich gehe heim.", ["repeated"]),
        ("one two three four", "eins zwei drei vier fünf sechs", "eins zwei", ["too short"]),
        ("one", "eins zwei drei vier fünf sechs", "eins zwei drei", []),  # exactly half
        ("one two", "eins zwei drei", "eins", []),  # fewer than half, but only by two words
        ("one", "eins", "eins zwei drei vier", ["too long"]),
        ("one", "eins", "eins zwei drei", []),
        ("猫", "猫が好き", "猫が好き好き", ["repeated"]),
    ],
)
def test_faults_by_hand(source: str, reference: str, text: str, faults: list[str]) -> None:
    found = faults_of(small_set([source], [reference], [text]))
    assert [name for name, (places,) in found.items() if places == [0]] == faults


def test_without_sources_nothing_is_a_copy_and_every_reference_counts() -> None:
    found = faults_of(small_set(None, ["Ein Hund."], ["A dog."]))
    assert found["copied"] == [[]]
    test_set = small_set(["x y z"], ["eins zwei drei vier fünf sechs"], ["eins eins"])
    test_set.references.append(["eins eins"])
    assert {name for name, (places,) in faults_of(test_set).items() if places} == set()


def marked(pieces: list[Piece]) -> str:
    return "".join(f"[{piece.text}]" if piece.is_marked else piece.text for piece in pieces)


@pytest.mark.parametrize(
    ("text", "reference", "of_text", "of_reference"),
    [
        ("the cat sat", "the cat sat", "the cat sat", "the cat sat"),
        ("a cat sat.", "the cat sat!", "[a] cat sat[.]", "[the] cat sat[!]"),
        ("the big black cat", "the cat", "the [big black] cat", "the cat"),
        ("", "the cat", "", "[the cat]"),
        ("the cat", "", "[the cat]", ""),
        ("猫が好き", "犬が好き", "[猫]が好き", "[犬]が好き"),
        ("one  two", "two", "[one]  two", "two"),
    ],
)
def test_differences_by_hand(text: str, reference: str, of_text: str, of_reference: str) -> None:
    assert tuple(map(marked, marked_pair(text, reference))) == (of_text, of_reference)


def test_a_reference_says_which_translations_lack_its_words() -> None:
    found = missed_by(["the cat ran", "a cat ran"], "the cat sat")
    assert found == [("the", (1,)), (" cat ", ()), ("sat", (0, 1))]


@given(st.text(), st.text())
def test_pieces_are_the_text_and_what_is_not_marked_is_in_both(text: str, reference: str) -> None:
    sides = marked_pair(text, reference)
    assert ["".join(piece.text for piece in pieces) for pieces in sides] == [text, reference]
    kept = ["".join("".join(piece.text.split()) for piece in pieces if not piece.is_marked) for pieces in sides]
    assert kept[0] == kept[1]
