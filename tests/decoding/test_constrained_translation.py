"""Phrases that a translation must hold: every one is there as whole words, or the line says which is not."""

from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from toy import toy_pairs
from translators import ONE_STREAM, toy_translator

from transformer_mt.decoding.demands import SourceLine, demanding, writings_of
from transformer_mt.decoding.ensemble import Ensemble
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.search.rules import Writing
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError

TEXTS = [src for src, _ in toy_pairs(10, seed=5)]
CONSTRAINTS = [
    ("uno",), ("dos tres",), (), ("uno", "uno"), ("diez", "ocho, nueve", "diez ocho"), (), ("cinco.",),
    ("uno", "uno dos"), (("seis", "siete"),), ("nueve", ("uno dos tres", "uno")),
]  # fmt: skip
LINES = [SourceLine(text, constraints=phrases) for text, phrases in zip(TEXTS, CONSTRAINTS, strict=True)]


long_translator = partial(toy_translator, max_len=40, max_length_extra=14)  # there is room for the phrases


def places(phrase: str, text: str) -> list[tuple[int, int]]:
    """Where a phrase stands as whole words."""
    before, after = r"(?<![\p{L}\p{M}\p{N}])", r"(?![\p{L}\p{M}\p{N}])"
    pattern = before * phrase[0].isalnum() + regex.escape(phrase) + after * phrase[-1].isalnum()
    return [match.span() for match in regex.finditer(pattern, text, overlapped=True)]


def holds(
    text: str, phrases: tuple[str | tuple[str, ...], ...], ordered: bool, after: tuple[int, int] = (-1, -1)
) -> bool:
    """Whether the phrases stand in the text, none within another, by trying all places."""
    if not phrases:
        return True
    for i, phrase in enumerate(phrases[:1] if ordered else phrases):
        for one in (phrase,) if isinstance(phrase, str) else phrase:
            for start, end in places(one, text):
                is_after = start > after[0] and end > after[1]
                if is_after and holds(text, phrases[:i] + phrases[i + 1 :], ordered, (start, end)):
                    return True
    return False


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("stream", [{}, ONE_STREAM])
@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_every_constraint_is_there_as_whole_words(kind: str, stream: dict, beam_size: int) -> None:
    translator = long_translator(kind, stream)
    order = "ordered" if beam_size == 3 else "unordered"
    options = search_options(translator.config.decoding, beam_size=beam_size, n_best=beam_size, constraints=order)
    found = translator.translate_lines(LINES, options)
    for line, translated in zip(LINES, found, strict=True):
        assert translated.problem == ""
        assert 1 <= len(translated.hypotheses) <= beam_size
        for hypothesis in translated.hypotheses:
            assert holds(hypothesis.text, line.constraints, order == "ordered"), (hypothesis.text, line.constraints)
    free = translator.translate_lines(TEXTS, options)
    assert not all(holds(one.text, line.constraints, False) for one, line in zip(free, LINES, strict=True))
    for line, translated, unbound in zip(LINES, found, free, strict=True):
        if not line.constraints:
            assert [h.text for h in translated.hypotheses] == [h.text for h in unbound.hypotheses]
    for line, translated in zip(LINES[:5], found, strict=False):
        (alone,) = translator.translate_lines([line], options)
        assert alone.text == translated.text, "batch mates change nothing"


def test_constraints_that_the_model_writes_anyway_change_no_text() -> None:
    translator = long_translator("word")
    free = translator.translate(TEXTS, beam_size=4)
    lines = [
        SourceLine(text, constraints=tuple(regex.findall(r"\w+", found)[:2]))
        for text, found in zip(TEXTS, free, strict=True)
    ]
    # A beam of 4 has more places for them than for what leaves them out.
    same = [one == other for one, other in zip(translator.translate(lines, beam_size=4), free, strict=True)]
    assert sum(same) >= len(same) - 2


