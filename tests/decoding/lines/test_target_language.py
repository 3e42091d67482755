"""The tag of the target language, put before lines: `to` is what the tag typed in the line is, and no word of it."""

import re
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import pytest
from toy import toy_pairs
from translators import SMALL, make_translator

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.lines.target_language import Tagged, as_read
from transformer_mt.decoding.minimum_bayes_risk import expected_utilities, shares_of_probability
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translation import Translated
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.finishing.attention_alignment import AttentionAligner
from transformer_mt.markup.html_translator import HtmlTranslator
from transformer_mt.markup.keeping_translator import KeepingTranslator

TAGS = {"tags": ["<2es>", "<2en>", "<BT>"]}
SENTENCES = [src for src, _ in toy_pairs(6, seed=5)]
PAIR = {"src": "a.en", "tgt": "a.es"}


def of_sources(*tags: str | None, **sections: Any) -> Translator:
    """A translator that was trained on sources with these tags."""
    train = [{**PAIR, "tag": tag} for tag in tags]
    return make_translator(
        SMALL, tokenizer={**TAGS, **sections.pop("tokenizer", {})}, data={"train": train}, **sections
    )


@pytest.fixture(scope="module")
def translator() -> Translator:
    return of_sources("<2es>", "<2en>")


def lines_of(translator: Translator, texts: list[str], **changes) -> list[Translated]:
    return translator.translate_lines(texts, search_options(translator.config.decoding, **changes))


def as_typed(lines: list[Translated]) -> list[Translated]:
    """The lines as if the tag were not typed in them."""
    return [replace(line, source=line.source.split(maxsplit=1)[1]) for line in lines]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_to_is_the_tag_typed_in_the_line(kind: str, lowercase: bool) -> None:
    """All hypotheses with their scores, and log-probabilities of given translations; and the languages differ."""
    tokenizer = {"kind": kind, "lowercase": lowercase, "vocab_size": 400}
    translator = of_sources("<2es>", "<2en>", tokenizer=tokenizer)
    found = {to: lines_of(translator, SENTENCES, to=to, n_best=2) for to in ("es", "en")}
    for to, lines in found.items():
        tag = f"<2{to}>"
        assert lines == as_typed(lines_of(translator, [f"{tag} {text}" for text in SENTENCES], n_best=2))
        assert lines == as_typed(lines_of(translator, [f" {tag}\t{text}" for text in SENTENCES], n_best=2, to="es"))
        assert translator.translate(SENTENCES, to=to, n_best=2) == [line.text for line in lines]
        given = [" ".join(text.split()[:2]) for text in SENTENCES]
        scored = translator.score(SENTENCES, given, to=to)
        typed = translator.score([f"{tag} {text}" for text in SENTENCES], given)
        assert scored == [replace(one, source=text) for one, text in zip(typed, SENTENCES, strict=True)]
        assert not any(one.problem for one in scored)
    assert [line.hypotheses for line in found["es"]] != [line.hypotheses for line in found["en"]]


def test_each_piece_of_a_long_line_has_the_tag(translator: Translator) -> None:
    """The pieces are sentences, so that each is what it is by itself; the tag takes one of the model's positions."""
    pieces = [" ".join(["one", "two", "three"] * 5) + ".", *SENTENCES[:3]]
    wanted = " ".join(translator.translate(pieces, to="en"))
    for text, changes in ((" ".join(pieces), {"to": "en"}), ("<2en> " + " ".join(pieces), {})):
        (line,) = lines_of(translator, [text], too_long=TooLong.SPLIT, **changes)
        assert (line.text, line.source, line.too_long) == (wanted, text, True)
    assert wanted != " ".join(translator.translate(pieces, to="es"))
    room = translator.config.model.max_len - 2
    fits, over = " ".join(["one"] * room), " ".join(["one"] * (room + 1))
    assert [line.too_long for line in lines_of(translator, [fits, over], to="en")] == [False, True]
    (begun,) = lines_of(translator, [over], to="en", too_long=TooLong.TRUNCATE)
    assert begun.text == translator.translate([fits], to="en")[0]


@pytest.mark.parametrize(("text", "to"), [("one two three.", "ko"), ("<2ko> one two three.", None)])
def test_bleu_among_candidates_counts_words_as_their_language_does(text: str, to: str | None) -> None:
    """Of Korean the characters, whatever the config's own target language is."""
    translator = of_sources("<2ko>", "<2en>", tokenizer={"tags": ["<2ko>", "<2en>"]})
    (line,) = lines_of(translator, [text], to=to, mbr="bleu", beam_size=4, n_best=4)
    weights = shares_of_probability([h.log_prob for h in line.hypotheses])
    utilities = {
        language: expected_utilities([h.text for h in line.hypotheses], weights, "bleu", language).tolist()
        for language in ("ko", "es")
    }
    assert [h.utility for h in line.hypotheses] == pytest.approx(utilities["ko"])
    assert utilities["ko"] != pytest.approx(utilities["es"])


