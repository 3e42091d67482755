"""Alignments of pairs whose true links are known, what is said of unknown words, and the aligner's folder."""

import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from damage import Damage
from hypothesis import given
from hypothesis import strategies as st
from toy import ENGLISH, SPANISH, toy_pairs

from transformer_mt.aligning import aligner as module
from transformer_mt.aligning.aligner import Aligner
from transformer_mt.aligning.alignment import LEAST_SHOWN, Alignment, pharaoh, soft_links
from transformer_mt.aligning.bitext import MAX_WORDS
from transformer_mt.aligning.symmetrisation import SYMMETRISATIONS
from transformer_mt.aligning.words import Word, words_of
from transformer_mt.data.word_splitting import JOINER, split_words
from transformer_mt.errors import UserError

TEXTS = [
    "¿Qué, don't?",
    "  two\u00a0spaces \u2028 ￭ ",
    "",
    " ",
    "«No» (yes).",
    "e\u0301te\u0301 中文。",
    "\ud800 a\x1cb",
]


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return Aligner.train(toy_pairs(300))


@pytest.mark.parametrize("text", TEXTS)
def test_words_are_those_of_the_tokenizer_and_stand_where_they_say(text: str) -> None:
    words = words_of(text)
    tokens = [token.removeprefix(JOINER).removesuffix(JOINER) for token in split_words(text)]
    assert [word.text for word in words] == [JOINER if token == "<joiner>" else token for token in tokens]
    chunks = text.split()
    for word in words:
        assert text[word.start : word.end] == word.text
        assert word.text in chunks[word.chunk]


def toy_links(src: str) -> list[tuple[int, int]]:
    """The toy language turns the last two words around; its period is a word too."""
    n = len(src.removesuffix(".").split())
    return sorted([*((i, i) for i in range(n - 2)), (n - 2, n - 1), (n - 1, n - 2), (n, n)])


@pytest.mark.parametrize("symmetrise", SYMMETRISATIONS)
def test_a_dictionary_is_learned_exactly(aligner: Aligner, symmetrise: str) -> None:
    pairs = toy_pairs(400)
    for (src, _), alignment in zip(pairs, aligner.align(pairs, symmetrise), strict=True):
        words = src.removesuffix(".").split()
        if len(words) == len(set(words)):  # else nothing says which of two equal words is meant
            assert alignment.links == toy_links(src), src
        dictionary = dict(zip([*ENGLISH, "."], [*SPANISH, "."], strict=True))
        for i, j in alignment.links:
            assert dictionary[alignment.src_words[i].text] == alignment.tgt_words[j].text
    for english, spanish in zip(ENGLISH, SPANISH, strict=True):
        (best, probability), *others = aligner.translations(english.upper(), 3)
        assert best == spanish
        assert probability > 0.98
        assert len(others) <= 2
    assert aligner.translations("eleven", 3) == []


def test_the_alignment_of_a_constructed_language_is_found() -> None:
    """Each word is turned into one or two words of the other side or into none, neighbours change places, and words
    without a source come in between: what a real pair does, and the error rate is known.
    """
    dice = random.Random(3)
    words, weights = range(300), [1 / (rank + 3) for rank in range(300)]
    fertility = {word: dice.choice([0, 1, 1, 1, 1, 1, 1, 2]) for word in words}
    pairs, gold = [], []
    for _ in range(3000):
        src = dice.choices(words, weights, k=dice.randint(4, 14))
        order = list(range(len(src)))
        for k in range(len(src) - 1):
            if dice.random() < 0.15:
                order[k], order[k + 1] = order[k + 1], order[k]
        tgt, links = [], set()
        for i in order:
            for part in range(fertility[src[i]]):
                links.add((i, len(tgt)))
                tgt.append(f"t{src[i]}x{part}")
            if dice.random() < 0.05:
                tgt.append("filler")
        if tgt:
            pairs.append((" ".join(f"s{word}" for word in src), " ".join(tgt)))
            gold.append(links)
    found = [set(alignment.links) for alignment in Aligner.train(pairs).align(pairs)]
    num_both = sum(len(one & other) for one, other in zip(found, gold, strict=True))
    error_rate = 1 - 2 * num_both / sum(len(one) + len(other) for one, other in zip(found, gold, strict=True))
    assert error_rate < 0.1


def test_a_soft_alignment_is_a_distribution(aligner: Aligner) -> None:
    pairs = [*toy_pairs(20), ("", "uno"), ("one", " "), ("eleven", "once doce")]
    found = aligner.posteriors(pairs)
    for (src, tgt), (rows, columns), alignment in zip(pairs, found, aligner.align(pairs, "intersection"), strict=True):
        assert rows.shape == columns.shape == (len(words_of(tgt)), len(words_of(src)))
        if rows.size:
            assert min(rows.min(), columns.min()) >= 0
            assert np.all(rows.sum(axis=1) < 1)
            assert np.all(columns.sum(axis=0) < 1)
            for i, j in alignment.links:
                assert rows[j].argmax() == i
                assert columns[:, i].argmax() == j
                assert rows[j, i] + columns[j, i] > 1
    assert found[20][0].shape == (1, 0)


