"""Raw text to ids and back: `word`, `bpe` and `unigram`, on the `tokenizers` library.

Text becomes NFC with single spaces, and lower case on request. Beyond that, tokenizing loses nothing that is in the
vocabulary. `bpe` and `unigram` start from bytes, so they know every text. Special tokens are ids only: `</s>` typed in
a sentence is four characters of text. A tag of the config that stands between white space is one token, its own.

A chunk is a stretch of text without white space. No token crosses white space, so the ids of a text are the ids of its
chunks, one after the other. Most of a corpus is few distinct chunks, so a tokenizer remembers the ids of those it met.
"""

import codecs
import json
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import EOS_ID, SPECIAL_TOKENS, UNK_ID
from transformer_mt.data.vocabulary.memory import END, END_ID, ChunkMemory, Entries, Entry
from transformer_mt.data.word_splitting import count_words, cut_long_words, has_word, join_words, split_words
from transformer_mt.errors import UserError
from transformer_mt.machine.workers import on_all_cores
from transformer_mt.storage.files import replace_file

# A word with the space before it, or one other character with the space before it. Marks belong to their letters.
_SUBWORD_PATTERN = hf.Regex(r" ?[\p{L}\p{M}\p{N}]+| ?[^\s\p{L}\p{M}\p{N}]")
_SPECIALS = list(SPECIAL_TOKENS)
# The byte behind each character of a subword's entry. A printable byte is its own character; the others have characters
# from 256 on, as in GPT-2.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES_BY_CHARACTER = {chr(byte): byte for byte in _PRINTABLE}
BYTES_BY_CHARACTER |= {chr(256 + i): byte for i, byte in enumerate(sorted({*range(256)}.difference(_PRINTABLE)))}
_SPACE = "\u0120"  # the character of the byte of a space
SPREAD_OF_THE_UNSEEN = 0.03  # see UnigramTokenizer

# How many bytes a tokenizer remembers before it forgets everything; looked at before each batch of texts. That is room
# for about 400,000 words and their ids: far more than the frequent words of a language, and little beside what else a
# training holds.
MEMO_BYTES = 2**26

# In characters. With more at once, a character takes no less time, and in the library's training more.
ENCODED_AT_ONCE, COUNTED_AT_ONCE, LEARNED_AT_ONCE = 2**16, 2**21, 2**13


def normalize(text: str, lowercase: bool = False) -> str:
    """NFC, with single spaces for all that unicode calls white space, none at the ends; lower case if asked."""
    return " ".join(_chunks(text, lowercase))


def _chunks(text: str, lowercase: bool) -> list[str]:
    if lowercase:
        text = text.lower()
    return unicodedata.normalize("NFC", text).split()


def _untagged(text: str, config: TokenizerConfig) -> list[str]:
    """The chunks from which a vocabulary is learned: a tag has its entry, whose letters are no words."""
    chunks = _chunks(text, config.lowercase)
    tags = {tag.lower() if config.lowercase else tag for tag in config.all_tags}
    return [chunk for chunk in chunks if chunk not in tags] if tags else chunks


def _hex(error: UnicodeError) -> tuple[str, int]:
    """Bytes that are no whole character, as `<0xE4><0xBD>`: an error handler for `decode`."""
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<0x{byte:02X}>" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("tmt_hex", _hex)
codecs.register_error("tmt_within", lambda error: ("x", getattr(error, "end", 0)))


def bytes_of(token: str) -> bytes:
    """The text behind a subword's entry, of which the first and last character may be cut. Of no byte is 0xFF."""
    return bytes(BYTES_BY_CHARACTER.get(character, 0xFF) for character in token)


