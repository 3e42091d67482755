"""The built-in corpus: the links of its grammar against pairs by hand, and the aligner against those links."""

import sys

import bench_align
import pytest
from builtin_corpus.links import links

BY_HAND = [
    # Everything that is sure; then what is possible besides and what is not, by the words.
    ("the cat sat .", "el gato se sentó .", "the-el cat-gato sat-sentó .-.", "sat-se", "cat-se the-gato"),
    (
        "did the boy not buy these red apples ?", "¿ no compró el niño estas manzanas rojas ?",
        "the-el boy-niño not-no buy-compró these-estas red-rojas apples-manzanas ?-?", "did-compró ?-¿", "did-el not-¿",
    ),
    (
        "the woman who lives in the castle gave the book to the girl",
        "la mujer que vive en el castillo le dio el libro a la niña",
        "woman-mujer who-que lives-vive in-en castle-castillo gave-dio book-libro girl-niña",
        "gave-le to-a", "woman-niña gave-libro",
    ),
    (
        "we were reading at the moment", "estábamos leyendo en este momento",
        "reading-leyendo", "the-este at-en were-estábamos", "at-leyendo",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("en", "es", "surely", "perhaps", "never"), BY_HAND)
def test_links_of_the_grammar_by_hand(en: str, es: str, surely: str, perhaps: str, never: str) -> None:
    src, tgt = en.split(), es.split()
    sure, possible = links(src, tgt)
    assert sure <= possible

    def named(found: set[tuple[int, int]]) -> set[str]:
        return {f"{src[i]}-{tgt[j]}" for i, j in found}

    assert set(surely.split()) <= named(sure)
    assert set(perhaps.split()) <= named(possible)
    assert not set(never.split()) & named(possible)


def test_the_articles_of_one_sentence_belong_to_their_nouns() -> None:
    sure, _ = links(["the", "dog", "saw", "the", "cat"], ["el", "perro", "vio", "al", "gato"])
    assert sure == {(i, i) for i in range(5)}


@pytest.mark.slow
def test_the_benchmark_measures_an_error_rate_below_the_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_align.py", "--pairs", "300", "--shown", "1"])
    bench_align.main()
    told = capsys.readouterr().out
    assert told.startswith("300 pairs, ")
    rates = dict(line.split(": alignment error rate ") for line in told.split("\n") if "error rate" in line)
    for name in ("grow-diag-final-and", "intersection", "union"):
        rate, precision, recall = (float(part.split()[-1]) for part in rates[name].split(","))
        assert 0 < rate < 0.05
        assert min(precision, recall) > 0.93
