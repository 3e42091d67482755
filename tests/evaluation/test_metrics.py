import unicodedata

import pytest

from transformer_mt.data.bleu_tokenizers import bleu_tokenizer
from transformer_mt.errors import UserError
from transformer_mt.evaluation.metrics import score_texts


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [("es", "13a"), ("de", "13a"), ("zh", "zh"), ("zh-TW", "zh"), ("zh_CN", "zh"), ("ja", "ja-mecab"), ("ko", "char"),
     ("th", "char"), ("ar", "13a"), ("hi", "13a")],
)  # fmt: skip
def test_bleu_tokenizer_follows_the_target_language(language: str, tokenizer: str) -> None:
    assert bleu_tokenizer(language) == tokenizer


@pytest.mark.parametrize("tokenizer", ["13a", "intl", "zh", "ja-mecab", "char", "none"])
def test_every_tokenizer_scores_a_copy_100(tokenizer: str) -> None:
    texts = ["今天天气很好我们去公园玩吧", "Das ist ein kleiner Test mit Wörtern ."]
    scores = score_texts(texts, texts, tokenizer)
    assert scores.bleu == pytest.approx(100)
    assert scores.chrf == pytest.approx(100)
    assert f"tok:{tokenizer}" in scores.bleu_signature


def test_13a_scores_chinese_near_nothing_and_zh_does_not() -> None:
    hypotheses, references = ["今天天气非常好我们去公园"], ["今天天气很好我们去公园"]
    assert score_texts(hypotheses, references, "13a").bleu < 1
    assert score_texts(hypotheses, references, "zh").bleu > 50


def test_bleu_by_hand() -> None:
    """5 of 6 unigrams, 3 of 5 bigrams, 2 of 4 trigrams, 1 of 3 4-grams, equal lengths: (5/6 3/5 2/4 1/3)^(1/4)."""
    scores = score_texts(["a b c d x f"], ["a b c d e f"], "none")
    assert scores.bleu == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)


def test_an_accent_is_a_letter_however_it_is_spelled() -> None:
    text = "Tôi đang đọc một quyển sách về lịch sử Việt Nam."
    composed, apart = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert composed != apart
    for pair in ((composed, apart), (apart, composed)):
        scores = score_texts([pair[0]], [pair[1]])
        assert scores.bleu == pytest.approx(100)
        assert scores.chrf == pytest.approx(100)


def test_case_is_told_apart_unless_told_otherwise() -> None:
    for lowercase, case in ((True, "case:lc"), (False, "case:mixed")):
        scores = score_texts(["ONE TWO THREE FOUR"], ["one two three four"], lowercase=lowercase)
        assert [scores.bleu, scores.chrf] == pytest.approx([100, 100] if lowercase else [0, 0])
        assert case in scores.bleu_signature
        assert case in scores.chrf_signature


def test_an_unknown_tokenizer_is_a_user_error() -> None:
    with pytest.raises(UserError, match="not a BLEU tokenizer"):
        score_texts(["a"], ["a"], "moses")
