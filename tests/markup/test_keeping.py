"""What is to be kept comes out as it is, as often as it stood there, by whatever model."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ENGLISH, SPANISH, toy_pairs
from translators import ONE_STREAM, SMALL, make_translator

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import search_options
from transformer_mt.errors import UserError
from transformer_mt.markup.html_translator import HtmlTranslator
from transformer_mt.markup.keeping_translator import KeepingTranslator
from transformer_mt.markup.kept import KINDS, finder

STRETCHES = [
    "{name}",
    "{{ user.id }}",
    "https://x.org/a?b=1&c=2",
    "me@x.org",
    "12:30",
    "1,000.5",
    "7",
    "${0}",
    "www.a.b",
]


def found(text: str, kinds: str = ",".join(KINDS)) -> list[str]:
    return [text[start:end] for start, end in finder(kinds.split(","))(text)]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Dear {name}, ${0} and {{ a b }}.", ["{name}", "${0}", "{{ a b }}"]),
        ("See https://x.org/a?b=1, (www.a.b) or http://ü.de/.", ["https://x.org/a?b=1", "www.a.b", "http://ü.de/"]),
        (
            "https://a.org/Cat_(animal) (https://a.org/b) (www.a.b/x_(y)).",
            ["https://a.org/Cat_(animal)", "https://a.org/b", "www.a.b/x_(y)"],
        ),
        (
            "[https://a.org/b], [www.a.b/c[0]], {ftp://a.b/{id}}, www.a.b/(c",
            ["https://a.org/b", "www.a.b/c[0]", "ftp://a.b/{id}", "www.a.b/(c"],
        ),
        ("(See www.a.b/f(g(x))(y)), www.a.b/c), www.a.b/(c)d,", ["www.a.b/f(g(x))(y)", "www.a.b/c", "www.a.b/(c)d"]),
        ("Write to me.too+2@x-y.org.", ["me.too+2@x-y.org"]),
        (
            "7 cats, 1,000.50 or 12:30, 2024-05-06 and -5 (3-5) 50%.",
            ["7", "1,000.50", "12:30", "2024-05-06", "-5", "3-5", "50"],
        ),
        ("B2 3rd x7y ٣٤", ["٣٤"]),
        ("%(name)s", ["%(name)s"]),
        ("{ unclosed, 5", ["5"]),
        ("", []),
    ],
)
def test_what_is_kept(text: str, kept: list[str]) -> None:
    assert found(text) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        # whole numbers
        ("5. $5 5% 5°C §5 Nr.5 p.12 l'8", ["5", "5", "5", "5", "5", "5", "12", "8"]),
        ("3.5 mm, 5-year COVID-19 GPT-4.5 3,5-fach x-5", ["3.5", "5", "19", "4.5", "3,5", "5"]),
        ("1.2.3 192.168.0.1/24 1'000’000", ["1.2.3", "192.168.0.1/24", "1'000’000"]),
        ("+49-30-12 1/2 12:30:15", ["+49-30-12", "1/2", "12:30:15"]),
        ("1\xa0000\xa0000,50 € 350\u202f000 5\xa0kg", ["1\xa0000\xa0000,50", "350\u202f000", "5"]),
        ("1\xa02 1\xa00000 2024\xa0350", ["1", "2", "1", "0000", "2024", "350"]),
        ("٣٫٥ ٣٬٠٠٠ ３．５", ["٣٫٥", "٣٬٠٠٠", "３．５"]),
        # a letter, mark or other sign of a number at it
        ("3.5mm 3.5µm -3.5mm 1,000.50kg 12:30h 10km/h 1/2in 2-3mm 1'000CHF 1\xa0000kg", []),
        ("v2.0 v2.0.1 A4-5 B2,3 x1:2 n°1a 2x4 1st 1990s 3D", []),
        ("2024-05-06T12:30:00Z 2024-05-06T12:30:00 2024-05-06T12:30", []),
        ("1e5 1.5e-10 6E+23 10² 5½ 3.5²", []),
    ],
)
def test_a_number_is_kept_whole_or_not_at_all(text: str, kept: list[str]) -> None:
    """The `3` of `3.5mm` was kept, and the `0` of `v2.0`."""
    assert found(text, "numbers") == kept


@given(st.text("12.,:-'’x²٣ \xa0", max_size=20))
def test_no_part_of_a_number_is_kept(text: str) -> None:
    """Nothing that is kept has digits at it, or beyond a mark at it."""
    for start, end in finder(["numbers"])(text):
        assert not re.search(r"(\d[-.,:'’]?|[x²])$", text[:start])
        assert not re.match(r"[-.,:'’]?\d|[x²]", text[end:])


def test_kinds_are_chosen_by_name() -> None:
    assert found("{a} 5 me@x.org", "numbers,emails") == ["5", "me@x.org"]


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["numbers", "url"], "'url' is no kind of text that can be kept. Use placeholders, urls, emails, numbers."),
        ("numbers", "KeepingTranslator takes a list of kinds, and got one alone. Put it into a list: ['numbers']."),
    ],
)
def test_kinds_that_are_none_are_told(kinds: Any, message: str) -> None:
    """Nothing was found for them, in the place of each character."""
    with pytest.raises(UserError) as told:
        KeepingTranslator(keeping("word").translator, keeping("word").tgt_tokenizer, kinds, aligner)
    assert str(told.value) == message
    assert finder([])("one 7") == []


@cache
def aligner() -> Aligner:
    return Aligner.train(toy_pairs(200))


@cache
def keeping(kind: str, stream: bool = False) -> KeepingTranslator:
    """A model that has learned nothing. That of words knows no stretch but "7"."""
    size = {"word": 100, "bpe": 320}[kind]
    model: dict[str, Any] = {"num_encoder_layers": 1, **SMALL, "max_len": 60, **(ONE_STREAM if stream else {})}
    pairs = [*toy_pairs(50), ("7", "7")]
    translator = make_translator(
        model,
        pairs,
        tokenizer={"kind": kind, "vocab_size": size, "min_frequency": 1},
        decoding={"max_length_extra": 20},
    )
    return KeepingTranslator(translator, translator.tgt_tokenizer, KINDS, aligner)


def assert_kept(source: str, text: str) -> None:
    assert sorted(s for s in found(text) if s in found(source)) == sorted(found(source)), text


@pytest.mark.parametrize(("stream", "beam_size"), [(False, 3), (True, 1)])
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_nothing_is_lost_or_doubled(kind: str, stream: bool, beam_size: int) -> None:
    texts = [
        f"One two {STRETCHES[0]}, three four.", f"{STRETCHES[2]} five six", f"seven ({STRETCHES[3]}) two.",
        STRETCHES[4], f"one {STRETCHES[5]} two {STRETCHES[5]} three", "one two three", "",
        f"{STRETCHES[1]}{STRETCHES[7]} ten",
    ]  # fmt: skip
    translator = keeping(kind, stream)
    options = search_options(translator.config.decoding, beam_size=beam_size, n_best=beam_size)
    free = translator.translator.translate_lines(texts, options)
    for text, translated, unbound in zip(texts, translator.translate_lines(texts, options), free, strict=True):
        assert translated.source == text
        assert translated.problem == ""
        for hypothesis in translated.hypotheses:
            assert_kept(text, hypothesis.text)
        if not found(text):
            assert [h.text for h in translated.hypotheses] == [h.text for h in unbound.hypotheses]
        else:
            assert translated.hypotheses


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from([*STRETCHES, *ENGLISH[:4], " ", " ", ", ", ".", "<b>", "&amp;", "x5"]), max_size=10),
    st.booleans(),
)
def test_whatever_the_line_holds_each_stretch_comes_out_or_it_is_told(parts: list[str], is_word: bool) -> None:
    text = "".join(parts)
    (translated,) = keeping("word" if is_word else "bpe").translate_lines([text])
    assert translated.hypotheses or translated.problem or translated.too_long or not text.strip()
    for hypothesis in translated.hypotheses:
        assert_kept(text, hypothesis.text)


def test_what_the_model_cannot_write_stands_by_the_alignment() -> None:
    """The toy language turns the last two words of a sentence."""

    class ByTheDictionary:
        def __init__(self, inner: KeepingTranslator) -> None:
            self.inner = inner.translator

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def translate_lines(self, texts: Any, options: Any = None) -> Any:
            words = dict(zip(ENGLISH, SPANISH, strict=True))
            results = self.inner.translate_lines(texts, options)
            for result in results:
                source = result.source.rstrip(".").split()
                turned = [*source[:-2], *reversed(source[-2:])]
                text = " ".join(words.get(word, word) for word in turned) + "."
                yield replace(result, hypotheses=[replace(h, text=text) for h in result.hypotheses[:1]])

    inner = keeping("word")
    translator = KeepingTranslator(ByTheDictionary(inner), inner.tgt_tokenizer, KINDS, aligner)  # pyright: ignore[reportArgumentType]
    (translated,) = translator.translate_lines(["five one {name} two three."])
    assert translated.text == "cinco uno tres {name} dos.", "before the word that follows it"


def test_a_space_is_put_only_where_there_is_none() -> None:
    text, point = "7 8", "<img id=kept{}>".format
    spans = [(0, 1), (2, 3)]
    put_back = keeping("word")._put_back
    assert put_back(f"uno {point(0)} dos, {point(1)}.", text, spans) == "uno 7 dos, 8."
    assert put_back(f"uno {point(0)} dos{point(1)} &gt; tres", text, spans) == "uno 7 dos 8 > tres"
    assert put_back(f"{point(0)}{point(1)}", text, spans) == "7 8"


def test_prefixes_constraints_and_markup_go_with_it() -> None:
    translator = keeping("bpe")
    options = search_options(translator.config.decoding, constraints="unordered")
    begun, holding = translator.translate_lines(
        [SourceLine("one {name} two", "uno {name}"), SourceLine("one {name} two", constraints=("dos", "{name}"))],
        options,
    )
    assert begun.problem == holding.problem == ""
    assert begun.text.startswith("uno {name}")
    for translated in (begun, holding):
        assert_kept("{name}", translated.text)
    pages = HtmlTranslator(translator, aligner())
    (page,) = pages.translate(["<p>one <b>7</b> two &lt; three</p>"])
    assert found(page.replace("<b>", "").replace("</b>", "")) == ["7"]
    assert page.startswith("<p>")
    (page,) = pages.translate(["<p>one <b>350&nbsp;000</b> two three</p>"])
    assert found(page.replace("<b>", "").replace("</b>", "")) == ["350\xa0000"], "one number, and not two"
    (told,) = keeping("word").translate_lines([SourceLine("one {name} two", "uno")])
    assert told.problem == "the model cannot write these words that are demanded: {, name, }"
    with pytest.raises(UserError, match="keep was asked for, and constraints are ordered"):
        translator.translate_lines(["one"], search_options(translator.config.decoding, constraints="ordered"))


def test_a_stretch_within_a_phrase_that_is_demanded_is_not_demanded_again(tmp_path: Path) -> None:
    """No constraint counts within another one: "uno 7" with a 7 beside it is a 7 too many, and the line was blank."""
    translator = keeping("bpe")
    (tmp_path / "terms").write_text("one 7\tuno 7|7 uno\n", encoding="utf-8")
    options = search_options(translator.config.decoding, constraints="unordered", glossary=str(tmp_path / "terms"))
    term, twice, phrase, either = translator.translate_lines(
        [
            SourceLine("one 7 two"),
            SourceLine("7 two one 7"),
            SourceLine("two 7 five", constraints=("cinco 7",)),
            SourceLine("two 7 five", constraints=(("cinco", "cinco 7"),)),
        ],
        options,
    )
    for translated, wanted in ((term, "uno 7|7 uno"), (twice, "uno 7|7 uno"), (phrase, "cinco 7"), (either, "cinco")):
        assert translated.problem == ""
        assert translated.hypotheses
        for hypothesis in translated.hypotheses:
            assert_kept(translated.source, hypothesis.text)
            assert re.search(rf"\b({wanted})\b", hypothesis.text)


def test_a_long_line_keeps_all_in_its_pieces() -> None:
    text = ". ".join(["One two {name} three", *[src.rstrip(".") for src, _ in toy_pairs(12)], "four 12:30 me@x.org"])
    translator = keeping("word")
    options = search_options(translator.config.decoding, too_long=TooLong.SPLIT)
    (translated,) = translator.translate_lines([text], options)
    assert (translated.too_long, translated.problem) == (True, "")
    assert_kept(text, translated.text)


def test_the_beginning_of_a_line_is_translated_without_what_has_no_room_in_it() -> None:
    """It was left blank, where a line that fits has what is kept put back."""
    translator, text = keeping("bpe"), "one two " + "{name} three " * 70
    options = search_options(translator.config.decoding, too_long=TooLong.TRUNCATE)
    (translated,) = translator.translate_lines([text], options)
    assert (translated.too_long, translated.problem) == (True, "")
    assert_kept(text, translated.text)


def test_for_lines_without_anything_to_keep_no_aligner_is_asked(tmp_path: Path) -> None:
    """It may have to be trained first. A line of them that has no translation was searched a second time, along it."""
    (tmp_path / "terms").write_text("one\tzebra\n", encoding="utf-8")
    inner = keeping("word")
    translator = KeepingTranslator(inner.translator, inner.tgt_tokenizer, KINDS, lambda: pytest.fail("it is asked"))
    options = search_options(translator.config.decoding, glossary=str(tmp_path / "terms"))
    (told,) = translator.translate_lines(["one two"], options)
    assert told.problem == "the model cannot write these words that are demanded: zebra"


def test_where_no_aligner_can_be_had_the_lines_that_need_it_say_so_and_the_others_are_translated() -> None:
    """And it is asked for once: to train it may take a minute."""
    asked: list[int] = []

    def none() -> Aligner:
        asked.append(1)
        raise UserError("There is no file train.en.")

    inner = keeping("word")
    translator = KeepingTranslator(inner.translator, inner.tgt_tokenizer, KINDS, none)
    texts = ["one two", "one {name} two", "three 7 four", ""]
    for _ in range(2):
        lines = translator.translate_lines(texts)
        for there, line in zip((True, False, True, False), lines, strict=True):
            assert bool(line.hypotheses) == there
        assert lines[1].problem == (
            "what it keeps can only be put back along word alignments, and there are none: There is no file train.en."
        )
    assert len(asked) == 1


def test_samples_of_a_line_are_those_of_its_place() -> None:
    translator = keeping("word")
    options = search_options(translator.config.decoding, temperature=1.0, n_best=3)
    texts = ["one {name} two", "three four", "five {name} six"]
    for place, line in enumerate(translator.translate_lines(texts, options)):
        (alone,) = translator.translate_lines([SourceLine(texts[place], place=(place,))], options)
        assert [h.text for h in line.hypotheses] == [h.text for h in alone.hypotheses]
