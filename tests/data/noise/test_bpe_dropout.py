"""BPE-dropout: the paper's algorithm, held against a slow version of it and against the library's encoding."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.data.make_tokenizers import train_tokenizer
from transformer_mt.data.noise import bpe_dropout
from transformer_mt.data.noise.bpe_dropout import BPEDropout, line_seeds
from transformer_mt.data.tokenizers import BYTES_BY_CHARACTER, BPETokenizer, normalize

TEXTS = [
    "the lowest tower lower than the newest, widest tower", "low lower lowest new newer newest wide wider widest",
    "Ein Haus, zwei Häuser; größer als 100 Bäume!!! «Ça va?» naïve façade",
    "日本語 テスト 𝐀𝐁 ⰀⰁⰂ 👍🏽👍🏽 a\u0301b ²½ x's",
    "don't can't won't isn't (tower) [newest] tower-newest lowest.",
]  # fmt: skip
CHARACTERS = {byte: character for character, byte in BYTES_BY_CHARACTER.items()}


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    config = TokenizerConfig(kind="bpe", vocab_size=420, min_frequency=1)
    tokenizer = train_tokenizer(TEXTS * 2, config)
    assert isinstance(tokenizer, BPETokenizer)
    return tokenizer


def segment(tokenizer: BPETokenizer, texts: list[str], probability: float, seed: int = 1) -> list[list[int]]:
    ids, lengths = tokenizer.encode_flat(texts)
    ids, lengths = BPEDropout(tokenizer, probability).segment(ids, lengths, line_seeds((seed,), np.arange(len(texts))))
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths))[:-1]]


class Chance:
    """The random numbers of the kernels, one after the other, from their description."""

    def __init__(self, seed: int) -> None:
        self.state, self.weyl = max(1, seed % 2**32), seed // 2**32

    def number(self) -> int:
        self.state ^= self.state << 13 & 2**32 - 1
        self.state ^= self.state >> 17
        self.state ^= self.state << 5 & 2**32 - 1
        self.weyl = (self.weyl + 362437) % 2**32
        return (self.state + self.weyl) % 2**32


def slow_segment(tokenizer: BPETokenizer, text: str, probability: float, chance: Chance) -> list[int]:
    """Algorithm 1, word by word as the library cuts them, on strings."""
    backend = tokenizer.backend
    ranks = {tuple(pair): rank for rank, pair in enumerate(json.loads(backend.to_str())["model"]["merges"])}
    found = []
    for word, _ in backend.pre_tokenizer.pre_tokenize_str(f" {normalize(text)}"):
        split = list(word)
        while True:
            merges = [(ranks[pair], i) for i, pair in enumerate(pairwise(split)) if pair in ranks]
            merges = [merge for merge in merges if chance.number() >= round(probability * 2**32)]
            if not merges:
                break
            _, i = min(merges)
            split[i : i + 2] = ["".join(split[i : i + 2])]
        found += [backend.token_to_id(piece) for piece in split]
    return found


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_it_is_the_papers_algorithm_with_the_same_numbers(tokenizer: BPETokenizer, probability: float) -> None:
    seeds = line_seeds((1,), np.arange(len(TEXTS))).tolist()
    for text, seed, found in zip(TEXTS, seeds, segment(tokenizer, TEXTS, probability), strict=True):
        assert found == slow_segment(tokenizer, text, probability, Chance(seed)), text


def test_without_dropout_it_is_the_librarys_encoding_and_with_all_it_is_bytes(tokenizer: BPETokenizer) -> None:
    assert segment(tokenizer, TEXTS, 0.0) == tokenizer.encode_batch(TEXTS)
    spelled = [[CHARACTERS[byte] for byte in f" {normalize(text)}".encode()] for text in TEXTS]
    assert segment(tokenizer, TEXTS, 1.0) == [
        [tokenizer.backend.token_to_id(character) for character in word] for word in spelled
    ]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_any_text_stays_itself(tokenizer: BPETokenizer, texts: list[str]) -> None:
    assert segment(tokenizer, texts, 0.0) == tokenizer.encode_batch(texts)
    for probability in (0.3, 1.0):
        for ids, usual in zip(segment(tokenizer, texts, probability), tokenizer.encode_batch(texts), strict=True):
            assert tokenizer.decode(ids) == tokenizer.decode(usual)
            assert len(ids) >= len(usual) or probability < 1


def test_real_text(shared_data) -> None:
    """6,000 lines of Multi30k in either language, word for word."""
    for language in ("en", "de"):
        lines = shared_data(f"multi30k/raw/train.{language}").read_text(encoding="utf-8").split("\n")[:6000]
        config = TokenizerConfig(kind="bpe", vocab_size=3000)
        tokenizer = train_tokenizer(lines, config)
        assert isinstance(tokenizer, BPETokenizer)
        assert segment(tokenizer, lines, 0.0) == tokenizer.encode_batch(lines)


def test_a_share_of_merges_is_dropped(tokenizer: BPETokenizer) -> None:
    """One merge is possible in each of these words, so it is dropped as often as asked; one word says nothing of the
    next.
    """
    low = next(
        pair
        for pair in json.loads(tokenizer.backend.to_str())["model"]["merges"]
        if pair[0] == "Ġ" and len(pair[1]) == 1
    )
    num_lines, num_words = 200, 200
    texts = [" ".join([low[1]] * num_words)] * num_lines
    for probability in (0.1, 0.5):
        kept: NDArray[np.bool_] = np.array(
            [_kept(ids, num_words, tokenizer, low) for ids in segment(tokenizer, texts, probability)]
        )
        deviation = (probability * (1 - probability) / kept.size) ** 0.5
        assert abs((~kept).mean() - probability) < 4 * deviation
        for one, other in ((kept[:, 1:], kept[:, :-1]), (kept[1:], kept[:-1])):
            assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 / kept.size**0.5


def _kept(ids: list[int], num_words: int, tokenizer: BPETokenizer, pair: list[str]) -> list[bool]:
    whole, left = (tokenizer.backend.token_to_id(entry) for entry in ("".join(pair), pair[0]))
    words = [i == whole for i in ids if i in (whole, left)]
    assert len(words) == num_words
    return words


def test_another_seed_or_line_is_another_segmentation(tokenizer: BPETokenizer) -> None:
    texts = [TEXTS[0]] * 20
    one, other = segment(tokenizer, texts, 0.5), segment(tokenizer, texts, 0.5, seed=2)
    assert one == segment(tokenizer, texts, 0.5)
    assert one != other
    assert len({tuple(ids) for ids in one + other}) > 35
    assert segment(tokenizer, texts[:7], 0.5) == one[:7], "a line is the same in any company"


def test_without_numba_it_is_the_same(tokenizer: BPETokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    if bpe_dropout._compiled() is None:
        pytest.skip("numba is not there")
    expected = segment(tokenizer, TEXTS, 0.3)
    monkeypatch.setattr(bpe_dropout, "_compiled", lambda: None)
    assert segment(tokenizer, TEXTS, 0.3) == expected


def test_what_has_no_merges_is_refused() -> None:
    for kind in ("word", "unigram"):
        with pytest.raises(ValueError, match=f"bpe_dropout is 0.1 and has no meaning under kind: {kind}"):
            TokenizerConfig(kind=kind, bpe_dropout=0.1)
    with pytest.raises(ValueError, match="bpe_dropout_sides is src and has no meaning without bpe_dropout"):
        TokenizerConfig(kind="bpe", bpe_dropout_sides="src")
