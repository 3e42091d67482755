"""Cutting long sentences: nothing is lost, every piece fits, and the cuts stand where a reader would pause."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.decoding.splitting import Piece, join_texts, split_text

WORDS = st.text("abcé１。、,.!?ñ中文", min_size=1, max_size=12)


def characters(texts: list[str]) -> list[int]:
    return [len(text.replace(" ", "")) for text in texts]


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@given(st.lists(WORDS, min_size=1, max_size=40), st.integers(1, 15))
def test_the_pieces_are_the_text_and_each_fits(chunks: list[str], limit: int) -> None:
    text = " ".join(chunks)
    pieces = split_text(text, characters, limit)
    assert join_texts([piece.text for piece in pieces], pieces) == text
    assert all(0 < count <= limit for count in characters([piece.text for piece in pieces]))


@given(st.lists(WORDS, min_size=1, max_size=60), st.integers(1, 15))
def test_no_piece_is_short_without_need(chunks: list[str], limit: int) -> None:
    """Where no chunk is too long: a piece and the first chunk of the next do not fit, or it ends in punctuation."""
    pieces = [piece.text for piece in split_text(" ".join(chunks), words, limit)]
    for piece, following in pairwise(pieces):
        full = len(piece.split()) == limit
        assert full or (not piece[-1].isalnum() and 2 * len(piece.split()) >= limit), (piece, following)


def test_a_cut_is_made_after_the_last_punctuation_of_the_second_half() -> None:
    text = "one, two three. four five six seven eight nine ten"
    assert [piece.text for piece in split_text(text, words, 5)] == [
        "one, two three.",
        "four five six seven eight",
        "nine ten",
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("甲乙丙丁戊", "己庚辛壬癸"),
        ("甲乙丙，", "丁戊己庚。"),
        ("甲乙丙，", "丁戊己庚辛壬"),
        ("甲乙丙，", "丁戊，己庚辛"),
        ("甲乙丙，丁，", "戊己，庚辛壬"),
    ],
)
def test_a_sentence_without_spaces_is_cut_at_the_pause_nearest_its_middle(first: str, second: str) -> None:
    """And its translations are joined without one."""
    pieces = split_text(first + second, characters, 6)
    assert pieces == [Piece(first, True), Piece(second, False)]
    assert join_texts(["a", "b"], pieces) == "ab"


def test_what_fits_is_one_piece_and_a_single_character_is_never_cut() -> None:
    assert split_text("  one two  ", words, 2) == [Piece("one two", True)]
    assert [piece.text for piece in split_text("中文", lambda texts: [3 * len(text) for text in texts], 2)] == [
        "中",
        "文",
    ]


def test_an_empty_translation_leaves_no_double_space() -> None:
    pieces = [Piece("a", True), Piece("b", True), Piece("c", True)]
    assert join_texts(["x", "", "z"], pieces) == "x z"
    assert join_texts(["", "y", ""], pieces) == "y"
