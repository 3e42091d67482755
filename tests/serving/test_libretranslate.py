"""LibreTranslate's API: what is asked and how, what is answered, and what is refused with which words."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from servers import Serve, Served
from toy import toy_pairs

from transformer_mt import Translator
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import search_options

SENTENCES = [english for english, _ in toy_pairs(8, seed=5)]
LANGUAGES = {"source": "en", "target": "es"}


def test_a_text_is_translated_as_by_the_translator(server: Served, translator: Translator) -> None:
    assert [server.translate(sentence) for sentence in SENTENCES] == translator.translate(SENTENCES)


def test_each_form_of_a_request_has_the_same_answer(server: Served, translator: Translator) -> None:
    values = {"q": SENTENCES[0], **LANGUAGES}
    wanted = {"translatedText": translator.translate(SENTENCES[:1])[0]}
    boundary = "2.718281828"
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in values.items()]
    multipart = ("".join(parts) + f"--{boundary}--\r\n").encode()
    answers = [
        server.post("/translate", values),
        server.request("POST", "/translate", json.dumps(values).encode()),  # without a word on what it is
        server.form("/translate", values),
        server.request("POST", f"/translate?{urlencode(values)}"),
        server.get(f"/translate?{urlencode(values)}"),
        server.form("/translate?source=en&target=es", {"q": SENTENCES[0]}),
        server.request("POST", "/translate", multipart, {"Content-Type": f"multipart/form-data; boundary={boundary}"}),
    ]
    assert [(answer.status, answer.json) for answer in answers] == [(200, wanted)] * len(answers)


def test_a_list_is_answered_by_a_list_in_order(server: Served, translator: Translator) -> None:
    texts = [SENTENCES[0], "", *SENTENCES[1:], " \n "]
    wanted = translator.translate(SENTENCES)
    assert server.translate(texts) == [wanted[0], "", *wanted[1:], " \n "]
    assert server.translate([]) == []
    repeated = server.form("/translate", [("q", SENTENCES[0]), ("q", SENTENCES[1]), *LANGUAGES.items()])
    assert repeated.json == {"translatedText": wanted[:2]}


def test_white_space_around_sentences_stays(server: Served, translator: Translator) -> None:
    one, two, three = translator.translate(["One two.", "Three four!", "five six"])
    text = "\n  One two.  Three four!\r\n\n\tfive six \n"
    assert server.translate(text) == f"\n  {one}  {two}\r\n\n\t{three} \n"


def test_a_sentence_longer_than_the_model_is_translated_in_pieces(server: Served, translator: Translator) -> None:
    long = ", ".join(SENTENCES[0].rstrip(".") for _ in range(12)) + "."
    assert translator.translate([long]) == [""]
    assert server.translate(long) == translator.translate([long], too_long=TooLong.SPLIT)[0] != ""


def test_alternatives_are_the_next_hypotheses(server: Served, translator: Translator) -> None:
    found = translator.translate_lines(SENTENCES[:2], search_options(translator.config.decoding, n_best=3))
    wanted = [[h.text for h in line.hypotheses] for line in found]
    answer = server.post("/translate", {"q": SENTENCES[:2], **LANGUAGES, "alternatives": 2}).json
    assert answer == {"translatedText": [texts[0] for texts in wanted], "alternatives": [texts[1:] for texts in wanted]}
    one = server.post("/translate", {"q": SENTENCES[0], **LANGUAGES, "alternatives": "2"}).json
    assert one == {"translatedText": wanted[0][0], "alternatives": wanted[0][1:]}


def test_html_keeps_its_tags(server: Served, translator: Translator) -> None:
    page = f"<h1>{SENTENCES[0]}</h1><p class=a>{SENTENCES[1]} {SENTENCES[2]}</p><!-- {SENTENCES[0]} -->"
    heading, *words = translator.translate(SENTENCES[:3])
    wanted = f"<h1>{heading}</h1><p class=a>{' '.join(words)}</p><!-- {SENTENCES[0]} -->"
    assert server.translate([page, "no tags"], format="html") == [wanted, translator.translate(["no tags"])[0]]
    assert server.translate("one &amp; <b>two</b>", format="html").count("<b>") == 1


def test_a_language_is_found_by_the_words_of_the_corpus(server: Served) -> None:
    (first, second) = server.form("/detect", {"q": "seven eight nine"}).json
    assert first["language"] == "en"
    assert first["confidence"] > 90 > 10 > second["confidence"]
    listed = server.post("/detect", {"q": ["uno dos", "one two"]}).json
    assert [found[0]["language"] for found in listed] == ["es", "en"]


def test_auto_tells_what_it_has_found(server: Served, translator: Translator) -> None:
    answer = server.post("/translate", {"q": [SENTENCES[0], "uno dos tres."], "source": "auto", "target": "es"}).json
    assert answer["translatedText"] == [translator.translate(SENTENCES[:1])[0], "uno dos tres."]
    assert [found["language"] for found in answer["detectedLanguage"]] == ["en", "es"]
    one = server.post("/translate", {"q": SENTENCES[0], "source": "auto", "target": "es"}).json
    assert one["detectedLanguage"]["language"] == "en"


def test_the_language_of_html_is_that_of_its_text(server: Served, translator: Translator) -> None:
    """Names of tags and of their attributes, which are mostly English, say nothing of it."""
    english, spanish = translator.translate(SENTENCES[:1])[0], "uno dos tres."
    one, two = f"<p title='uno dos tres cuatro'>{SENTENCES[0]}</p>", f"<p class='one two three four five'>{spanish}</p>"
    answer = server.post("/translate", {"q": [one, two], "source": "auto", "target": "es", "format": "html"}).json
    assert [found["language"] for found in answer["detectedLanguage"]] == ["en", "es"]
    assert answer["translatedText"] == [one.replace(SENTENCES[0], english), two]
    texts = {"text": [one, two], "target_lang": "ES", "tag_handling": "html"}
    found = server.post("/v2/translate", texts).json["translations"]
    assert [one["detected_source_language"] for one in found] == ["EN", "ES"]


def test_languages_and_health(server: Served) -> None:
    english, spanish = server.get("/languages").json
    assert english == {"code": "en", "name": "English", "targets": ["es"]}
    assert spanish == {"code": "es", "name": "Spanish", "targets": []}
    assert server.get("/health").json == {"status": "ok"}
    assert server.get("/frontend/settings").json["language"]["target"]["code"] == "es"


def test_a_text_that_is_in_the_target_language_stays(server: Served) -> None:
    assert server.post("/translate", {"q": "uno", "source": "es", "target": "es"}).json == {"translatedText": "uno"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"source": "en", "target": "es"}, "missing q"),
        ({"q": "one", "target": "es"}, "missing source"),
        ({"q": "one", "source": "en"}, "missing target"),
        ({"q": 7, **LANGUAGES}, "neither a text nor a list"),
        ({"q": ["one", None], **LANGUAGES}, "neither a text nor a list"),
        ({"q": "one", "source": ["en", "de"], "target": "es"}, "source is no word"),
        ({"q": "one", "source": "de", "target": "es"}, "de is not supported"),
        ({"q": "uno", "source": "es", "target": "en"}, "not available as a target"),
        ({"q": "one", "source": "auto", "target": "en"}, "not supported as a target"),
        ({"q": "one", **LANGUAGES, "format": "pdf"}, "pdf format is not supported"),
        ({"q": "one", **LANGUAGES, "alternatives": -1}, "alternatives"),
        ({"q": "one", **LANGUAGES, "alternatives": 99}, "alternatives"),
        ({"q": "one", **LANGUAGES, "alternatives": True}, "alternatives"),
        ([], "no JSON object"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(server: Served, values: Any, said: str) -> None:
    answer = server.post("/translate", values)
    assert answer.status == 400
    assert said in answer.json["error"]


def test_other_addresses_and_methods_are_refused_as_json(server: Served) -> None:
    assert (server.get("/nothing").status, set(server.get("/nothing").json)) == (404, {"error"})
    refused = server.request("DELETE", "/translate")
    assert (refused.status, set(refused.headers["allow"].split(", "))) == (405, {"GET", "HEAD", "POST"})
    assert set(server.get("/v2/nothing").json) == {"message"}


def test_two_directions_are_two_runs(serve: Serve, run: Path, backwards: Path, translator: Translator) -> None:
    both = serve("--workers", "1", runs=(run, backwards))
    other = Translator.load(backwards, device="cpu")
    answer = both.post("/translate", {"q": [SENTENCES[0], "uno dos."], "source": "auto", "target": "en"}).json
    assert answer["translatedText"] == [SENTENCES[0], *other.translate(["uno dos."])]
    assert both.translate(SENTENCES[0]) == translator.translate(SENTENCES[:1])[0]
    assert [one["targets"] for one in both.get("/languages").json] == [["es"], ["en"]]
