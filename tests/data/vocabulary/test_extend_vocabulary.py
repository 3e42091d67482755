"""New words come behind the old ones, and the old ones keep their ids."""

import pytest

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.data.make_tokenizers import load_tokenizer, train_tokenizer
from transformer_mt.data.vocabulary.extend import extended
from transformer_mt.errors import UserError

OLD = ["the cat sat", "the cat ran"]
# dog 3, bird 2, and with the cat old; fish 1 is too rare; of equally frequent words that come by unicode.
NEW = ["dog bird the cat", "dog bird fish", "dog ant ant"]


def config_of(vocab_size: int, **keys: object) -> TokenizerConfig:
    return TokenizerConfig.model_validate({"vocab_size": vocab_size, "min_frequency": 2, **keys})


def test_new_words_by_their_frequency_behind_the_old_ones(tmp_path) -> None:
    old = train_tokenizer(OLD, config_of(50))
    assert old.vocab_size == 4 + 2  # cat, the
    new = extended(old, [NEW], config_of(50))
    assert (new.num_new, new.num_without_room) == (3, 0)
    before, after = old.backend.get_vocab(), new.tokenizer.backend.get_vocab()
    assert {word: after[word] for word in before} == before
    assert {word: i for word, i in after.items() if word not in before} == {"dog": 6, "ant": 7, "bird": 8}
    assert new.tokenizer.encode("the dog cat fish") == [*old.encode("the"), 6, *old.encode("cat"), 1]
    assert new.tokenizer.decode(new.tokenizer.encode("the dog cat")) == "the dog cat"
    new.tokenizer.save(tmp_path / "t.json")
    again = load_tokenizer(tmp_path / "t.json", config_of(50))
    assert again.encode("the dog ant </s>") == new.tokenizer.encode("the dog ant </s>")
    assert old.encode("dog") == [1], "the old one is as it was"


def test_what_finds_no_room_is_counted_or_refused() -> None:
    old = train_tokenizer(OLD, config_of(50))
    some = extended(old, [NEW], config_of(8))
    assert (some.num_new, some.num_without_room, some.tokenizer.vocab_size) == (2, 1, 8)
    with pytest.raises(UserError, match=r"has 8 entries and tokenizer\.vocab_size is 8, so none of 1 new words has"):
        extended(some.tokenizer, [NEW], config_of(8))


def test_nothing_new_is_no_mistake_even_without_room() -> None:
    old = train_tokenizer(OLD, config_of(50))
    same = extended(old, [OLD], config_of(8))
    assert (same.num_new, same.num_without_room) == (0, 0)
    assert same.tokenizer.backend.to_str() == old.backend.to_str()


def test_lower_case_is_counted_as_it_is_encoded() -> None:
    old = train_tokenizer(OLD, config_of(50, lowercase=True))
    new = extended(old, [["Dog DOG dog"]], config_of(50, lowercase=True))
    assert new.num_new == 1
    assert new.tokenizer.encode("DOG") == [6]
