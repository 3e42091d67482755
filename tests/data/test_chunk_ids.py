"""Texts are encoded chunk by chunk, and words counted by distinct chunk: here against doing it with whole texts."""

import copy
import json
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest
import tokenizers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers
from toy import all_entries

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import SPECIAL_TOKENS
from transformer_mt.data import make_tokenizers, tokenizers
from transformer_mt.data import word_splitting as words
from transformer_mt.data.make_tokenizers import train_tokenizer
from transformer_mt.data.tokenizers import TOKENIZERS, BPETokenizer, Tokenizer, WordTokenizer, normalize
from transformer_mt.data.word_splitting import count_words, split_words

KINDS = ["word", "bpe", "unigram"]
SENTENCES = [
    "The cat sat on the mat.", "¿Dónde está el gato, CAFÉ?", "«Όσος ΟΔΟΣ»", "İstanbul'da ﬁn ½", "今天天气很好。今天",
    "किताब अच्छी है।", "a_b #1 @home 5% ￭ ▁ Ġ </s>", "(\"Hi\") don't - stop...",
] * 2  # fmt: skip
# Marks that would join a space or a letter, letters that lower case makes longer or depends on the place of, joiners,
# names of special tokens, and white space of every kind: some is white space to Python alone.
PIECES = [
    "\u0301", "\u0327", "\u0345", "é", "e", "İ", "Σ", "ΑΣ", "ẞ", "ﬁ", "\u1e9b\u0323", "가", "ᄀ", "ᅡ", "ᆨ", "\u2126",
    "￭", "▁", "Ġ", "</s>", "<unk>", "<joiner>", "the", "The", "cat", "今天", "अच्छी", ".", "...", "¿", "(", "'", "½",
    " ", "  ", "\u00a0", "\u2000", "\u2002", "\u3000", "\u200b", "\u200d", "\ufeff", "\u180e", "\u2060", "\t", "\n",
    "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029", "\x00", "👨\u200d👩",
]  # fmt: skip
TEXT = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(st.sampled_from(" ".join(SENTENCES).split(" ")), max_size=8).map(" ".join),
)
TEXTS = st.lists(TEXT, max_size=6)


def config(kind: str, **changes) -> TokenizerConfig:
    return TokenizerConfig.model_validate({"kind": kind, "vocab_size": 500, **all_entries(kind), **changes})


TRAINED = {
    (kind, lowercase): train_tokenizer(SENTENCES, config(kind, lowercase=lowercase))
    for kind in KINDS
    for lowercase in (False, True)
}


def fresh(kind: str, lowercase: bool) -> Tokenizer:
    return TOKENIZERS[kind](TRAINED[kind, lowercase].backend, lowercase)


def whole_text_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """What the library makes of the whole text, normalised."""
    text = normalize(text, tokenizer.lowercase)
    if isinstance(tokenizer, WordTokenizer):
        text = " ".join(split_words(text))
    elif text:
        text = " " + text
    return tokenizer.backend.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100)
@given(batches=st.lists(TEXTS, min_size=1, max_size=4), lowercase=st.booleans(), limit=st.sampled_from([0, 300, 2**26]))
def test_ids_are_those_of_the_whole_text_whatever_was_encoded_before(
    kind: str, batches: list[list[str]], lowercase: bool, limit: int
) -> None:
    tokenizer = fresh(kind, lowercase)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "MEMO_BYTES", limit)
        for texts in batches:
            expected = [whole_text_ids(tokenizer, text) for text in texts]
            assert tokenizer.encode_batch(texts) == expected
            ids, lengths = tokenizer.encode_flat(texts)
            assert ids.dtype == np.int32
            assert ids.tolist() == list(chain.from_iterable(expected))
            assert lengths.tolist() == [len(row) for row in expected]


def test_what_ends_a_word_for_the_pattern_is_white_space_for_python() -> None:
    """Else a piece could begin in one chunk and end in the next."""
    pattern = pre_tokenizers.Split(hf.Regex(r"\s"), "isolated")
    everything = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    found: set[str] = set()
    for first in range(0, len(everything), 500):
        text = "aa" + "aa".join(everything[first : first + 500]) + "aa"
        found |= {piece for piece, _ in pattern.pre_tokenize_str(text) if len(piece) == 1}
    assert {" ", "\u00a0", "\u0085", "\u3000"} <= found
    assert all(c.isspace() for c in found)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_remembered_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "MEMO_BYTES", 50_000)
    tokenizer = fresh(kind, False)
    for first in range(0, 3000, 10):
        texts = [f"{number} w{number} " + "x" * (number % 200) for number in range(first, first + 10)]
        assert tokenizer.encode_batch(texts) == [whole_text_ids(tokenizer, text) for text in texts]
        assert len(pickle.dumps(tokenizer._memo)) < 60_000


