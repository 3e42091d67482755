"""Raw text to ids and back: `word`, `bpe` and `unigram`, on the `tokenizers` library.

Text is NFC, its white space single spaces, on request lower-cased; beyond that, tokenizing loses nothing that is in
the vocabulary. `bpe` and `unigram` start from bytes, so they know every text. Special tokens are ids only: `</s>`
typed in a sentence is four characters of text.

No token crosses white space, so the ids of a text are those of its chunks, the stretches between white space, one after
the other. Most of a corpus is few distinct chunks: a tokenizer remembers the ids of those it met.
"""

import json
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from transformer_mt.config.files import replace_file
from transformer_mt.config.schema import TokenizerConfig
from transformer_mt.config.special_ids import EOS_ID, SPECIAL_TOKENS, UNK_ID
from transformer_mt.data.words import count_words, has_word, join_words, split_words
from transformer_mt.errors import UserError
from transformer_mt.machine.workers import on_all_cores

# A word with the space before it, or one other character with the space before it. Marks belong to their letters.
_SUBWORD_PATTERN = hf.Regex(r" ?[\p{L}\p{M}\p{N}]+| ?[^\s\p{L}\p{M}\p{N}]")
_SPECIALS = list(SPECIAL_TOKENS)
SPREAD_OF_THE_UNSEEN = 0.03  # see UnigramTokenizer

# What a tokenizer remembers, in bytes, looked at before each batch of texts; then it starts anew. Room for about
# 400,000 words and what was written to them, far more than the frequent ones of a language, and little beside what else
# a training holds.
MEMO_BYTES = 2**26
_SLOT_BYTES = 64  # of a dict, about, for an entry

# Texts are cut into chunks many at a time, with this after each: half of a surrogate pair, which no text holds.
_END, _END_ID = "\ud800", -1
# So many characters: more take no less time for each, and the library's training more.
ENCODED_AT_ONCE, COUNTED_AT_ONCE, LEARNED_AT_ONCE = 2**16, 2**21, 2**13


def normalize(text: str, lowercase: bool = False) -> str:
    """NFC, white space (whatever unicode calls so) to single spaces, none at the ends, lower case if asked."""
    return " ".join(_chunks(text, lowercase))


def _chunks(text: str, lowercase: bool) -> list[str]:
    if lowercase:
        text = text.lower()
    return unicodedata.normalize("NFC", text).split()