class Tokenizer(ABC):
    """Text to ids and back. `backend` is what is saved; it holds the vocabulary. Threads may share a tokenizer."""

    knows_every_text = False  # so that no word is UNK

    def __init__(self, backend: hf.Tokenizer, lowercase: bool, tags: Sequence[str] = ()) -> None:
        self.backend = backend
        self.lowercase = lowercase
        # The id of each chunk that is a tag: as text comes, in lower case where all of it does.
        entries = backend.get_vocab() if tags else {}
        self.tags = {_chunks(tag, lowercase)[0]: entries[tag] for tag in tags}
        self._memo = ChunkMemory(self.tags)
        self._entries = Entries(self._entry)

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
        """The ids of all texts one after the other, and the number of ids of each: the quickest way for a corpus."""
        number = max(1, ENCODED_AT_ONCE * len(texts) // (1 + sum(map(len, texts))))
        try:
            groups = [self._packed(texts[i : i + number]) for i in range(0, len(texts), number)]
        except UnicodeEncodeError:
            raise _half_a_pair(texts) from None
        ids = np.frombuffer(b"".join(groups), np.int32)  # with an end after each text
        is_end = ids == END_ID
        ends = np.flatnonzero(is_end)
        if len(ends) != len(texts):
            raise _half_a_pair(texts)
        return ids[~is_end], np.diff(ends, prepend=-1) - 1

    def tokens(self, ids: list[int], text: str | None = None) -> list[str]:
        """The entries behind ids, as a person would read them in a table.

        With `text`, from which the ids were made, each unknown word stands before the sign that replaces it.
        """
        tokens = [self._entries[i].readable for i in ids]
        places = [place for place, i in enumerate(ids) if i == UNK_ID]
        words = self.unknown_words(text) if text is not None and places else []
        if len(words) == len(places):
            for place, word in zip(places, words, strict=True):
                tokens[place] = f"{word} {tokens[place]}"
        return tokens

    def unknown_words(self, text: str) -> list[str]:
        """The words of a text that `encode` makes UNK of, in order, each as often as it stands there."""
        return [chunk for chunk in _chunks(text, self.lowercase) if UNK_ID in self.encode(chunk)]

    def decode(self, ids: list[int]) -> str:
        """Raw text on one line. Ids after the first EOS and special ids other than UNK are left out."""
        if EOS_ID in ids:
            ids = ids[: ids.index(EOS_ID)]
        kept = [i for i in ids if i >= len(SPECIAL_TOKENS) or i == UNK_ID]
        return " ".join(self._join([self._entries[i].token for i in kept]).split())

    def punctuation_ids(self) -> list[int]:
        """The entries without a letter, mark or digit; special ones are not counted."""
        return [i for i, text in self._texts() if not has_word(text)]

    def text_ids(self) -> list[int]:
        """The entries that stand for text, in order: all but special ones and tags."""
        return sorted({i for i, _ in self._texts()} - set(self.tags.values()))

    def _texts(self) -> Iterator[tuple[int, str]]:
        """The entries but the special ones, and the text behind each."""
        return ((i, token) for token, i in self.backend.get_vocab().items() if i >= len(SPECIAL_TOKENS))

    def ids_within_words(self) -> list[int]:
        """The entries that go on with the word before them."""
        return []

    def ids_ending_within_words(self) -> list[int]:
        """The entries that end within a word, so that the next entry may go on with it."""
        return []

    def save(self, path: Path) -> None:
        """One JSON file in the format of the `tokenizers` library."""
        replace_file(path, self.backend.to_str(pretty=True))

    @staticmethod
    @abstractmethod
    def train_backend(texts: Iterable[list[str]], config: TokenizerConfig) -> hf.Tokenizer:
        """Learn the vocabulary from raw texts, some at a time."""

    @abstractmethod
    def _encode_chunks(self, chunks: list[str]) -> list[list[int]]:
        """The ids of each of these chunks."""

    @abstractmethod
    def _join(self, tokens: list[str]) -> str:
        """Entries to text."""

    def _entry(self, i: int) -> Entry:
        token = self.backend.id_to_token(i) or ""
        return Entry(token, self._readable(token or SPECIAL_TOKENS[UNK_ID]))

    def _readable(self, token: str) -> str:
        return token

    def _packed(self, texts: list[str]) -> bytes:
        """The ids of these texts, as the bytes of their int32s, with END_ID after each text. UnicodeEncodeError where
        one of them is not text.
        """
        memo = self._memo
        if memo.num_bytes > MEMO_BYTES:
            memo = self._memo = ChunkMemory(self.tags)
        chunks = _chunks(f" {END} ".join([*texts, ""]), self.lowercase)
        new = memo.missing(chunks)
        "".join(new).encode()  # raises for half of a surrogate pair
        for chunk, ids in zip(new, self._encode_chunks(new), strict=True):
            memo.add(chunk, ids)
        return memo.ids_of(chunks)


class WordTokenizer(Tokenizer):
    """Whole words and punctuation (`word_splitting.py`); what the vocabulary lacks is UNK."""

    def __init__(self, backend: hf.Tokenizer, lowercase: bool, tags: Sequence[str] = ()) -> None:
        super().__init__(backend, lowercase, tags)
        self._vocab = backend.get_vocab()

    @staticmethod
    def train_backend(texts: Iterable[list[str]], config: TokenizerConfig) -> hf.Tokenizer:
        """The most frequent words and punctuation, up to `vocab_size`, each seen `min_frequency` times.

        Words that are equally frequent come in the order of unicode. The vocabulary is that of the library's
        `WordLevelTrainer`, which would need every word of the text.
        """
        entries = [*_SPECIALS, *config.all_tags, *frequent_words(texts, config)]
        vocab = {entry: i for i, entry in enumerate(entries[: config.size])}
        backend = hf.Tokenizer(models.WordLevel(vocab, unk_token=SPECIAL_TOKENS[UNK_ID]))
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
        return backend

    def _encode_chunks(self, chunks: list[str]) -> list[list[int]]:
        return [[self._vocab.get(word, UNK_ID) for word in split_words(chunk)] for chunk in chunks]

    def unknown_words(self, text: str) -> list[str]:
        """The words without the punctuation that touches them."""
        chunks = _chunks(text, self.lowercase)
        words = split_words(" ".join(chunk for chunk in chunks if chunk not in self.tags))
        return [join_words([word]) for word in words if word not in self._vocab]

    def _join(self, tokens: list[str]) -> str:
        return join_words(tokens)


def frequent_words(texts: Iterable[list[str]], config: TokenizerConfig) -> list[str]:
    """Words and punctuation seen `min_frequency` times or more, the most frequent first, equal ones as unicode has
    them.
    """

    def count(text: str) -> Counter[str]:
        return Counter(_untagged(text, config))

    with closing(on_all_cores(count, _joined(texts, COUNTED_AT_ONCE), "counting words")) as chunk_counts:
        counts = count_words(chunk_counts)
    frequent = [word for word, count in counts.items() if count >= config.min_frequency]
    return sorted(frequent, key=lambda word: (-counts[word], word))


class SubwordTokenizer(Tokenizer):
    """Pieces of words over bytes: every text has ids, and none is UNK."""

    knows_every_text = True

    def _encode_chunks(self, chunks: list[str]) -> list[list[int]]:
        # The space belongs to the first piece of a chunk, at the start of a line as within it.
        spaced = [" " + chunk for chunk in chunks]
        return [encoding.ids for encoding in self.backend.encode_batch_fast(spaced, add_special_tokens=False)]

    def _join(self, tokens: list[str]) -> str:
        # A tag is an entry without the space before it.
        tags = {self._entries[i].token for i in self.tags.values()}
        return self.backend.decoder.decode([_SPACE + token if token in tags else token for token in tokens])

    def ids_within_words(self) -> list[int]:
        """Those that begin with a letter, mark or digit, or with a byte that may be a part of one."""
        return sorted(i for i, text in self._texts() if has_word(text[:1]))

    def ids_ending_within_words(self) -> list[int]:
        """Those that end with a letter, mark or digit, or with a byte that may be a part of one."""
        return sorted(i for i, text in self._texts() if has_word(text[-1:]))

    def _texts(self) -> Iterator[tuple[int, str]]:
        """As above; bytes that are no character by themselves are a letter, since they may be a part of one."""
        return ((i, bytes_of(token).decode("utf-8", errors="tmt_within")) for i, token in super()._texts())

    def _readable(self, token: str) -> str:
        if token in SPECIAL_TOKENS:
            return token
        return bytes_of(token).decode("utf-8", errors="tmt_hex").replace(" ", "▁")

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
        spaced = (f" {' '.join(_untagged(text, config))}" for text in _joined(texts, LEARNED_AT_ONCE))
        backend.train_from_iterator(chain.from_iterable(map(cut_long_words, spaced)), trainer)
        return backend


class BPETokenizer(SubwordTokenizer):
    """Byte-pair encoding (Sennrich et al. 2016)."""

    @staticmethod
    def train_backend(texts: Iterable[list[str]], config: TokenizerConfig) -> hf.Tokenizer:
        """Merges of the most frequent neighbours, until there are `vocab_size` entries."""
        trainer = trainers.BpeTrainer(
            vocab_size=config.size,
            min_frequency=config.min_frequency,
            special_tokens=[*_SPECIALS, *config.all_tags],
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
            vocab_size=config.size,
            special_tokens=[*_SPECIALS, *config.all_tags],
            unk_token=SPECIAL_TOKENS[UNK_ID],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        state = json.loads(SubwordTokenizer._train(models.Unigram(), trainer, texts, config).to_str())
        # The trainer sums in the order of a randomly seeded hash map. So the last digits of its scores, and the order
        # of equal pieces, change from run to run. Sorting by piece makes the ids the same every time.
        num_special = len(_SPECIALS) + len(config.all_tags)
        special, learned = state["model"]["vocab"][:num_special], state["model"]["vocab"][num_special:]
        # Letters of the alphabet that the text lacks get scores up to 0.0256 above the lowest, also in random order.
        lowest = min(score for _, score in learned)
        scores = {
            piece: lowest if len(piece) == 1 and score < lowest + SPREAD_OF_THE_UNSEEN else score
            for piece, score in learned
        }
        state["model"]["vocab"] = special + sorted([piece, round(score, 4)] for piece, score in scores.items())
        return hf.Tokenizer.from_str(json.dumps(state))


TOKENIZERS: dict[str, type[Tokenizer]] = {"word": WordTokenizer, "bpe": BPETokenizer, "unigram": UnigramTokenizer}


def _half_a_pair(texts: list[str]) -> UserError:
    """What to raise for the first text that holds half of a surrogate pair."""
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
    """The texts joined by white space, about `size` characters at a time."""
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