@pytest.mark.parametrize("kind", KINDS)
def test_threads_encode_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "MEMO_BYTES", 5_000)
    tokenizer = fresh(kind, False)
    batches = [[f"w{(7 * batch + i) % 90} the cat{i}" for i in range(20)] for batch in range(100)]
    expected = [[whole_text_ids(tokenizer, text) for text in texts] for texts in batches]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.encode_batch, batches)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_gives_the_same_ids(kind: str) -> None:
    tokenizer = fresh(kind, True)
    expected = tokenizer.encode_batch(SENTENCES)
    for twin in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert twin.encode_batch([*SENTENCES, "New words"]) == [*expected, tokenizer.encode("New words")]


JOINED = st.sampled_from([1, 10, 2**13])  # characters of texts that are counted and learned from as one


@settings(max_examples=100)
@given(
    texts=TEXTS,
    min_frequency=st.integers(1, 3),
    vocab_size=st.integers(8, 30),
    lowercase=st.booleans(),
    num_characters=JOINED,
)
def test_the_vocabulary_of_words_is_that_of_the_library(
    texts: list[str], min_frequency: int, vocab_size: int, lowercase: bool, num_characters: int
) -> None:
    texts = texts * 2
    oracle = hf.Tokenizer(models.WordLevel({}, unk_token="<unk>"))
    oracle.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    oracle.train_from_iterator((" ".join(split_words(normalize(text, lowercase))) for text in texts), trainer)
    limits = config("word", vocab_size=vocab_size, min_frequency=min_frequency, lowercase=lowercase)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "COUNTED_AT_ONCE", num_characters)
        learned = WordTokenizer.train_backend([texts[:1], texts[1:]], limits)
    assert (
        make_tokenizers._forget_special_matching(learned).to_str()
        == make_tokenizers._forget_special_matching(oracle).to_str()
    )


@settings(max_examples=50)
@given(texts=TEXTS, lowercase=st.booleans(), num_characters=JOINED)
def test_merges_are_those_of_each_text_alone(texts: list[str], lowercase: bool, num_characters: int) -> None:
    texts = [text for text in texts * 2 if text.strip()]
    limits = config("bpe", lowercase=lowercase)
    oracle = hf.Tokenizer(models.BPE(unk_token="<unk>"))
    oracle.pre_tokenizer = TRAINED["bpe", False].backend.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=limits.size,
        min_frequency=limits.min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    oracle.train_from_iterator((" " + normalize(text, lowercase) for text in texts), trainer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "LEARNED_AT_ONCE", num_characters)
        learned = BPETokenizer.train_backend([texts[:1], texts[1:]], limits)
    assert json.loads(learned.to_str())["model"] == json.loads(oracle.to_str())["model"]


@settings(max_examples=50)
@given(texts=TEXTS, limit=st.sampled_from([0, 2, 1000]))
def test_words_are_counted_as_they_come(texts: list[str], limit: int) -> None:
    expected: dict[str, int] = {}
    for text in texts:
        for word in split_words(text):
            expected[word] = expected.get(word, 0) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "NUM_CHUNKS", limit)
        assert dict(count_words(Counter(text.split()) for text in texts)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_is_looked_up_once_and_a_copy_looks_up_its_own(kind: str) -> None:
    tokenizer = fresh(kind, False)
    ids = [*tokenizer.encode("the cat sat"), 1, tokenizer.vocab_size + 5]
    tokens, text = tokenizer.tokens(ids), tokenizer.decode(ids)
    assert tokens[-2:] == ["<unk>", "<unk>"], "an id beyond the vocabulary is shown, too"
    copies = copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))
    tokenizer.backend = None  # pyright: ignore[reportAttributeAccessIssue]
    assert tokenizer.tokens(ids) == tokens
    for other in copies:
        assert (other.tokens(ids), other.decode(ids)) == (tokens, text)
