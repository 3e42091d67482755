"""Minimum Bayes risk: the scores are sacreBLEU's, and the choice is that of asking it about every two candidates."""

import json
import random
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from toy import toy_pairs
from translators import ONE_STREAM, SMALL, make_translator

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.decoding.lines.line_formats import json_line
from transformer_mt.decoding.lines.long_lines import TooLong, join_texts, split_text
from transformer_mt.decoding.minimum_bayes_risk import UTILITIES, expected_utilities, shares_of_probability
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translation import Translation
from transformer_mt.errors import UserError
from transformer_mt.markup.html_translator import HtmlTranslator

TRANSLATOR = make_translator(
    {"num_encoder_layers": 1, **SMALL}, tokenizer={"kind": "bpe", "vocab_size": 300}, noise=0.4
)
STREAM = make_translator({**SMALL, **ONE_STREAM}, tokenizer={"kind": "bpe", "vocab_size": 300}, noise=0.4)
SOURCES = [src for src, _ in toy_pairs(6)]
METRICS: dict[str, Any] = {"chrf": lambda _: CHRF(), "bleu": lambda name: BLEU(tokenize=name, effective_order=True)}
HOSTILE = [
    "",
    " ",
    "a",
    "aaaaaaa",
    "a a a a a a",
    "the cat sat on the mat.",
    "the cat",
    "mat the on sat cat",
    "\u0301é 😀😀",
]


def by_sacrebleu(texts: list[str], metric: str, tokenizer: str = "13a") -> np.ndarray:
    """The score of each text against each other, asked one by one."""
    scorer = METRICS[metric](tokenizer)
    return np.array([[scorer.sentence_score(text, [reference]).score for reference in texts] for text in texts])


def some_lines(seed: int, num: int) -> list[str]:
    draw = random.Random(seed)
    words = ["the", "cat", "sat", "on", "a", "mat,", "and", "dogs", "(all)", "3.5", "sleep!"]
    return [" ".join(draw.choices(words, k=draw.randint(0, 12))) for _ in range(num)]


@pytest.mark.parametrize("metric", UTILITIES)
@pytest.mark.parametrize("texts", [HOSTILE, some_lines(1, 25), some_lines(2, 2), ["one"], [""]], ids=len)
def test_the_scores_are_those_of_sacrebleu(texts: list[str], metric: str) -> None:
    assert UTILITIES[metric](texts, "es") == pytest.approx(by_sacrebleu(texts, metric), abs=1e-9)


def test_bleu_cuts_words_as_the_language_does() -> None:
    texts = ["猫坐在垫子上", "猫在垫子上", "狗坐着"]
    assert UTILITIES["bleu"](texts, "zh") == pytest.approx(by_sacrebleu(texts, "bleu", "zh"), abs=1e-9)
    assert UTILITIES["bleu"](texts, "zh")[0, 1] > UTILITIES["bleu"](texts, "es")[0, 1]


def test_many_ngrams_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = some_lines(3, 9)
    whole = UTILITIES["chrf"](texts, "es")
    monkeypatch.setattr("transformer_mt.decoding.minimum_bayes_risk.COLUMNS_AT_ONCE", 5)
    assert np.array_equal(UTILITIES["chrf"](texts, "es"), whole)


@pytest.mark.parametrize("metric", UTILITIES)
def test_equal_texts_count_as_often_as_they_come(metric: str) -> None:
    texts, weights = ["a cat sat", "the cat", "a cat sat", "dogs"], [0.2, 0.4, 0.3, 0.1]
    expected = by_sacrebleu(texts, metric) @ weights
    assert expected_utilities(texts, weights, metric) == pytest.approx(expected, abs=1e-9)
    assert expected_utilities(texts, [7 * w for w in weights], metric) == pytest.approx(expected, abs=1e-9)


def test_weights_are_probabilities_however_small() -> None:
    assert shares_of_probability([-2000.0, -2000.0 - np.log(4)]) == pytest.approx([1.0, 0.25])


@pytest.mark.parametrize("metric", UTILITIES)
def test_the_translation_is_the_brute_force_choice(metric: str) -> None:
    """Of the same hypotheses without `mbr`, weighted by the model's probabilities."""
    options = search_options(TRANSLATOR.config.decoding, beam_size=6, n_best=6)
    asked = options.model_copy(update={"n_best": 3, "mbr": metric})
    changes = 0
    for translator in (TRANSLATOR, STREAM):
        listed, chosen = (translator.translate_lines(SOURCES, some) for some in (options, asked))
        for before, after in zip(listed, chosen, strict=True):
            probabilities = np.exp([h.log_prob for h in before.hypotheses])
            texts = [h.text for h in before.hypotheses]
            utilities = by_sacrebleu(texts, metric) @ (probabilities / probabilities.sum())
            best = sorted(range(len(texts)), key=lambda i: -round(utilities[i], 6))[:3]
            assert [h.utility for h in after.hypotheses] == pytest.approx([utilities[i] for i in best], abs=1e-3)
            assert after.text == texts[best[0]]
            changes += best[0] != 0
    assert changes, "nothing was chosen that the search would not have written first"


