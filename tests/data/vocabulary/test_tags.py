"""A tag of the config is one token between white space, and nothing else of a tokenizer changes for it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import all_entries

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import SPECIAL_TOKENS, UNK_ID
from transformer_mt.data.make_tokenizers import load_tokenizer, train_tokenizer
from transformer_mt.data.tokenizers import TOKENIZERS, Tokenizer, normalize
from transformer_mt.errors import UserError

TEXTS = ["The cat sat on the mat.", "¿Dónde está el gato?", "<BT> the dog sat", "a < b > c BT"] * 3


def config(kind: str, **changes) -> TokenizerConfig:
    return TokenizerConfig.model_validate(
        {"kind": kind, "vocab_size": 400, "tags": ["<BT>", "<2es>"], **all_entries(kind), **changes}
    )


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request) -> Tokenizer:
    return train_tokenizer(TEXTS, config(request.param))


def test_a_tag_is_one_token_seen_or_not(tokenizer: Tokenizer) -> None:
    plain = tokenizer.encode("the cat sat")
    first = len(SPECIAL_TOKENS)
    assert tokenizer.encode("<BT> the cat sat") == [first, *plain]
    assert tokenizer.encode("<2es> <BT> the cat sat") == [first + 1, first, *plain]
    assert tokenizer.tokens([first]) == ["<BT>"]
    assert first not in tokenizer.encode("the<BT> cat <BT>. <bt>")  # within a word it is text


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.sampled_from(["<BT>", "<2es>", "the", "cat", "<", "sat.", "BT"]), max_size=8))
def test_text_with_tags_comes_back(tokenizer: Tokenizer, texts: list[str]) -> None:
    text = " ".join(texts)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == normalize(text)
    assert len(tokenizer.unknown_words(text)) == ids.count(UNK_ID)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_vocabulary_learns_nothing_from_tags(kind: str) -> None:
    """It is that of the text without them, a few places later."""
    tagged, plain = config(kind), config(kind, tags=[], vocab_size=398)
    texts = [text.removeprefix("<BT> ") for text in TEXTS]
    one, two = train_tokenizer(TEXTS, tagged), train_tokenizer(texts, plain)
    for text in texts:
        first = len(SPECIAL_TOKENS)
        assert one.encode(text) == [i + 2 if i >= first else i for i in two.encode(text)]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tags_are_read_back_and_lowered_with_the_text(kind: str, tmp_path: Path) -> None:
    settings = config(kind, lowercase=True)
    train_tokenizer(TEXTS, settings).save(tmp_path / "src.json")
    read = load_tokenizer(tmp_path / "src.json", settings)
    assert read.encode("<BT> the")[0] == read.encode("<bt> The")[0] == len(SPECIAL_TOKENS)
    with pytest.raises(UserError, match=r"src\.json has no entry for <new>, one of tokenizer\.tags"):
        load_tokenizer(tmp_path / "src.json", config(kind, tags=["<new>"]))
