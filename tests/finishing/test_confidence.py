"""Confidences: what they are the probability of, and what becomes of a line that has too little."""

import json
import random
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from toy import SPANISH, toy_pairs
from translators import SMALL, make_translator

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.decoding.evidence import Evidence, words_of_text
from transformer_mt.decoding.lines.line_formats import FORMATS, json_line
from transformer_mt.decoding.search.options import search_options
from transformer_mt.finishing.calibration import calibration_error
from transformer_mt.finishing.confidence import Calibration, ConfidentTranslator, common_share, is_matched
from transformer_mt.markup.html_translator import HtmlTranslator

TRANSLATOR = make_translator({"num_encoder_layers": 1, **SMALL}, tokenizer={"kind": "bpe", "vocab_size": 300})


def made_up(num: int, seed: int) -> tuple[list[Evidence], list[str]]:
    """Evidence of a model that is surer than it should be: what it gives p is right with probability p². The reference
    has another word in the place of each wrong one.
    """
    draw = random.Random(seed)
    evidence, references = [], []
    for _ in range(num):
        ease = draw.random()
        words = [draw.choice(SPANISH) for _ in range(draw.randint(3, 9))]
        given = [min(0.999, max(0.05, draw.gauss(ease, 0.3))) for _ in words]
        references.append(" ".join(w if draw.random() < p**2 else "otra" for w, p in zip(words, given, strict=True)))
        log_probs = tuple((float(np.log(p)),) for p in given)
        evidence.append(Evidence(tuple(words), log_probs, -0.1, len(words), len(words)))
    return evidence, references


LEARNED = Calibration.fit(*made_up(1500, 1))


def test_what_a_model_is_too_sure_of_becomes_what_is_right() -> None:
    evidence, references = made_up(1500, 2)
    found = [LEARNED.of_parts([one]) for one in evidence]
    right = np.concatenate(
        [is_matched(one.words, reference.split()) for one, reference in zip(evidence, references, strict=True)]
    )
    given = [np.exp(own[0]) for one in evidence for own in one.log_probs]
    of_words = [word.confidence for confidence in found for word in confidence.words]
    assert calibration_error(given, right) > 0.1
    assert calibration_error(of_words, right) < 0.03
    assert np.abs(np.array(of_words) - np.array(given) ** 2).mean() < 0.05
    shares = [
        common_share(is_matched(one.words, reference.split()), len(reference.split()))
        for one, reference in zip(evidence, references, strict=True)
    ]
    assert calibration_error([confidence.sentence for confidence in found], shares) < 0.03
    assert LEARNED.errors(evidence, references) == pytest.approx(
        (calibration_error(of_words, right), calibration_error([c.sentence for c in found], shares))
    )


