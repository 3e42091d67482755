"""HTML through a model and an aligner: the texts are the model's own, and nothing of the HTML is lost."""

from types import SimpleNamespace
from typing import cast

import pytest
from toy import toy_pairs
from translators import SMALL, make_translator

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.lines.line_stream import LineTranslator
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translation import Translated, Translation
from transformer_mt.errors import UserError
from transformer_mt.markup.html_translator import HtmlTranslator

TRANSLATOR = make_translator({"num_encoder_layers": 1, **SMALL}, tokenizer={"kind": "bpe", "vocab_size": 300})
PAGES = HtmlTranslator(TRANSLATOR, Aligner.train(toy_pairs(50)))


def test_each_segment_is_translated_as_if_it_were_a_line() -> None:
    one, two = TRANSLATOR.translate(["one two & three.", "four <five>"])
    escaped = [text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for text in (one, two)]
    page = "<p>one two &amp; three.</p>\t12 <code>a<b>c</b></code><br>four &lt;five&gt;"
    assert PAGES.translate([page, "", "  ", "<hr>", "one two & three."]) == [
        f"<p>{escaped[0]}</p>\t12 <code>a<b>c</b></code><br>{escaped[1]}", "", "", "<hr>", escaped[0],
    ]  # fmt: skip


def test_an_n_best_list_has_the_tags_in_every_hypothesis_and_the_score_of_all_segments() -> None:
    options = search_options(TRANSLATOR.config.decoding, n_best=2, beam_size=3)
    lines = ["one two three", "four five"]
    first, second = TRANSLATOR.translate_lines(lines, options)
    (page,) = PAGES.translate_lines(["<li>one two three<li>four five"], options)
    expected = {
        f"<li>{a.text}<li>{b.text}": a.log_prob + b.log_prob
        for a, b in zip(first.hypotheses, second.hypotheses, strict=True)
    }
    assert {h.text: pytest.approx(h.log_prob, abs=1e-4) for h in page.hypotheses} == expected
    scores = [h.log_prob / options.norm(len(h.tokens) + 2) for h in page.hypotheses]
    assert [h.score for h in page.hypotheses] == pytest.approx(sorted(scores, reverse=True))
    (alone,) = PAGES.translate_lines(["one two three"], options)
    assert [h.score for h in alone.hypotheses] == pytest.approx([h.score for h in first.hypotheses], abs=1e-5)


def test_samples_of_a_page_are_those_of_its_segments_in_the_order_drawn() -> None:
    options = search_options(TRANSLATOR.config.decoding, temperature=1.0, n_best=4)
    _, page = PAGES.translate_lines(["", "<li>one two three<li>one two three"], options)
    parts = [SourceLine("one two three", place=(1, part)) for part in (0, 1)]
    first, second = TRANSLATOR.translate_lines(parts, options)
    assert [h.text for h in first.hypotheses] != [h.text for h in second.hypotheses]
    pairs = zip(first.hypotheses, second.hypotheses, strict=True)
    assert [h.text for h in page.hypotheses] == [f"<li>{a.text}<li>{b.text}" for a, b in pairs]


def test_a_segment_that_is_too_long_makes_the_line_so() -> None:
    line = f"<p>one</p><p>{'two ' * 30}</p>"
    (blank,) = PAGES.translate_lines([line])
    assert (blank.text, blank.too_long) == ("", True)
    (split,) = PAGES.translate_lines([line], search_options(TRANSLATOR.config.decoding, too_long=TooLong.SPLIT))
    assert split.too_long
    assert split.text.startswith("<p>")
    assert split.text.endswith("</p>")
    (beyond,) = PAGES.translate_lines(["<b>" * 400_000])
    assert (beyond.text, beyond.too_long) == ("", True)


@pytest.mark.parametrize(
    ("translation", "expected"), [("350 yyy vvv", "<b>350</b> yyy vvv"), ("yyy vvv 350", "yyy vvv <b>350</b>")]
)
def test_a_tag_around_a_number_stays_around_it(translation: str, expected: str) -> None:
    """The aligner knows none of these words."""
    model = SimpleNamespace(config=TRANSLATOR.config, precision="fp32")
    line = Translated("", [Translation(translation, 0.0, 0.0, [])])
    model.translate_lines = lambda lines, options=None: [line for _ in lines]
    pages = HtmlTranslator(cast(LineTranslator, model), PAGES.aligner)
    assert pages.translate(["zzz <b>350</b> www"]) == [expected]


def test_a_prefix_is_refused() -> None:
    with pytest.raises(UserError, match="Leave out prefix or HTML"):
        PAGES.translate_lines([SourceLine("one", "uno")])


def test_another_precision_than_that_of_the_model_is_refused() -> None:
    with pytest.raises(UserError, match="precision is bf16, and this translator was loaded in fp32"):
        PAGES.translate(["one two"], precision="bf16")
