import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import tokenizers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import all_entries

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID
from transformer_mt.data import word_splitting
from transformer_mt.data.longest_line import LONGEST_LINE
from transformer_mt.data.make_tokenizers import load_tokenizer, train_tokenizer, train_tokenizers
from transformer_mt.data.tokenizers import Tokenizer, normalize
from transformer_mt.data.word_splitting import has_word
from transformer_mt.errors import UserError

KINDS = ["word", "bpe", "unigram"]
TEXTS = [
    "The cat sat on the mat.", "¿Dónde está el gato?", "No, the dog didn't sit!", "¡El perro se sentó, por fin!",
    "She said: \"I'm (almost) 30 - or 31 - years old...\"", "今天天气很好。", "किताब अच्छी है।", "مرحبًا بالعالم",
    "</s> and <unk> and <pad> are text", "a_b #1 @home 5% x=y+z; ￭ ▁ Ġ",
] * 3  # fmt: skip


def config(kind: str, **changes) -> TokenizerConfig:
    return TokenizerConfig.model_validate({"kind": kind, "vocab_size": 600, **all_entries(kind), **changes})


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request) -> Tokenizer:
    return train_tokenizer(TEXTS, config(request.param))


def test_special_ids_are_fixed(tokenizer: Tokenizer) -> None:
    assert tokenizer.tokens([PAD_ID, UNK_ID, BOS_ID, EOS_ID]) == list(SPECIAL_TOKENS)


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_every_unknown_word_is_named_and_only_those(tokenizer: Tokenizer, text: str) -> None:
    ids, words = tokenizer.encode(text), tokenizer.unknown_words(text)
    assert len(words) == ids.count(UNK_ID)
    shown = tokenizer.tokens(ids, text)
    assert [token for token, i in zip(shown, ids, strict=True) if i == UNK_ID] == [f"{word} <unk>" for word in words]
    assert tokenizer.unknown_words("The cat sat.") == []


def test_words_are_named_without_their_punctuation() -> None:
    tokenizer = train_tokenizer(TEXTS, config("word"))
    text = "The Zebras, ¡cat! ~quartz The"
    assert tokenizer.unknown_words(text) == ["Zebras", "~", "quartz"]


@pytest.mark.parametrize("kind", KINDS)
def test_entries_without_a_letter_are_told_with_or_without_a_space(kind: str) -> None:
    tokenizer = train_tokenizer([*TEXTS, "Hi , hi ?"] * 20, config(kind))
    marks = set(tokenizer.punctuation_ids())
    assert not any(has_word(tokenizer.decode([i])) for i in marks)
    for text in ("Hi , hi ?", "Hi, hi?"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode([i for i in ids if i not in marks]).replace(" ", "").lower() == "hihi"
        assert len(marks.intersection(ids)) >= 2


def test_every_training_text_comes_back(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert UNK_ID not in ids
        assert tokenizer.decode(ids) == normalize(text)


def test_a_special_token_typed_in_text_is_text(tokenizer: Tokenizer) -> None:
    for text in ("</s>", "a </s> b", "<pad><unk><s></s>", "<s>"):
        ids = tokenizer.encode(text)
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)
    assert tokenizer.decode(tokenizer.encode("</s> and <unk>")) == "</s> and <unk>"


def test_decoding_stops_at_eos_and_leaves_out_padding(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The cat sat")
    assert tokenizer.decode([BOS_ID, *ids, EOS_ID, *ids, PAD_ID]) == "The cat sat"


def test_saved_and_loaded_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "src.json")
    kind = {"WordTokenizer": "word", "BPETokenizer": "bpe", "UnigramTokenizer": "unigram"}[type(tokenizer).__name__]
    loaded = load_tokenizer(tmp_path / "src.json", config(kind))
    assert loaded.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert loaded.decode(loaded.encode("The cat </s>")) == "The cat </s>"


def test_training_twice_gives_the_same_ids(tokenizer: Tokenizer) -> None:
    kind = {"WordTokenizer": "word", "BPETokenizer": "bpe", "UnigramTokenizer": "unigram"}[type(tokenizer).__name__]
    again = train_tokenizer(TEXTS, config(kind))
    assert again.backend.get_vocab() == tokenizer.backend.get_vocab()
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)