def test_unknown_words_go_by_their_form_and_else_by_their_place(aligner: Aligner) -> None:
    links = aligner.align([
        ("one Zara six", "Zara uno seis"),  # the same name, though the place says otherwise
        ("one two eleven six", "uno dos once seis"),
        ("eleven twelve thirteen", "once doce trece"),
        ("ONE e\u0301ric", "\u00c9RIC uno"),  # in any case, composed or not
    ])  # fmt: skip
    assert links[0].links == [(0, 1), (1, 0), (2, 2)]
    assert links[1].links == [(i, i) for i in range(4)]
    assert links[2].links == [(i, i) for i in range(3)]
    assert links[3].links == [(0, 1), (1, 0)]


def test_blank_and_endless_lines_have_no_links(aligner: Aligner) -> None:
    pairs = [("one", ""), ("one two", "uno dos"), (" ", "uno"), ("one " * (MAX_WORDS + 1), "uno"), ("one", "uno")]
    found = aligner.align(pairs)
    assert [alignment.pharaoh() for alignment in found] == ["", "0-0 1-1", "", "", "0-0"]
    assert [alignment.too_long for alignment in found] == [False, False, False, True, False]
    assert aligner.align([]) == []


def test_blank_and_endless_lines_are_as_if_they_were_not_there(tmp_path: Path) -> None:
    """Their words too, which stand nowhere else. The training ended with an error."""
    left_out = [("alone", ""), (" ", "solo"), ("long " * (MAX_WORDS + 1), "largo"), ("short", "corto " * 2001)]
    pairs = toy_pairs(40)
    aligners = [Aligner.train(pairs), Aligner.train([*left_out[:2], *pairs[:7], *left_out[2:], *pairs[7:]])]
    for number, one in enumerate(aligners):
        one.save(tmp_path / str(number))
    first, second = (tmp_path / str(number) for number in range(2))
    assert {file.name: file.read_bytes() for file in first.iterdir()} == {
        file.name: file.read_bytes() for file in second.iterdir()
    }
    longest = Aligner.train([*pairs, ("longest " * MAX_WORDS, "uno")])
    assert longest.src_vocabulary.words == [*aligners[0].src_vocabulary.words, "longest"]


def test_an_alignment_does_not_depend_on_the_other_pairs(aligner: Aligner) -> None:
    pairs = [*toy_pairs(40), ("one Zara six", "Zara uno seis"), ("Zara", "dos Zara")]
    assert aligner.align(pairs) == [aligner.align([pair])[0] for pair in pairs]


