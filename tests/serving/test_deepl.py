"""DeepL's API."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import Served
from toy import toy_pairs

from transformer_mt import Translator
from transformer_mt.serving.web.deepl import REFUSED, _without_line_ends

SENTENCES = [english for english, _ in toy_pairs(4, seed=6)]


def test_texts_are_translated_and_billed(server: Served, translator: Translator) -> None:
    before = server.get("/v2/usage").json["character_count"]
    wanted = [
        {"detected_source_language": "EN", "text": text, "billed_characters": len(sentence)}
        for sentence, text in zip(SENTENCES, translator.translate(SENTENCES), strict=True)
    ]
    assert server.post("/v2/translate", {"text": SENTENCES, "target_lang": "ES"}).json == {"translations": wanted}
    fields = [("text", sentence) for sentence in SENTENCES] + [("target_lang", "es-419"), ("source_lang", "EN-GB")]
    assert server.form("/v2/translate", fields).json == {"translations": wanted}
    usage = server.get("/v2/usage").json
    assert usage["character_count"] - before == 2 * sum(map(len, SENTENCES))
    assert usage["billed_characters"] == usage["character_count"] < usage["character_limit"]


@pytest.mark.parametrize("kind", ["html", "xml"])
def test_tags_stay(server: Served, translator: Translator, kind: str) -> None:
    values = {"text": [f"<p>{SENTENCES[0]}</p><x id='1'/>"], "target_lang": "ES", "tag_handling": kind}
    ((translation,),) = server.post("/v2/translate", values).json.values()
    assert translation["text"] == f"<p>{translator.translate(SENTENCES[:1])[0]}</p><x id='1'/>"


def test_tags_of_xml_are_those_of_xml(server: Served, translator: Translator) -> None:
    """`<style/>` took all that follows for its style, and other names than those of HTML were text."""
    texts = [
        "<style/>{}",
        "<größe>{}</größe><_x/>",
        "<p>{}</p><![CDATA[<b>a & b</b></br>]]>",
        "<?php if (1 > 0) {{}} ?><!DOCTYPE r [<!ENTITY a 'b'>]><r>{}</r>",
    ]
    values = {"text": [text.format(SENTENCES[0]) for text in texts], "target_lang": "ES", "tag_handling": "xml"}
    (translations,) = server.post("/v2/translate", values).json.values()
    translated = translator.translate(SENTENCES[:1])[0]
    assert [one["text"] for one in translations] == [text.format(translated) for text in texts]


def test_sentences_are_split_or_not(server: Served, translator: Translator) -> None:
    text = f"{SENTENCES[0]}\n{SENTENCES[1]}"
    one, two = translator.translate(SENTENCES[:2])

    def translated(text: str = text, **values: Any) -> str:
        answer = server.post("/v2/translate", {"text": [text], "target_lang": "ES", **values})
        return answer.json["translations"][0]["text"]

    whole = translator.translate([" ".join(SENTENCES[:2])])[0]
    assert whole != f"{one} {two}"
    html = f"<p>{text}</p>"
    for split, wanted in (("", f"{one} {two}"), ("1", f"{one} {two}"), ("nonewlines", f"{one} {two}"), ("0", whole)):
        assert translated(html, tag_handling="html", split_sentences=split) == f"<p>{wanted}</p>"
    assert translated() == f"{one}\n{two}"
    assert translated(split_sentences="nonewlines") == f"{one} {two}"
    for none in ("0", 0, False):
        assert translated(split_sentences=none) == translator.translate([text])[0] != f"{one}\n{two}"
    assert translated(split_sentences=True) == f"{one}\n{two}"
    spaced = {"text": ["one\n   two"], "target_lang": "ES", "split_sentences": "nonewlines"}
    (billed,) = server.post("/v2/translate", spaced).json["translations"]
    assert billed["billed_characters"] == len("one\n   two"), "as it was sent"


@given(st.text("ab \n\t\r\u3000\u2028\x1c", max_size=15))
def test_a_line_end_and_the_white_space_around_it_become_a_blank(text: str) -> None:
    assert _without_line_ends(text) == re.sub(r"[^\S\n]*\n\s*", " ", text)


def test_blanks_without_a_line_end_do_not_take_long() -> None:
    """A twentieth of these took more than seven seconds."""
    text = "a" + " " * 400_000 + "b"
    begun = time.process_time()
    assert _without_line_ends(text) == text
    assert time.process_time() - begun < 5


def test_what_is_too_long_is_refused_before_it_is_looked_at(server: Served) -> None:
    values = {"text": ["\n" * 20_001], "target_lang": "none", "split_sentences": "nonewlines"}
    answer = server.post("/v2/translate", values)
    assert (answer.status, answer.json["message"].partition(",")[0]) == (413, "The request has 20")


def test_an_option_that_is_null_or_blank_is_as_one_that_is_not_there(server: Served) -> None:
    texts = {"text": SENTENCES, "target_lang": "ES"}
    wanted = server.post("/v2/translate", texts).json
    for nothing in (None, "", []):
        names = [*REFUSED, "source_lang", "tag_handling", "formality"] if nothing != [] else [*REFUSED]
        assert server.post("/v2/translate", {**texts, **dict.fromkeys(names, nothing)}).json == wanted
    plain = server.translate("one two.")
    for nothing in (None, ""):
        assert server.translate("one two.", alternatives=nothing) == plain


def test_languages(server: Served) -> None:
    assert server.get("/v2/languages").json == [{"language": "EN", "name": "English"}]
    (spanish,) = server.get("/v2/languages?type=target").json
    assert spanish == {"language": "ES", "name": "Spanish", "supports_formality": False}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"target_lang": "ES"}, "missing text"),
        ({"text": ["one"]}, "missing target_lang"),
        ({"text": ["one"], "target_lang": "DE"}, "Value for 'target_lang' not supported."),
        ({"text": ["one"], "target_lang": "EN"}, "not supported as a target"),
        ({"text": ["one"], "target_lang": "ES", "source_lang": "FR"}, "Value for 'source_lang' not supported."),
        ({"text": ["one"], "target_lang": "ES", "glossary_id": "7"}, "glossary_id"),
        ({"text": ["one"], "target_lang": "ES", "ignore_tags": "x"}, "ignore_tags"),
        ({"text": ["one"], "target_lang": "ES", "formality": "more"}, "formality"),
        ({"text": ["one"], "target_lang": "ES", "tag_handling": "pdf"}, "tag_handling"),
        ({"text": ["one"], "target_lang": "ES", "split_sentences": "2"}, "split_sentences"),
        ({"text": ["<link>one</link>"], "target_lang": "ES", "tag_handling": "xml"}, "<link>"),
        ({"text": ["<script>one</script>"], "target_lang": "ES", "tag_handling": "xml"}, "<script>"),
    ],
)
def test_what_is_not_here_is_refused_by_its_name(server: Served, values: Any, said: str) -> None:
    answer = server.post("/v2/translate", values)
    assert answer.status == 400
    assert said in answer.json["message"]