def test_what_is_done_to_lines_sees_no_tag(translator: Translator) -> None:
    aligner = Aligner.train(toy_pairs(50))
    options = search_options(translator.config.decoding, to="en")
    first, rest = SENTENCES[1].split(maxsplit=1)
    page = f"<p>{SENTENCES[0]}</p><p><i>{first}</i> {rest}</p>"
    pages = HtmlTranslator(translator, aligner)
    for text, to in ((page, "en"), (f"<2en> {page}", "es"), (f"<2en> {page}", None)):
        (html,) = pages.translate_lines([text], search_options(translator.config.decoding, to=to))
        assert html.source == text
        assert html.text == pages.translate([page], to="en")[0]
        assert re.sub("</?i>", "", html.text) == "".join(
            f"<p>{escape(text)}</p>" for text in translator.translate(SENTENCES[:2], to="en")
        )
    kept = KeepingTranslator(translator, translator.tgt_tokenizer, ["numbers"], lambda: aligner)
    (line,) = kept.translate_lines(["one 12 two"], options)
    assert line.source == "one 12 two"
    assert line.text.count("12") == 1
    assert "<2en>" not in line.text
    for text in ("one 12 two", "12 one", "12 two, 12"):
        (typed,), (plain,) = kept.translate_lines([f"<2en> {text}"]), kept.translate_lines([text], options)
        assert replace(typed, source=text) == plain, "what is typed is no word around a number"
    assert kept.translate(["<2en> 12"]) == ["12"]
    weights = AttentionAligner(translator, to="en").posteriors([("one two three", "uno dos")])[0]
    typed = AttentionAligner(translator).posteriors([("<2en> one two three", "uno dos")])[0]
    assert weights.shape == (2, 3)
    np.testing.assert_allclose(weights, typed[:, -3:], rtol=1e-5)  # < 2en > are words there, and one token
    assert (
        AttentionAligner(translator, to="es").posteriors([("one two", "uno")])[0].tolist() != weights[:1, :2].tolist()
    )


def test_blank_lines_need_no_language(translator: Translator) -> None:
    assert translator.translate(["", " ", "<2en>"]) == ["", "", ""]
    assert translator.translate(["", SENTENCES[0]], to="es")[0] == ""


def test_a_line_of_another_language_is_not_read_and_has_no_unknown_words(translator: Translator) -> None:
    read, other = lines_of(translator, ["dog", "<2fr> dog"], to="es")
    assert read.unknown_words == ("dog",)
    assert (other.text, other.unknown_words) == ("", ())


def test_which_lines_need_a_language() -> None:
    """Those of a model that had a tag before every pair, of several languages; of one language it is put before."""
    one = of_sources("<2es>", "<2es>")
    assert one.translate(SENTENCES) == one.translate(SENTENCES, to="es")
    for tags in ((None,), ("<BT>",), (None, "<BT>")):
        free = of_sources(*tags)
        assert free.languages.parted("one", None) == Tagged("", "one")
        assert free.languages.names == ("es", "en")  # a file may have had them, and the tokenizer has
    assert of_sources(None, "<BT>").languages.parted("<BT> one", "en") == Tagged("<2en>", "<BT> one")


@pytest.mark.parametrize(
    ("tags", "text", "to", "message"),
    [
        (["<2es>", "<2en>"], "one", "fr", "to is fr, which this model has not learned. It has es, en."),
        (["<2es>"], "one", "en", "to is en, which this model has not learned. It has es."),
        (["<2es>", "<2en>"], "one", None, "This model translates to es, en, and 'one' does not say to which. Give one"),
        (["<2es>", "<2en>"], "<2fr> one", None, "'<2fr> one' names another language, <2fr>. Give one with to (--to"),
    ],
)
def test_refusals(tags: list[str], text: str, to: str | None, message: str) -> None:
    translator = of_sources(*tags)
    for call in (lambda: translator.translate([text], to=to), lambda: translator.score([text], ["uno"], to=to)):
        with pytest.raises(UserError) as caught:
            call()
        assert message in str(caught.value)


@pytest.mark.parametrize("tags", [["<2es>", "<2en>"], ["<2es>"]])
def test_a_line_that_names_a_language_which_the_model_has_not_is_no_text(tags: list[str]) -> None:
    """It is left blank with the reason, whatever `to` says, and its neighbours are what they are without it."""
    translator, sentence = of_sources(*tags), SENTENCES[0]
    strange, plain = lines_of(translator, [f" <2fr> {sentence}", sentence], to="es")
    has = ", ".join(tag[2:-1] for tag in tags)
    assert strange.problem == f"it begins with <2fr>, which this model has not learned; it has {has}"
    assert strange.hypotheses == []
    assert plain == lines_of(translator, [sentence], to="es")[0]
    long = lines_of(translator, ["<2fr> " + "one " * 100], to="es", too_long=TooLong.SPLIT)[0]
    assert (long.problem, long.hypotheses) == (strange.problem, [])
    scored = translator.score([f"<2fr> {sentence}", sentence], ["uno", "uno"], to="es")
    assert [one.problem for one in scored] == [strange.problem, ""]
    with pytest.raises(UserError, match="'<2fr> one' is not read: it begins with <2fr>, which"):
        as_read("<2fr> one", translator.config, "es")
    without = make_translator(SMALL)
    assert without.translate_lines(["<2fr> one"])[0].hypotheses, "a model without tags of languages knows only text"


def test_a_model_without_tags_refuses_a_language() -> None:
    translator = make_translator(SMALL)
    with pytest.raises(UserError, match="to is es, and this model has no tags of languages"):
        translator.translate(["one"], to="es")
    with pytest.raises(UserError, match="no tags of languages"):
        AttentionAligner(translator, to="es")


def test_a_language_of_the_config_is_taken_where_no_other_is_given() -> None:
    translator = of_sources("<2es>", "<2en>", decoding={"to": "en"})
    assert translator.translate(SENTENCES) == translator.translate(SENTENCES, to="en")
    assert translator.translate([f"<2es> {text}" for text in SENTENCES]) == translator.translate(SENTENCES, to="es")
