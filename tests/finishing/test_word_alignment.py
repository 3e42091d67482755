"""Alignments of translations: held against sentences that were aligned by hand, and equal to `tmt align`'s."""

import pytest
from given_translations import Given
from toy import toy_pairs
from translators import SMALL, make_translator

from transformer_mt.aligning.aligner import Aligner, Pair
from transformer_mt.aligning.alignment import pharaoh, soft_links
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.decoding.lines.line_formats import FORMATS
from transformer_mt.decoding.search.options import search_options
from transformer_mt.finishing.word_alignment import AlignedTranslator

# Aligned by hand: sure links, then those that are possible besides.
BY_HAND = [
    ("The cat sat.", "El gato se sentó.", "0-0 1-1 2-3", "2-2"),
    ("The old woman has a red car.", "La mujer vieja tiene un coche rojo.", "0-0 1-2 2-1 3-3 4-4 5-6 6-5", ""),
    ("I am reading a book.", "Estoy leyendo un libro.", "2-1 3-2 4-3", "0-0 1-0"),
    ("My friends live in the city.", "Mis amigos viven en la ciudad.", "0-0 1-1 2-2 3-3 4-4 5-5", ""),
    ("The boy is drinking water.", "El niño está bebiendo agua.", "0-0 1-1 2-2 3-3 4-4", ""),
    ("Where is the white house?", "¿Dónde está la casa blanca?", "0-0 1-1 2-2 3-4 4-3", ""),
    ("She does not eat meat.", "Ella no come carne.", "0-0 2-1 3-2 4-3", "1-2 1-1"),
    ("The dog is under the table.", "El perro está debajo de la mesa.", "0-0 1-1 2-2 3-3 4-5 5-6", "3-4"),
    ("We have two small cats.", "Tenemos dos gatos pequeños.", "1-0 2-1 3-3 4-2", "0-0"),
    ("The girl buys a new dress.", "La niña compra un vestido nuevo.", "0-0 1-1 2-2 3-3 4-5 5-4", ""),
    ("The teacher always reads.", "El profesor siempre lee.", "0-0 1-1 2-2 3-3", ""),
    ("The man cooks the fish.", "El hombre cocina el pescado.", "0-0 1-1 2-2 3-3 4-4", ""),
]


TRANSLATOR = make_translator({"num_encoder_layers": 1, **SMALL})
CONFIG = TRANSLATOR.config
TOY = Aligner.train(toy_pairs(300))


@pytest.fixture(scope="module")
def spanish() -> Aligner:
    """A third of the pairs is enough for the sentences by hand."""
    return Aligner.train(builtin_pairs("train")[::3])


def links_of(text: str) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in (link.split("-") for link in text.split())}


def test_the_alignments_are_those_of_a_person(spanish: Aligner) -> None:
    """The error rate of Och and Ney (2003) over all of them."""
    given = Given({src: tgt for src, tgt, _, _ in BY_HAND}, CONFIG)
    lines = AlignedTranslator(given, spanish).translate_lines([src for src, *_ in BY_HAND])
    right = total = 0
    for line, (src, _, surely, perhaps) in zip(lines, BY_HAND, strict=True):
        sure = links_of(surely)
        found = set(line.hypotheses[0].alignment or [])
        assert len(sure - found) + len(found - sure - links_of(perhaps)) <= 2, src
        right += len(found & sure) + len(found & (sure | links_of(perhaps)))
        total += len(found) + len(sure)
    assert 1 - right / total < 0.10


@pytest.mark.parametrize("soft", [False, True])
def test_a_model_s_translations_are_aligned_as_given_pairs_are(soft: bool) -> None:
    texts = ["one two three.", "", "seven, eight four", "ten"]
    options = search_options(CONFIG.decoding, n_best=3, beam_size=3)
    lines = AlignedTranslator(TRANSLATOR, TOY, soft).translate_lines(texts, options)
    plain = TRANSLATOR.translate_lines(texts, options)
    assert [[h.text for h in line.hypotheses] for line in lines] == [[h.text for h in p.hypotheses] for p in plain]
    assert sum(len(line.hypotheses) for line in lines) == 9
    for line in lines:
        assert line.is_aligned
        for hypothesis in line.hypotheses:
            pair: Pair = line.source, hypothesis.text
            (alignment,), (both,) = TOY.align([pair]), TOY.posteriors([pair])
            words = alignment.src_words, alignment.tgt_words
            expected = soft_links(*words, *both) if soft else alignment.white_space_links()
            assert hypothesis.alignment == expected


def test_the_alignment_is_the_last_column_of_every_format() -> None:
    given = Given({"one two three.": "uno tres dos."}, CONFIG)
    (found, blank) = AlignedTranslator(given, TOY).translate_lines(["one two three.", ""])
    links = "0-0 1-2 2-1"
    assert found.hypotheses[0].alignment == [(0, 0), (1, 2), (2, 1)]
    assert FORMATS["text"].lines(1, found, 1) == [f"uno tres dos. ||| {links}"]
    assert FORMATS["text"].lines(1, found, 2) == [f"1 ||| uno tres dos. ||| -1.0000 ||| {links}"]
    assert FORMATS["moses"].lines(1, found, 1) == [f"0 ||| uno tres dos. ||| F0= -2.0000 ||| -1.0000 ||| {links}"]
    assert '"alignment": [[0, 0], [1, 2], [2, 1]]' in FORMATS["jsonl"].lines(1, found, 1)[0]
    assert FORMATS["text"].lines(2, blank, 1) == [" ||| "]
    assert FORMATS["text"].lines(2, blank, 2) == ["2 |||  |||  ||| "]
    assert FORMATS["moses"].lines(2, blank, 1) == ["1 |||  ||| F0= 0.0000 ||| 0.0000 ||| "]
    (plain,) = given.translate_lines(["one two three."])
    assert FORMATS["text"].lines(1, plain, 1) == ["uno tres dos."]
    assert "alignment" not in FORMATS["jsonl"].lines(1, plain, 1)[0]


def test_soft_links_are_written_with_their_probability() -> None:
    given = Given({"one two three.": "uno tres dos."}, CONFIG)
    (found,) = AlignedTranslator(given, TOY, soft=True).translate_lines(["one two three."])
    (text,) = FORMATS["text"].lines(1, found, 1)
    for link in text.partition(" ||| ")[2].split():
        place, _, probability = link.partition(":")
        assert (float(probability) > 0.9) == (place in {"0-0", "1-2", "2-1"})
    assert pharaoh(found.hypotheses[0].alignment or []) == text.partition(" ||| ")[2]