def test_soft_links_are_those_of_the_matrices_however_few_are_made_at_a_time(
    aligner: Aligner, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_long = "one " * (MAX_WORDS + 1)
    pairs = [("", "uno"), *toy_pairs(9), ("one", " "), (too_long, "uno"), *toy_pairs(30)[9:], ("one", "uno " * 2001)]
    whole = aligner.posteriors(pairs)
    expected = [soft_links(words_of(src), words_of(tgt), *of) for (src, tgt), of in zip(pairs, whole, strict=True)]
    assert [bool(links) for links in expected] == [False, *[True] * 9, False, False, *[True] * 21, False]
    assert [matrix.shape for matrix in whole[11]] == [(1, MAX_WORDS + 1)] * 2
    assert not whole[11][0].any()
    for cells in (module._CELLS_AT_ONCE, 50, 1):
        monkeypatch.setattr(module, "_CELLS_AT_ONCE", cells)
        assert aligner.soft_links(pairs) == expected
        assert all(map(np.array_equal, sum(aligner.posteriors(pairs), ()), sum(whole, ())))


@pytest.mark.parametrize(("num_pairs", "num_words"), [(12, 300), (1, 4000)], ids=["many", "too long"])
def test_soft_links_hold_no_matrix_longer_than_they_need_it(
    aligner: Aligner, num_pairs: int, num_words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix of 300 words a side takes 0.7 MB, and one of 100,000 words a side would take 80 GB."""
    monkeypatch.setattr(module, "_CELLS_AT_ONCE", 1)
    names = " ".join(f"n{i}" for i in range(num_words))  # written alike, so that each has one link
    aligner.soft_links([("one two", "uno dos")])  # what is loaded once
    tracemalloc.start()
    try:
        links = aligner.soft_links([(names, names)] * num_pairs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(some) for some in links] == [num_words if num_pairs > 1 else 0] * num_pairs
    assert peak < 2**23 + num_pairs * num_words * 600, "the words themselves take some"


def test_links_of_white_space_words() -> None:
    """By hand: marks within words link nothing, a mark that stands alone does."""
    src, tgt = words_of("yes, sir ?"), words_of("sí señor, ¿ok?")
    links = [(0, 0), (1, 2), (2, 1), (3, 5), (1, 1), (3, 3)]
    alignment = Alignment(links, src, tgt)
    assert [word.text for word in tgt] == ["sí", "señor", ",", "¿", "ok", "?"]
    assert alignment.pharaoh() == "0-0 1-1 2-2"
    assert Alignment([(0, 0), (0, 1)], words_of("don't"), words_of("no lo")).pharaoh() == "0-0 0-1"
    posteriors = np.zeros((6, 4))
    posteriors[[0, 1, 4], [0, 2, 3]] = 0.9, 0.8, 0.004
    posteriors[2, 1] = 0.7  # the comma counts for nothing
    posteriors[1, 0] = 0.1
    assert pharaoh(soft_links(src, tgt, posteriors)) == "0-0:0.90 0-1:0.10 1-1:0.80"
    assert soft_links([], words_of("a"), np.zeros((1, 0))) == []
    assert words_of("a b.")[2] == Word(".", 3, 4, 1)


def test_each_direction_has_its_own_soft_links_of_white_space_words() -> None:
    """By hand: "know-how" is two words and a mark, of which each has a distribution of its own over the target."""
    src, tgt = words_of("know-how now"), words_of("saber ya")
    forward = np.array([[0.5, 0.1, 0.3, 0.1], [0.0, 0.2, 0.0, 0.7]])
    backward = np.array([[0.9, 0.8, 0.7, 0.0], [0.1, 0.1, 0.2, 1.0]])
    assert pharaoh(soft_links(src, tgt, forward)) == "0-0:0.90 0-1:0.20 1-0:0.10 1-1:0.70"
    assert pharaoh(soft_links(src, tgt, forward, backward)) == "0-0:0.85 0-1:0.18 1-0:0.05 1-1:0.85"
    turned = [(j, i, p) for i, j, p in soft_links(tgt, src, backward.T, forward.T)]
    assert sorted(turned) == soft_links(src, tgt, forward, backward), "no side is another"


@given(st.text("ab-. ", max_size=12), st.text("ab-. ", max_size=12), st.integers(0, 999))
def test_a_soft_link_is_a_probability(src_text: str, tgt_text: str, seed: int) -> None:
    src, tgt, dice = words_of(src_text), words_of(tgt_text), np.random.default_rng(seed)
    forward, backward = (dice.exponential(size=(len(tgt), len(src))) for _ in range(2))
    forward = forward / forward.sum(axis=1, keepdims=True)
    backward = backward / backward.sum(axis=0, keepdims=True)
    links = soft_links(src, tgt, forward, backward)
    assert all(0 < probability <= 1 for *_, probability in links)
    if len(src) == len(src_text.split()) and len(tgt) == len(tgt_text.split()):
        mean = (forward + backward) / 2
        assert [p for *_, p in links] == pytest.approx([p for p in mean.T.flat if p >= LEAST_SHOWN])


def test_an_aligner_comes_back_from_its_folder(aligner: Aligner, tmp_path: Path) -> None:
    folder, pairs = tmp_path / "aligner", toy_pairs(30, seed=1)
    Aligner.train(toy_pairs(5)).save(folder)
    aligner.save(folder)  # in the place of another
    again = Aligner.load(folder)
    assert again.align(pairs) == aligner.align(pairs)
    for one, other in zip(again.posteriors(pairs), aligner.posteriors(pairs), strict=True):
        assert np.array_equal(one, other)
    assert again.translations("six", 5) == aligner.translations("six", 5)
    assert [path.name for path in tmp_path.iterdir()] == ["aligner"]


def test_a_damaged_folder_is_told(aligner: Aligner, tmp_path: Path) -> None:
    aligner.save(tmp_path / "aligner")
    for path in sorted((tmp_path / "aligner").iterdir()):
        whole = path.read_bytes()
        for damage in (Damage(0, len(whole) // 2, 1), Damage(0, 20, 0), Damage(0, len(whole) - 3, 64)):
            path.write_bytes(damage.of(whole))
            with pytest.raises(UserError, match=r"Make it again with `tmt align --train`\."):
                Aligner.load(tmp_path / "aligner")
        path.write_bytes(whole)
    os.remove(tmp_path / "aligner" / "tables.safetensors")
    with pytest.raises(UserError, match="is missing"):
        Aligner.load(tmp_path / "aligner")


def test_pairs_that_have_nothing_to_align() -> None:
    with pytest.raises(UserError, match="There is no pair to learn alignments from"):
        Aligner.train([("", "uno"), ("one " * (MAX_WORDS + 1), "uno")])