@pytest.mark.parametrize("kind", KINDS)
def test_trained_twice_a_tokenizer_is_the_same_to_the_last_byte(kind: str) -> None:
    """The library's hash maps have another order each time; letters that the text lacks are among what they order."""
    texts = ["a dog runs on the grass .", "two men ride bikes", "the cat sat on the mat ."] * 20
    first, second = (train_tokenizer(texts, config(kind, vocab_size=300)).backend.to_str() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_long_line_without_spaces_is_learned_from_in_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole one of a megabyte would take hours. Text of a script without spaces is learned from as it stands."""
    rng = random.Random(1)
    unspaced = ["".join(chr(rng.randint(0x4E00, 0x4E30)) for _ in range(number)) for number in (20, 300, 999)]
    ours = train_tokenizer(TEXTS + unspaced, config(kind)).backend.to_str()
    with monkeypatch.context() as patch:
        patch.setattr(word_splitting, "LONGEST_WORD", 10**9)
        assert train_tokenizer(TEXTS + unspaced, config(kind)).backend.to_str() == ours
    long = "xy" * (LONGEST_LINE // 2)
    found = train_tokenizer([*TEXTS, long], config(kind))
    assert found.decode(found.encode(long)) == long


@settings(max_examples=200)
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_subwords_know_every_text(kind: str, text: str) -> None:
    tokenizer = _cached(kind)
    ids = tokenizer.encode(text)
    assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)
    assert tokenizer.decode(ids) == normalize(text)


@settings(max_examples=200)
@given(
    words=st.lists(
        st.sampled_from(
            [
                *[
                    "The",
                    "cat",
                    "sat",
                    "on",
                    "mat",
                    "¿",
                    "?",
                    "!",
                    ".",
                    ",",
                    "(",
                    ")",
                    '"',
                    "'",
                    "el",
                    "gato",
                    "30",
                    "-",
                    "</s>",
                ],
                "￭",
            ]
        )
    )
)
def test_words_come_back_from_any_mixture_of_the_vocabulary(words: list[str]) -> None:
    tokenizer = _cached("word")
    text = normalize("".join(words)) if len(words) % 2 else normalize(" ".join(words))
    ids = tokenizer.encode(text)
    if UNK_ID not in ids:
        assert tokenizer.decode(ids) == text


BYTE = re.compile("<0x([0-9A-F]{2})>")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=st.text(st.sampled_from("ab 中国人שלםμ🙂ö.▁"), max_size=12))
def test_pieces_are_shown_as_their_characters(kind: str, text: str) -> None:
    """Put together again, what is shown is the text: whole characters as they are, and bytes of others by number."""
    tokenizer = _cached(kind)
    shown = tokenizer.tokens(tokenizer.encode(text))
    assert not any("\ufffd" in piece for piece in shown)
    whole = b"".join(
        bytes([int(part, 16)]) if i % 2 else part.replace("▁", " ").encode()
        for piece in shown
        for i, part in enumerate(BYTE.split(piece))
    )
    assert whole.decode().replace("▁", " ") == "".join(f" {chunk}" for chunk in normalize(text).split()).replace(
        "▁", " "
    )


def test_characters_that_are_one_piece_are_shown_and_parts_of_others_by_their_bytes() -> None:
    tokenizer = train_tokenizer(["中国"] * 5, config("bpe"))
    assert tokenizer.tokens(tokenizer.encode("中国")) == ["▁中国"]
    assert tokenizer.tokens(tokenizer.encode("龜")) == ["▁", "<0xE9>", "<0xBE>", "<0x9C>"]


def test_cat_is_one_entry_everywhere() -> None:
    tokenizer = _cached("word")
    (cat,) = tokenizer.encode("cat")
    for text in ("cat.", '"cat"', "(cat)", "¿cat?", "on cat on"):
        assert cat in tokenizer.encode(text)


def test_half_a_surrogate_pair_is_named_with_its_sentence(tokenizer: Tokenizer) -> None:
    """Python text can hold what no file can."""
    for _ in range(2):
        with pytest.raises(
            UserError, match=r"^Text 2 of 3 holds '\\ud800', half of a surrogate pair, which is no char"
        ):
            tokenizer.encode_batch(["a \U0001f600", "word \ud800", "\udfff"])
    for half in ("\ud800", "x \ud800 y", "a\ud800", "\ud800\udfff", "\udc00"):
        with pytest.raises(UserError, match=r"^Text 2 of 3 holds '\\ud"):
            tokenizer.encode_batch(["a", half, "b"])
        with pytest.raises(UserError, match=r"^Text 1 of 1 holds '\\ud"):
            tokenizer.encode(half)


def test_lowercase_and_nfc() -> None:
    assert normalize("H\u0331", lowercase=True) == "\u1e96", "what has one character as a small letter alone"
    tokenizer = train_tokenizer(["the café"], config("word", lowercase=True))
    assert tokenizer.decode(tokenizer.encode("THE CAFE\u0301")) == "the café"


def test_min_frequency_and_vocab_size_limit_words() -> None:
    texts = ["a a a b b c"]
    assert train_tokenizer(texts, config("word", min_frequency=2)).vocab_size == 4 + 2
    assert train_tokenizer([" ".join(f"w{i}" for i in range(100))], config("word", vocab_size=20)).vocab_size == 20


def test_min_frequency_limits_merges() -> None:
    """No neighbours are seen twice in `ab`, and so its bytes are all there is."""
    assert train_tokenizer(["ab"], config("bpe", min_frequency=2)).vocab_size == 4 + 256
    assert train_tokenizer(["ab"], config("bpe", min_frequency=1)).vocab_size == 4 + 256 + 2


def test_joint_vocabulary_is_one_and_separate_ones_are_two() -> None:
    texts = [["the cat"] * 2], [["el gato"], ["el gato"]]
    src, tgt = train_tokenizers(lambda side: texts[side], config("word", joint=True))
    assert src is tgt
    assert src.vocab_size == 4 + 4
    src, tgt = train_tokenizers(lambda side: texts[side], config("word"))
    assert (src.vocab_size, tgt.vocab_size) == (6, 6)
    assert src.encode("gato") == [UNK_ID]


@pytest.mark.parametrize("damage", ["", "{", '{"version": 1}', "\x00\x01"])
def test_a_damaged_file_is_a_user_error(damage: str, tmp_path: Path) -> None:
    (tmp_path / "src.json").write_text(damage)
    with pytest.raises(UserError, match=r"src\.json is not a tokenizer file"):
        load_tokenizer(tmp_path / "src.json", config("word"))
    with pytest.raises(UserError, match="No such file"):
        load_tokenizer(tmp_path / "none.json", config("word"))


@pytest.mark.parametrize("entries", [["one", "two"], SPECIAL_TOKENS[::-1]])
def test_a_vocabulary_without_the_special_ids_is_refused(entries: Sequence[str], tmp_path: Path) -> None:
    vocab = {entry: i for i, entry in enumerate(entries)}
    hf.Tokenizer(hf.models.WordLevel(vocab, unk_token=entries[0])).save(str(tmp_path / "src.json"))
    with pytest.raises(UserError, match=r"src\.json lacks the special tokens"):
        load_tokenizer(tmp_path / "src.json", config("word"))


_TRAINED: dict[str, Tokenizer] = {}


def _cached(kind: str) -> Tokenizer:
    if kind not in _TRAINED:
        _TRAINED[kind] = train_tokenizer(TEXTS, config(kind))
    return _TRAINED[kind]
