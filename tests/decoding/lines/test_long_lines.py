"""Cutting long sentences: nothing is lost, every piece fits, and the cuts stand where a reader would pause."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from translators import SMALL, make_translator

from transformer_mt.decoding.lines.long_lines import Piece, join_texts, split_text
from transformer_mt.decoding.lines.sentences import split_sentences
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator

LETTERS = st.sampled_from([*'abcéABC１。、,.!?"» \t\n\u00a0\u3000ñ中文กय।\u0301'])


def characters(texts: list[str]) -> list[int]:
    return [len("".join(text.split())) for text in texts]


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@given(st.text(LETTERS, max_size=120) | st.text(), st.integers(1, 15))
def test_the_pieces_are_the_text_and_each_fits(text: str, limit: int) -> None:
    pieces = split_text(text, characters, limit)
    assert join_texts([piece.text for piece in pieces], pieces) == text.strip()
    assert all(0 < count <= limit for count in characters([piece.text for piece in pieces]))
    assert all(piece.text == piece.text.strip() and not piece.space_before.strip() for piece in pieces)


@given(st.text(LETTERS, max_size=120))
def test_sentences_that_fit_are_the_pieces(text: str) -> None:
    assert [p.text for p in split_text(text, characters, 120)] == [text[a:b] for a, b in split_sentences(text)]


@given(st.lists(st.text("abcé,:", min_size=1, max_size=12), min_size=1, max_size=60), st.integers(1, 15))
def test_no_piece_is_short_without_need(chunks: list[str], limit: int) -> None:
    """Within a sentence, a piece and the first chunk of the next do not fit, or it ends in a clause mark."""
    pieces = [piece.text for piece in split_text(" ".join(chunks), words, limit)]
    for piece, following in pairwise(pieces):
        full = len(piece.split()) == limit
        assert full or (not piece[-1].isalnum() and 2 * len(piece.split()) >= limit), (piece, following)


def test_sentences_come_first_then_clauses_then_words() -> None:
    text = "Go on.  One, two three; four five six seven eight nine ten\tEnd. No"
    assert split_text(text, words, 5) == [
        Piece("Go on.", ""),
        Piece("One, two three;", "  "),
        Piece("four five six seven eight", " "),
        Piece("nine ten\tEnd.", " "),
        Piece("No", " "),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("甲乙丙丁戊", "己庚辛壬癸"),
        ("甲乙丙，", "丁戊己庚。"),
        ("甲乙丙，", "丁戊己庚辛壬"),
        ("甲乙丙，", "丁戊，己庚辛"),
        ("甲乙丙，丁，", "戊己，庚辛壬"),
        ("甲乙丙（丁，）", "戊己庚辛壬"),
        ("abcde", "f\u0301\u0302ghij"),
    ],
)
def test_a_clause_without_spaces_is_cut_at_the_pause_nearest_its_middle(first: str, second: str) -> None:
    """Or between letters, never between a letter and its marks. Only a language with spaces gets one there."""
    pieces = split_text(first + second, characters, 8)
    assert pieces == [Piece(first, ""), Piece(second, "")]
    assert join_texts(["丁，", "庚"], pieces) == "丁，庚"
    assert join_texts(["x,", "y"], pieces) == ("x,y" if first == "abcde" else "x, y")


@pytest.mark.parametrize(
    ("text", "found", "joined"),
    [
        ("他来了。她走了！“真的？”", ["He came.", "She left!", '"Really?"'], 'He came. She left! "Really?"'),
        ("他来了。她走了。", ["彼が来た。", "彼女は去った。"], "彼が来た。彼女は去った。"),
        ("他来了。 她走了。", ["彼が来た。", "彼女は去った。"], "彼が来た。 彼女は去った。"),
        ("He came. She left.", ["他来了。", "她走了。"], "他来了。她走了。"),
        ("He came. She left.", ["「来た」。", "ラー。"], "「来た」。ラー。"),
        ("He came.\nShe left.", ["他来了。", "她走了。"], "他来了。\n她走了。"),
        ("He came.  She left.", ["他来了。", "她走了。"], "他来了。  她走了。"),
        ("He came. She left.", ["他来了。", "OK."], "他来了。 OK."),
        ("He came. She left.", ["เขามา", "เธอไป"], "เขามา เธอไป"),
        ("เขามา เธอไป", ["He came.", "She left."], "He came. She left."),
        ("그가 왔다. 그녀는 갔다.", ["他来了。", "她走了。"], "他来了。她走了。"),
        ("He came. She left.", ["그가 왔다.", "그녀는 갔다."], "그가 왔다. 그녀는 갔다."),
        ("他来了。她走了。", ["그가 왔다.", "그녀는 갔다."], "그가 왔다. 그녀는 갔다."),
    ],
)
def test_sentences_have_the_spaces_of_their_own_language(text: str, found: list[str], joined: str) -> None:
    pieces = split_text(text, characters, 100)
    assert len(pieces) == len(found)
    assert join_texts(found, pieces) == joined


def test_what_fits_is_one_piece_and_a_single_character_is_never_cut() -> None:
    assert split_text("  one two  ", words, 2) == [Piece("one two", "")]
    assert [piece.text for piece in split_text("中文", lambda texts: [3 * len(text) for text in texts], 2)] == [
        "中",
        "文",
    ]


def test_white_space_comes_back_as_it_was_and_not_around_an_empty_translation() -> None:
    pieces = [Piece("a", ""), Piece("b", "\n\n"), Piece("c", " \t")]
    assert join_texts(["x", "y", "z"], pieces) == "x\n\ny \tz"
    assert join_texts(["x", "", "z"], pieces) == "x \tz"
    assert join_texts(["", "y", ""], pieces) == "y"


def test_the_pieces_of_all_lines_are_searched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """In as many batches as so many lines would be, and each line is what it is alone, among others of any length."""
    translator = make_translator({**SMALL, "max_len": 16})
    sentences = "one two three four five. six seven eight. nine ten one two three four. "
    texts = [sentences * number for number in (4, 1, 2, 0, 3)] + ["one two"]
    options = search_options(translator.config.decoding, too_long="split", beam_size=2, batch_size=20)
    alone = [translator.translate_lines([text], options)[0] for text in texts]
    sizes, search = [], Translator._search_texts

    def counted(self: Translator, job: Any) -> object:
        sizes.append(len(job[0]))
        return search(self, job)

    monkeypatch.setattr(Translator, "_search_texts", counted)
    assert translator.translate_lines(texts, options) == alone
    assert sizes == [20, 10, 1], "the pieces, and the line that fits"
