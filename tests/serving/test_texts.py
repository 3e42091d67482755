"""Texts as sentences and back, languages by their codes, and the language of a text."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import ENGLISH, SPANISH

from transformer_mt.config.language_names import name_of
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translation import Translated, Translation
from transformer_mt.serving.detection import Detector
from transformer_mt.serving.languages import direction_of, find
from transformer_mt.serving.refusal import Refusal
from transformer_mt.serving.service import refuse_missing
from transformer_mt.serving.texts import Sentences, translate_texts

OPTIONS = search_options(DecodingConfig())


async def unchanged(lines: list[SourceLine]) -> list[Translated]:
    return [Translated(line.text, [Translation(line.text, 0.0, 0.0, [])]) for line in lines]


@given(st.lists(st.text()), st.booleans())
def test_a_translation_that_changes_no_sentence_changes_no_text(texts: list[str], split: bool) -> None:
    lines = [SourceLine(text, place=(i,)) for i, text in enumerate(texts)]
    results = asyncio.run(translate_texts(lines, unchanged, OPTIONS, split))
    assert [one.hypotheses[0].text if text.strip() else text for one, text in zip(results, texts, strict=True)] == texts


@given(st.text())
def test_pieces_with_their_spaces_are_the_text(text: str) -> None:
    sentences = Sentences.of(text)
    assert "".join(piece.space_before + piece.text for piece in sentences.pieces) + sentences.space_after == text
    assert all(piece.text == piece.text.strip() != "" for piece in sentences.pieces)


def test_a_sentence_is_known_by_its_place_in_its_own_request() -> None:
    places = []

    async def note(lines: list[SourceLine]) -> list[Translated]:
        places.extend(line.place for line in lines)
        return await unchanged(lines)

    asyncio.run(translate_texts([SourceLine("One. Two.", place=(0,)), SourceLine("Three.", place=(1,))], note, OPTIONS))
    assert places == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("code", "ours", "found"),
    [
        ("en", ["en", "es"], "en"),
        ("EN-us", ["en", "es"], "en"),
        ("pt_BR", ["pt", "pt-br"], "pt-br"),
        ("pt", ["pt-BR"], "pt-BR"),
        ("pt", ["pt-BR", "pt-PT"], None),
        ("zh-Hans", ["zh"], "zh"),
        ("e", ["en"], None),
        ("", ["en"], None),
    ],
)
def test_a_language_is_the_one_that_is_meant(code: str, ours: list[str], found: str | None) -> None:
    assert find(code, ours) == found


def test_languages_have_names_and_directions() -> None:
    assert (name_of("de"), name_of("PT_br"), name_of("tlh")) == ("German", "Portuguese", "tlh")
    assert (direction_of("ar"), direction_of("he-IL"), direction_of("es")) == ("rtl", "rtl", "ltr")


def test_the_language_of_a_text_is_that_of_its_words() -> None:
    detector = Detector({"en": ENGLISH, "es": SPANISH})
    for words, code in ((ENGLISH, "en"), (SPANISH, "es")):
        for word in words:
            assert detector.detect(word.upper())[0][0] == code
        (first, p), (_, q) = detector.detect(" ".join(words))
        assert first == code
        assert p + q == pytest.approx(1)
    assert detector.detect("123 ...") == [("en", 0.5), ("es", 0.5)]
    assert detector.detect("uno", ["en"]) == [("en", 1.0)]


def test_words_that_are_not_listed_are_told_by_their_letters() -> None:
    detector = Detector({"en": ["thing", "with", "ring", "bath", "the"], "es": ["niño", "año", "gato", "los", "vino"]})
    assert [detector.detect(word)[0][0] for word in ("bathing", "gatos", "niños")] == ["en", "es", "es"]


def test_a_text_without_a_translation_is_refused_and_a_blank_one_is_not() -> None:
    translated = [Translated("one", [Translation("uno", 0.0, 0.0, [])]), Translated(" ", [])]
    refuse_missing(["one", " "], translated)
    with pytest.raises(Refusal, match="holds no such phrase") as refusal:
        refuse_missing(["one", "two"], [translated[0], Translated("two", [], problem="it holds no such phrase")])
    assert refusal.value.status == 400