@pytest.mark.parametrize("metric", UTILITIES)
def test_of_samples_the_one_most_like_all_of_them_is_chosen(metric: str) -> None:
    """Of the same samples without `mbr`, each of which weighs the same."""
    options = search_options(TRANSLATOR.config.decoding, sampling_topk=40, n_best=9)
    asked = search_options(TRANSLATOR.config.decoding, sampling_topk=40, n_best=2, mbr=metric, mbr_candidates=9)
    listed, chosen = (TRANSLATOR.translate_lines(SOURCES, some) for some in (options, asked))
    changes = 0
    for before, after in zip(listed, chosen, strict=True):
        utilities = by_sacrebleu([h.text for h in before.hypotheses], metric).mean(axis=1)
        best = sorted(range(9), key=lambda i: -round(utilities[i], 6))[:2]
        assert [h.text for h in after.hypotheses] == [before.hypotheses[i].text for i in best]
        assert [h.utility for h in after.hypotheses] == pytest.approx([utilities[i] for i in best], abs=1e-6)
        changes += best[0] != 0
    assert changes


def test_how_many_candidates_there_are() -> None:
    config = DecodingConfig(beam_size=4)
    assert search_options(config, mbr="chrf", temperature=1.0).of_search.num_rows == 30
    assert search_options(config, mbr="chrf", temperature=1.0, mbr_candidates=9, beam_size=1).of_search.n_best == 9
    assert search_options(config, mbr="chrf").of_search.n_best == 4
    assert search_options(config, mbr="chrf", mbr_candidates=9).of_search.beam_size == 9
    assert search_options(config, mbr="chrf", mbr_candidates=4, n_best=4).of_search.n_best == 4
    assert search_options(config, mbr="chrf", mbr_candidates=2, beam_size=8).of_search.n_best == 2
    asked = DecodingConfig(beam_size=4, mbr="bleu", mbr_candidates=4)
    assert search_options(asked, beam_size=1).mbr is None, "a validation is greedy"
    assert search_options(asked, beam_size=3).of_search.n_best == 3
    assert search_options(DecodingConfig(beam_size=1), beam_size=1).of_search.n_best == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mbr": "chrf", "beam_size": 1}, "mbr is chrf, and beam_size 1 finds one candidate"),
        ({"mbr": "chrf", "beam_size": 5, "mbr_candidates": 9}, "mbr_candidates is 9, and beam_size 5"),
        ({"mbr_candidates": 9}, "mbr_candidates is 9, and mbr is not asked for"),
        ({"mbr": "ter"}, "mbr: 'ter' is not one of chrf, bleu"),
    ],
)
def test_what_leaves_nothing_to_choose_from_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        search_options(DecodingConfig(), **changes)


def hypotheses_side_by_side(texts: list[str], options: SearchOptions) -> list[tuple[Translation, ...]]:
    """The best of each text, the second best of each, and so on."""
    found = TRANSLATOR.translate_lines(texts, options)
    return list(zip(*(translated.hypotheses for translated in found), strict=True))


def mean_utility(parts: tuple[Translation, ...]) -> float:
    return float(np.mean([part.utility for part in parts if part.utility is not None]))


def test_a_line_in_pieces_is_made_of_the_choices_for_its_pieces() -> None:
    """Side by side, the best with the best, by the mean of their utilities."""
    line = "one two three. " * 6 + "four seven. " * 3
    options = search_options(TRANSLATOR.config.decoding, beam_size=4, n_best=2, mbr="chrf", too_long=TooLong.SPLIT)
    tokenizer = TRANSLATOR.src_tokenizer
    pieces = split_text(line, lambda texts: [len(row) for row in tokenizer.encode_batch(texts)], 23)
    assert len(pieces) > 1
    ranked = hypotheses_side_by_side([piece.text for piece in pieces], options)
    (joined,) = TRANSLATOR.translate_lines([line], options)
    assert [h.text for h in joined.hypotheses] == [join_texts([h.text for h in row], pieces) for row in ranked]
    assert [h.utility for h in joined.hypotheses] == pytest.approx([mean_utility(row) for row in ranked])


def test_a_page_is_made_of_the_choices_for_its_segments() -> None:
    pages = HtmlTranslator(TRANSLATOR, Aligner.train(toy_pairs(50)))
    options = search_options(TRANSLATOR.config.decoding, beam_size=6, n_best=3, mbr="chrf")
    ranked = hypotheses_side_by_side(SOURCES[:2], options)
    (page,) = pages.translate_lines([f"<p>{SOURCES[0]}<p>{SOURCES[1]}"], options)
    assert [h.text for h in page.hypotheses] == [f"<p>{one.text}<p>{two.text}" for one, two in ranked]
    assert [h.utility for h in page.hypotheses] == pytest.approx([mean_utility(row) for row in ranked])


def test_the_utility_is_in_jsonl() -> None:
    """And only where it was asked for."""
    (plain,) = TRANSLATOR.translate_lines(SOURCES[:1], search_options(DecodingConfig()))
    (chosen,) = TRANSLATOR.translate_lines(SOURCES[:1], search_options(DecodingConfig(), mbr="chrf"))
    assert "utility" not in json.loads(json_line(plain))["hypotheses"][0]
    assert json.loads(json_line(chosen))["hypotheses"][0]["utility"] == chosen.hypotheses[0].utility