class _Memo:
    """The ids of chunks, as the bytes of their int32s. Nothing is taken out of it: another thread may be reading it."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._ids = {_END: np.array([_END_ID], np.int32).tobytes()}

    def missing(self, chunks: list[str]) -> list[str]:
        """The chunks that are new, each once."""
        return list(set(chunks).difference(self._ids))

    def add(self, chunk: str, ids: list[int]) -> None:
        self._ids[chunk] = packed = np.array(ids, np.int32).tobytes()
        self.num_bytes += sys.getsizeof(chunk) + sys.getsizeof(packed) + _SLOT_BYTES

    def ids_of(self, chunks: list[str]) -> bytes:
        """The ids of the chunks, one after the other. KeyError where one of them is new."""
        return b"".join(map(self._ids.__getitem__, chunks))


class Tokenizer(ABC):
    """Text to ids and back. `backend` is what is saved; it holds the vocabulary. Threads may share a tokenizer."""

    def __init__(self, backend: hf.Tokenizer, lowercase: bool) -> None:
        self.backend = backend
        self.lowercase = lowercase
        self._memo = _Memo()

    @property
    def vocab_size(self) -> int:
        """Entries, the four special ones included."""
        return self.backend.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids, without BOS or EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """`encode` for many at once. UserError where a text is none, such as half a surrogate pair."""
        ids, lengths = self.encode_flat(texts)
        return [row.tolist() for row in np.split(ids, np.cumsum(lengths))[:-1]]

    def encode_flat(self, texts: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ids of all texts one after the other, and how many each of them has: the quickest way for a corpus."""
        number = max(1, ENCODED_AT_ONCE * len(texts) // (1 + sum(map(len, texts))))
        try:
            groups = [self._packed(texts[i : i + number]) for i in range(0, len(texts), number)]
        except UnicodeEncodeError:
            raise _half_a_pair(texts) from None
        ids = np.frombuffer(b"".join(groups), np.int32)  # with an end after each text
        is_end = ids == _END_ID
        ends = np.flatnonzero(is_end)
        if len(ends) != len(texts):
            raise _half_a_pair(texts)
        return ids[~is_end], np.diff(ends, prepend=-1) - 1

    def tokens(self, ids: list[int]) -> list[str]:
        """The entries behind ids, as a person would read them in a table."""
        return [self._readable(self.backend.id_to_token(i) or SPECIAL_TOKENS[UNK_ID]) for i in ids]

    def decode(self, ids: list[int]) -> str:
        """Raw text on one line. Ids after the first EOS and special ids other than UNK are left out."""
        if EOS_ID in ids:
            ids = ids[: ids.index(EOS_ID)]
        kept = [i for i in ids if i >= len(SPECIAL_TOKENS) or i == UNK_ID]
        return " ".join(self._join([self.backend.id_to_token(i) or "" for i in kept]).split())

    def punctuation_ids(self) -> list[int]:
        """Entries, special ones apart, without a letter, mark or digit."""
        return [i for token, i in self.backend.get_vocab().items() if i >= len(SPECIAL_TOKENS) and not has_word(token)]

    def save(self, path: Path) -> None:
        """One JSON file in the format of the `tokenizers` library."""
        replace_file(path, self.backend.to_str(pretty=True))

    @staticmethod
    @abstractmethod
    def train_backend(texts: Iterable[list[str]], config: TokenizerConfig) -> hf.Tokenizer:
        """Learn the vocabulary from raw texts, which come some at a time."""

    @abstractmethod
    def _encode_chunks(self, chunks: list[str]) -> list[list[int]]:
        """The ids of each of these chunks."""

    @abstractmethod
    def _join(self, tokens: list[str]) -> str:
        """Entries to text."""

    def _readable(self, token: str) -> str:
        return token

    def _packed(self, texts: list[str]) -> bytes:
        """The ids of these texts, as the bytes of their int32s, and _END_ID after each text. UnicodeEncodeError where
        one of them is none.
        """
        memo = self._memo
        if memo.num_bytes > MEMO_BYTES:
            memo = self._memo = _Memo()
        chunks = _chunks(f" {_END} ".join([*texts, ""]), self.lowercase)
        new = memo.missing(chunks)
        "".join(new).encode()  # which half of a surrogate pair cannot be
        for chunk, ids in zip(new, self._encode_chunks(new), strict=True):
            memo.add(chunk, ids)
        return memo.ids_of(chunks)


class WordTokenizer(Tokenizer):
    """Whole words and punctuation (`words.py`); what the vocabulary lacks is UNK."""

    def __init__(self, backend: hf.Tokenizer, lowercase: bool) -> None:
        super().__init__(backend, lowercase)
        self._vocab = backend.get_vocab()

    @staticmethod
    def train_backend(texts: Iterable[list[str]], config: TokenizerConfig) -> hf.Tokenizer:
        """The most frequent words and punctuation, up to `vocab_size`, each seen `min_frequency` times.

        Of equally frequent ones the first in the order of unicode: the vocabulary is that of the library's
        `WordLevelTrainer`, which would be given every word of the text.
        """

        def count(text: str) -> Counter[str]:
            return Counter(_chunks(text, config.lowercase))

        with closing(on_all_cores(count, _joined(texts, COUNTED_AT_ONCE), "counting words")) as chunk_counts:
            counts = count_words(chunk_counts)
        frequent = [word for word, count in counts.items() if count >= config.min_frequency]
        entries = [*_SPECIALS, *sorted(frequent, key=lambda word: (-counts[word], word))]
        vocab = {entry: i for i, entry in enumerate(entries[: config.vocab_size])}
        backend = hf.Tokenizer(models.WordLevel(vocab, unk_token=SPECIAL_TOKENS[UNK_ID]))
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
        return backend

    def _encode_chunks(self, chunks: list[str]) -> list[list[int]]:
        return [[self._vocab.get(word, UNK_ID) for word in split_words(chunk)] for chunk in chunks]

    def _join(self, tokens: list[str]) -> str:
        return join_words(tokens)


class SubwordTokenizer(Tokenizer):
    """Pieces of words over bytes: every text has ids, and none is UNK."""

    def _encode_chunks(self, chunks: list[str]) -> list[list[int]]:
        # The space belongs to the first piece of a chunk, at the start of a line as within it.
        spaced = [" " + chunk for chunk in chunks]
        return [encoding.ids for encoding in self.backend.encode_batch_fast(spaced, add_special_tokens=False)]

    def _join(self, tokens: list[str]) -> str:
        return self.backend.decoder.decode(tokens)

    def _readable(self, token: str) -> str:
        if token in SPECIAL_TOKENS:
            return token
        return self.backend.decoder.decode([token]).replace(" ", "▁")

    @staticmethod
    def _train(model, trainer, texts: Iterable[list[str]], config: TokenizerConfig) -> hf.Tokenizer:
        backend = hf.Tokenizer(model)
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(_SUBWORD_PATTERN, "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        backend.decoder = decoders.ByteLevel()
        spaced = (f" {normalize(text, config.lowercase)}" for text in _joined(texts, LEARNED_AT_ONCE))
        backend.train_from_iterator(spaced, trainer)
        return backend


class BPETokenizer(SubwordTokenizer):
    """Byte-pair encoding (Sennrich et al. 2016)."""

    @staticmethod
    def train_backend(texts: Iterable[list[str]], config: TokenizerConfig) -> hf.Tokenizer:
        """Merges of the most frequent neighbours, until there are `vocab_size` entries."""
        trainer = trainers.BpeTrainer(
            vocab_size=config.vocab_size,
            min_frequency=config.min_frequency,
            special_tokens=_SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        return SubwordTokenizer._train(models.BPE(unk_token=SPECIAL_TOKENS[UNK_ID]), trainer, texts, config)


class UnigramTokenizer(SubwordTokenizer):
    """Unigram language model over pieces (Kudo 2018)."""

    @staticmethod
    def train_backend(texts: Iterable[list[str]], config: TokenizerConfig) -> hf.Tokenizer:
        """The pieces that make the text likeliest, `vocab_size` of them."""
        trainer = trainers.UnigramTrainer(
            vocab_size=config.vocab_size,
            special_tokens=_SPECIALS,
            unk_token=SPECIAL_TOKENS[UNK_ID],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        state = json.loads(SubwordTokenizer._train(models.Unigram(), trainer, texts, config).to_str())
        # The trainer sums in the order of a randomly seeded hash map, so the last digits of its scores, and with them
        # the order of equal pieces, change from run to run. Sorting by piece makes the ids the same every time.
        special, learned = state["model"]["vocab"][: len(_SPECIALS)], state["model"]["vocab"][len(_SPECIALS) :]
        # Letters of the alphabet that the text lacks get the lowest score and up to 0.0256 above, in such an order too.
        lowest = min(score for _, score in learned)
        scores = {
            piece: lowest if len(piece) == 1 and score < lowest + SPREAD_OF_THE_UNSEEN else score
            for piece, score in learned
        }
        state["model"]["vocab"] = special + sorted([piece, round(score, 4)] for piece, score in scores.items())
        return hf.Tokenizer.from_str(json.dumps(state))


TOKENIZERS: dict[str, type[Tokenizer]] = {
    "word": WordTokenizer,
    "bpe": BPETokenizer,
    "unigram": UnigramTokenizer,
}


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Learn a vocabulary from raw texts. Deterministic: the same texts in the same order give the same ids."""
    return _train([list(texts)], config)


def train_tokenizers(
    texts: Callable[[int], Iterable[list[str]]], config: TokenizerConfig
) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer, one and the same where `joint`.

    texts: of the sources (0) or of the targets (1), some thousand at a time.
    """
    if config.joint:
        joint = _train(chain(texts(0), texts(1)), config)
        return joint, joint
    return _train(texts(0), config), _train(texts(1), config)


def _train(texts: Iterable[list[str]], config: TokenizerConfig) -> Tokenizer:
    kind = TOKENIZERS[config.kind]
    return kind(_forget_special_matching(kind.train_backend(texts, config)), config.lowercase)


def load_tokenizer(path: Path, config: TokenizerConfig, way_out: str = "Train again.") -> Tokenizer:
    """Read what `Tokenizer.save` wrote; UserError, with `way_out`, where the file is missing or damaged."""
    try:
        backend = hf.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}. {way_out}") from error
    except Exception as error:  # the library raises bare Exception on a file it cannot parse
        raise UserError(f"{path} is not a tokenizer file ({error}). {way_out}") from error
    if any(backend.token_to_id(token) != i for i, token in enumerate(SPECIAL_TOKENS)):
        raise UserError(f"{path} lacks the special tokens. It was not written by this project. {way_out}")
    return TOKENIZERS[config.kind](backend, config.lowercase)


def _half_a_pair(texts: list[str]) -> UserError:
    """What is to be said of the first text that holds half of a surrogate pair."""
    for number, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return UserError(
                f"Text {number} of {len(texts)} holds {text[error.start]!a}, half of a surrogate pair, which is no "
                "character. Read it again as UTF-8, or replace it."
            )
    raise AssertionError("all of these are texts")


def _joined(texts: Iterable[list[str]], size: int) -> Iterator[str]:
    """Texts as longer ones of about so many characters, with white space between them."""
    pieces: list[str] = []
    num_characters = 0
    for some in texts:
        number = max(1, size * len(some) // (1 + sum(map(len, some))))
        for first in range(0, len(some), number):
            pieces.append(" ".join(some[first : first + number]))
            num_characters += len(pieces[-1])
            if num_characters >= size:
                yield " ".join(pieces)
                pieces, num_characters = [], 0
    if pieces:
        yield " ".join(pieces)


def _forget_special_matching(backend: hf.Tokenizer) -> hf.Tokenizer:
    """Keep the special entries in the vocabulary, but stop the library from finding their names in text."""
    state = json.loads(backend.to_str())
    state["added_tokens"] = []
    return hf.Tokenizer.from_str(json.dumps(state))