def test_a_word_stands_behind_a_space_or_a_mark_and_is_whole() -> None:
    translator = long_translator("bpe")
    tokenizer = translator.tgt_tokenizer
    spaced, joined = writings_of("dos tres", tokenizer)
    assert spaced == Writing(tuple(tokenizer.encode("dos tres")), after_break=False, ends_in_word=True)
    assert joined.after_break
    assert tokenizer.decode([*tokenizer.encode("¿"), *joined.tokens]) == "¿dos tres"
    chinese = writings_of("鱼", tokenizer)
    assert [(way.after_break, way.ends_in_word) for way in chinese] == [(False, False)] * 2
    assert tokenizer.decode([*tokenizer.encode("吃"), *chinese[1].tokens]) == "吃鱼"
    mark = writings_of("?", tokenizer)
    assert [tokenizer.decode([*tokenizer.encode("x"), *way.tokens]) for way in mark] == ["x ?", "x?"]
    assert len(writings_of("dos", long_translator("word").tgt_tokenizer)) == 1


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_constraints_go_with_prefixes_and_phrases_to_avoid(kind: str, tmp_path: Path) -> None:
    (tmp_path / "avoid").write_text("cuatro\n", encoding="utf-8")
    translator = long_translator(kind, avoid=str(tmp_path / "avoid"))
    lines = [
        SourceLine(TEXTS[0], "uno dos", ("dos", "tres")),
        SourceLine(TEXTS[1], "uno dos", ("dos dos",)),
        SourceLine(TEXTS[2], "", ("tres cuatro",)),
        SourceLine(TEXTS[3], "", (("tres cuatro", "tres cinco"),)),
    ]
    counted, whole, refused, other = translator.translate_lines(lines)
    for one, phrases in ((counted, ("dos", "tres")), (whole, ("dos dos",))):
        assert one.text.startswith("uno dos ")
        assert holds(one.text, phrases, ordered=False)
    assert refused.problem == f"the constraint tres cuatro holds a phrase of {tmp_path / 'avoid'}"
    assert holds(other.text, ("tres cinco",), ordered=False)
    assert not any(places("cuatro", one.text) for one in (counted, whole, other))


def test_a_constraint_that_cannot_be_met_leaves_its_line_alone_blank() -> None:
    translator = long_translator("word", max_length_ratio=0.0, max_length_extra=5, no_repeat_ngram_size=2)
    demanded = [
        ("uno dos", "tres cuatro cinco"),
        (),
        ("zebra",),
        (" ",),
        ("uno dos", "uno dos"),
        ("uno", ("zebra", "dos")),
    ]
    found = translator.translate_lines([SourceLine(TEXTS[0], constraints=phrases) for phrases in demanded])
    assert [one.problem for one in found] == [
        "the constraints have 5 tokens, and the translation may have 4",
        "",
        "the model cannot write these words that are demanded: zebra",
        "constraint 1 holds no word",
        "the search finds no translation with all constraints; what comes closest lacks: uno dos",
        "",
    ]
    assert [bool(one.text) for one in found] == [False, True, False, False, False, True]
    (told,) = translator.translate_lines([SourceLine(TEXTS[0], "uno dos", ("dos", "tres", "cuatro", "seis"))])
    assert told.problem == "prefix and constraints have 5 tokens, and the translation may have 4"
    with pytest.raises(
        UserError, match=r"The constraints of line 1 are a string. Give a tuple of phrases: \('uno',\)\."
    ):
        translator.translate([SourceLine(TEXTS[0], constraints="uno")])  # pyright: ignore[reportArgumentType]


def test_a_line_that_would_be_cut_is_not_translated_with_constraints() -> None:
    translator = long_translator("word")
    line = SourceLine(". ".join(TEXTS), constraints=("uno",))
    options = search_options(translator.config.decoding, too_long=TooLong.SPLIT)
    (told,) = translator.translate_lines([line], options)
    assert told.hypotheses == []
    assert told.problem == "it would be translated in pieces, and has constraints, which belong to the whole line"


def test_lengths_and_bans_on_repetition_hold_with_constraints() -> None:
    translator = long_translator("word")
    options = search_options(
        translator.config.decoding, beam_size=5, min_length=9, max_length=11, no_repeat_ngram_size=2, length_penalty=1.0
    )
    for line, translated in zip(LINES, translator.translate_lines(LINES, options), strict=True):
        tokens = translated.hypotheses[0].tokens
        assert 9 <= len(tokens) <= 11
        assert max(Counter(pairwise(tokens)).values()) == 1
        assert holds(translated.text, line.constraints, ordered=False)


def test_two_copies_of_a_model_write_what_the_model_writes() -> None:
    one = long_translator("bpe")
    both = Translator(Ensemble([one.model, one.model]).eval(), one.src_tokenizer, one.tgt_tokenizer, one.config)
    assert both.translate(LINES) == one.translate(LINES)


def test_constraints_stand_behind_tabs(tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("x\n\n", encoding="utf-8")
    chunk = ["a\tuno\tdos tres", "b"]
    assert list(demanding([chunk], None, has_constraints=True)) == [
        [SourceLine("a", "", ("uno", "dos tres")), SourceLine("b")]
    ]
    assert list(demanding([chunk], "tab", has_constraints=True)) == [
        [SourceLine("a", "uno", ("dos tres",)), SourceLine("b")]
    ]
    assert list(demanding([chunk], str(tmp_path / "prefixes"), has_constraints=True)) == [
        [SourceLine("a", "x", ("uno", "dos tres")), SourceLine("b")]
    ]
    assert list(demanding([["a\tuno\tdos"]], "tab")) == [[SourceLine("a", "uno\tdos")]]