def longest_common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """The plain recursion."""

    @lru_cache(None)
    def longest(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return 0
        return max(longest(i + 1, j), longest(i, j + 1), (longest(i + 1, j + 1) + 1) * (one[i] == other[j]))

    return longest(0, 0)


def test_matched_words_are_a_longest_common_subsequence() -> None:
    draw = random.Random(5)
    for _ in range(300):
        one, other = (tuple(draw.choices("abcd", k=draw.randint(0, 8))) for _ in range(2))
        matched = is_matched(one, other)
        assert matched.sum() == longest_common(one, other)
        rest = iter(other)
        assert all(word in rest for word, is_in in zip(one, matched, strict=True) if is_in), "in the same order"


def test_matched_words_by_hand() -> None:
    def right(text: str, reference: str) -> str:
        words = words_of_text(text)
        matched = is_matched(words, words_of_text(reference))
        return " ".join(word for word, is_in in zip(words, matched, strict=True) if is_in)

    assert right("El gato negro duerme.", "El gato duerme bien.") == "El gato duerme ."
    assert right("gato El", "El gato") == "gato"
    assert right("cafe\u0301", "café") == "cafe\u0301"
    assert right("el gato", "El Gato") == ""
    matched = is_matched(["El", "gato", "negro"], ["El", "gato"])
    assert common_share(matched, 2) == pytest.approx(4 / 5)
    assert common_share(is_matched([], []), 0) == 0


def test_a_text_in_parts_is_as_sure_as_its_parts_by_their_words() -> None:
    first, second = made_up(2, 7)[0]
    one, other, both = (LEARNED.of_parts(parts) for parts in ([first], [second], [first, second]))
    lengths = len(first.words), len(second.words)
    expected = (one.sentence * lengths[0] + other.sentence * lengths[1]) / sum(lengths)
    assert both.sentence == pytest.approx(expected)
    assert both.words == one.words + other.words
    assert LEARNED.of_parts([]).sentence == 1.0, "nothing was translated"
    assert LEARNED.of_parts([Evidence((), (), -0.1, 0, 3)]).sentence == 0.0, "a text became nothing"


def test_of_a_word_that_the_model_does_not_know_nobody_is_sure() -> None:
    """Here the model gives each word 0.999, UNK too."""
    sure, unknown = (
        LEARNED.of_parts([Evidence((*words_of_text(f"uno {word} dos"),), ((-0.001,),) * 3, -0.1, 3, 3)])
        for word in ("tres", "<unk>")
    )
    assert [word.word for word in unknown.words] == ["uno", "<unk>", "dos"]
    assert [word.confidence == 0 for word in unknown.words] == [False, True, False]
    assert unknown.sentence < sure.sentence - 0.1


def test_every_hypothesis_has_a_confidence_and_a_bad_line_is_rejected() -> None:
    sources = [src for src, _ in toy_pairs(6)] + [""]
    options = search_options(TRANSLATOR.config.decoding, n_best=2)
    plain = TRANSLATOR.translate_lines(sources, options)
    found = ConfidentTranslator(TRANSLATOR, LEARNED).translate_lines(sources, options)
    assert [[h.text for h in line.hypotheses] for line in found] == [[h.text for h in p.hypotheses] for p in plain]
    sentences = [h.confidence.sentence for line in found for h in line.hypotheses if h.confidence]
    assert len(sentences) == 12
    assert all(0 < confidence < 1 for confidence in sentences)
    bests = sorted(line.hypotheses[0].confidence.sentence for line in found if line.hypotheses)  # pyright: ignore
    border = (bests[2] + bests[3]) / 2
    parted = ConfidentTranslator(TRANSLATOR, LEARNED, border).translate_lines(sources, options)
    assert [line.rejected for line in parted] == [
        bool(line.hypotheses) and line.hypotheses[0].confidence.sentence < border for line in found  # pyright: ignore
    ]  # fmt: skip
    assert 0 < sum(line.rejected for line in parted) < 6
    for number, line in enumerate(parted, start=1):
        written = json.loads(json_line(line))
        assert written.get("rejected", False) is line.rejected
        assert [h["text"] for h in written["hypotheses"]] == [h.text for h in line.hypotheses], "jsonl keeps the text"
        for h, words in zip(written["hypotheses"], (h["words"] for h in written["hypotheses"]), strict=True):
            assert [word["word"] for word in words] == words_of_text(h["text"])
        if line.rejected:
            bare = replace(line, is_judged=False)
            assert (line.text, FORMATS["text"].lines(number, bare, 1)) == ("", [""])
            assert FORMATS["text"].lines(number, bare, 2) == [f"{number} |||  ||| "]
            assert FORMATS["moses"].lines(number, bare, 2) == [f"{number - 1} |||  ||| F0= 0.0000 ||| 0.0000"]


def test_the_confidence_stands_behind_the_text_where_it_was_asked_for() -> None:
    line, blank = ConfidentTranslator(TRANSLATOR, LEARNED).translate_lines(["one two", ""])
    (best,), text, moses = line.hypotheses, FORMATS["text"].lines, FORMATS["moses"].lines
    assert best.confidence
    sure = f"{best.confidence.sentence:.4f}"
    assert text(1, line, 1) == [f"{best.text} ||| {sure}"]
    assert text(7, line, 2) == [f"7 ||| {best.text} ||| {best.score:.4f} ||| {sure}"]
    assert moses(7, line, 2) == [f"6 ||| {best.text} ||| F0= {best.log_prob:.4f} F1= {sure} ||| {best.score:.4f}"]
    assert text(1, blank, 1) == [" ||| "]
    assert text(7, blank, 2) == ["7 |||  |||  ||| "]
    assert moses(7, blank, 2) == ["6 |||  ||| F0= 0.0000 F1= 0.0000 ||| 0.0000"]
    for reject_below, expected in ((0.0, best.text), (1.0, "")):
        (line,) = ConfidentTranslator(TRANSLATOR, LEARNED, reject_below, is_written=False).translate_lines(["one two"])
        assert text(1, line, 1) == [expected]


def test_nothing_is_written_of_what_was_not_asked_for() -> None:
    (line,) = TRANSLATOR.translate_lines(["one two"])
    assert {"confidence", "words", "rejected"}.isdisjoint(json_line(line).split('"'))


def test_a_page_has_the_confidences_of_its_segments() -> None:
    pages = HtmlTranslator(TRANSLATOR, Aligner.train(toy_pairs(50)))
    page, one, two, empty = (
        ConfidentTranslator(translator, LEARNED).translate_lines([text])[0].hypotheses[0].confidence
        for translator, text in (
            (pages, "<p>one <b>two</b> three<p>four five"), (TRANSLATOR, "one two three"), (TRANSLATOR, "four five"),
            (pages, "<hr>"),
        )
    )  # fmt: skip
    assert page
    assert one
    assert two
    assert empty
    assert [word.word for word in page.words] == [word.word for word in one.words + two.words]
    assert [w.confidence for w in page.words] == pytest.approx([w.confidence for w in one.words + two.words], abs=1e-4)
    assert empty.sentence == 1.0
