"""Groups by length, rarity and certainty, worked out by hand."""

import math
from collections import Counter

import pytest
from sets import small_set
from toy import toy_config

from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.judging.groups import by_certainty, by_length, by_rarity, in_groups
from transformer_mt.judging.scores import score_set
from transformer_mt.judging.words import Frequencies, frequencies_in, frequencies_of_training, words_of


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        ([1, 1, 1, 2, 3, 4, 5, 6, 7, 8], [[1, 1, 1], [2], [3, 4], [5, 6], [7, 8]]),
        ([5, 4, 3, 2, 1], [[1], [2], [3], [4], [5]]),
        ([7, 7, 7], [[7, 7, 7]]),
        ([9, 1], [[1], [9]]),
        ([1, 2, 2, 2, 2, 2, 2, 2, 2, 9], [[1, 2, 2, 2, 2, 2, 2, 2, 2], [9]]),
        ([], []),
    ],
)
def test_groups_are_about_equal_and_never_part_equal_values(values: list[float], groups: list[list[float]]) -> None:
    assert [[values[place] for place in group] for group in in_groups(values)] == groups


def test_groups_by_length_of_the_source() -> None:
    sources = ["one", "one two", "one two!", "one two three, four", "今天"]  # 1, 2, 2, 4 and 2 words
    references = ["a b c d e"] * 5
    hypotheses = ["a b c d e", "a b c d e", "x", "x", "x"]
    test_set = small_set(sources, references, hypotheses)
    groups = by_length(test_set, score_set(test_set))
    assert [(group.label, group.sizes) for group in groups] == [("1", [1]), ("2", [3]), ("4", [1])]
    ter = [group.scores["TER"][0].value for group in groups]
    assert ter == pytest.approx([0, 100 * 10 / 15, 100])  # 0 + 5 + 5 edits of 15 words in the middle
    assert groups[0].scores["BLEU"][0].value == pytest.approx(100)


def test_groups_by_rarity_by_hand() -> None:
    frequencies = Frequencies(Counter({"the": 500, "cat": 12, "sat": 3}), "by hand", (0, 1, 10, 100))
    references = ["the cat sat", "the zebra sat"]
    hypotheses = ["the the cat", "the horse sat"]
    groups = by_rarity(small_set(None, references, hypotheses), frequencies, lowercase=False)
    # unknown: zebra, horse: 0 of 1 made, 1 wanted. rare: sat, 1 of 1 made, 2 wanted. cat: all. the: 2 of 3 made, 2.
    assert [(group.label, group.sizes) for group in groups] == [("0", [1]), ("1–9", [2]), ("10–99", [1]), ("100+", [2])]
    found = [group.scores["F1"][0].value for group in groups]
    assert found == pytest.approx([0, 100 * 2 / 3, 100, 100 * 4 / 5])


@pytest.mark.parametrize("lowercase", [False, True])
def test_words_seen_in_training_are_never_unseen_whatever_their_case(tmp_path, lowercase: bool) -> None:
    for side, text in (("en", "The dog sleeps\n"), ("es", "Der Hund schläft\n")):
        (tmp_path / f"train.{side}").write_text(text * 1000, encoding="utf-8")
    frequencies = frequencies_of_training(toy_config(tmp_path), lowercase)
    texts = ["Der Hund schläft"]
    groups = by_rarity(small_set(None, texts, texts), frequencies, lowercase)
    assert [(group.label, group.sizes) for group in groups] == [("1,000+", [3])]


def test_text_beside_pairs_is_no_training_pair(tmp_path) -> None:
    for side, text in (("en", "The dog sleeps\n"), ("es", "Der Hund schläft\n")):
        (tmp_path / f"train.{side}").write_text(text * 10, encoding="utf-8")
    config = toy_config(tmp_path)
    text = SourceConfig(mono="train.en")
    config = config.model_copy(update={"data": config.data.model_copy(update={"train": [*config.data.train, text]})})
    frequencies = frequencies_of_training(config, lowercase=False)
    assert frequencies.counts == {"Der": 10, "Hund": 10, "schläft": 10}
    assert frequencies.place == "in the 10 training pairs"


def test_frequencies_are_counted_in_words() -> None:
    frequencies = frequencies_in(["The cat, the 猫!", "the dog"])
    assert frequencies.counts == {"The": 1, "cat": 1, "the": 2, "猫": 1, "dog": 1}
    assert frequencies.labels() == ["0", "1", "2–4", "5–19", "20+"]
    assert [frequencies.group_of(word) for word in ("dig", "cat", "the")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop -- 3.5!", ["Don", "t", "stop", "3", "5"]),
        ("今天天气", ["今", "天", "天", "气"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("قال: نعم", ["قال", "نعم"]),
        ("กิน", ["กิ", "น"]),
        ("  ", []),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_each_system_is_grouped_by_its_own_certainty() -> None:
    references = [f"a b c d {word}" for word in "vwxyz"]
    hypotheses = ["q", *references[1:]]
    certainty = [math.log(p) for p in (0.1, 0.5, 0.6, 0.8, 0.9)]
    test_set = small_set(None, references, hypotheses, certainty=certainty)
    groups, ranges = by_certainty(test_set, score_set(test_set))
    assert [group.label for group in groups] == ["least sure", "2", "3", "4", "surest"]
    assert [group.scores["TER"][0].value for group in groups] == [100, 0, 0, 0, 0]
    assert ranges[0] == ["0.10–0.10"]
    assert ranges[-1] == ["0.90–0.90"]
    of_files = small_set(None, references, hypotheses)
    assert by_certainty(of_files, score_set(of_files)) == ([], [])
