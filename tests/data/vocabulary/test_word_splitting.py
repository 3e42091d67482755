import unicodedata
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.data.word_splitting import JOINER, LONGEST_WORD, cut_long_words, join_words, split_words


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The cat sat.", "The cat sat ￭."),
        ("¿Dónde está, Ana?", "¿￭ Dónde está ￭, Ana ￭?"),
        ('("Hi")', '(￭ "￭ Hi ￭" ￭)'),
        ("don't stop...", "don ￭'￭ t stop ￭. ￭. ￭."),
        ("a - b", "a - b"),
        ("¡¡Ay!!", "¡￭ ¡￭ Ay ￭! ￭!"),
        ("...", ". ￭. ￭."),
        ("</s>", "<￭ /￭ s ￭>"),
        ("a￭b ￭", "a ￭<joiner>￭ b <joiner>"),
        ("किताब अच्छी", "किताब अच्छी"),
    ],
)
def test_words_stay_bare_and_punctuation_carries_the_joiner(text: str, tokens: str) -> None:
    assert split_words(text) == tokens.split(" ")
    assert join_words(split_words(text)) == text


@given(st.text(alphabet=st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("￭<>/ .,'¿?ab"))))
def test_joining_is_the_way_back_for_any_text(text: str) -> None:
    tokens = split_words(text)
    assert join_words(tokens) == " ".join(text.split())
    assert all(token and not any(character.isspace() for character in token) for token in tokens)


@given(st.text(alphabet=st.characters(categories=["L", "N"]), min_size=1))
def test_a_word_is_one_token_whatever_stands_beside_it(word: str) -> None:
    for text in (word, f"¿{word}?", f'a ("{word}").', f"-{word}-"):
        assert word in split_words(text)
    assert not any(JOINER in token for token in split_words(unicodedata.normalize("NFC", word)))


@given(st.lists(st.tuples(st.sampled_from(["a", "9", "語", "e\u0301", " ", "."]), st.integers(1, 2_500)), max_size=5))
def test_only_long_words_are_cut(stretches: list[tuple[str, int]]) -> None:
    text = "".join(letter * number for letter, number in stretches)
    pieces = list(cut_long_words(text))
    assert "".join(pieces) == text
    for piece, after in pairwise([*pieces, ""]):
        words = [list(group) for is_word, group in groupby(piece, lambda c: c not in " .") if is_word]
        assert max(map(len, words), default=0) <= LONGEST_WORD
        assert not after or len(words[-1]) == LONGEST_WORD
