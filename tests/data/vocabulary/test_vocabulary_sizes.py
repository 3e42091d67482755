"""The size that `auto` takes keeps the rule, and the table counts what the tokenizers give."""

from collections import Counter
from collections.abc import Iterator

import pytest
from commands import call_tmt
from marks import slow
from toy import toy_config, write_toy_corpus

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.make_tokenizers import train_tokenizers
from transformer_mt.data.preparation import prepare_data, report_lines
from transformer_mt.data.vocabulary import sizes
from transformer_mt.data.vocabulary.sizes import Measured, chosen_size, chosen_tokenizers, measured, table_lines

PAIRS = builtin_pairs("train")[:1000]
SIZES, FEW = sizes.SIZES, (300, 350, 450, 700)


def texts(side: int) -> list[list[str]]:
    return [[pair[side] for pair in PAIRS[start : start + 400]] for start in range(0, len(PAIRS), 400)]


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "SIZES", FEW)


def frequent(config: TokenizerConfig, size: int) -> float:
    """The share of entries with 100 occurrences among those that occur, counted one token at a time."""
    tokenizers = train_tokenizers(texts, config.model_copy(update={"vocab_size": size}))
    counts = [
        Counter(i for chunk in texts(side) for ids in tokenizer.encode_batch(chunk) for i in ids)
        for side, tokenizer in enumerate(tokenizers)
    ]
    counts = [counts[0] + counts[1]] if config.joint else counts
    return min(sum(number >= 100 for number in count.values()) / len(count) for count in counts)


@pytest.mark.parametrize(("kind", "joint"), [("bpe", True), ("bpe", False), slow("unigram", True)])
def test_auto_takes_the_largest_size_of_frequent_entries(
    kind: str, joint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TokenizerConfig.model_validate({"kind": kind, "joint": joint, "vocab_size": "auto"})
    shares = {size: frequent(config, size) for size in FEW}
    assert [row.frequent for row in measured(texts, config, FEW)] == pytest.approx(list(shares.values()))
    for enough in (0.0, (shares[350] + shares[450]) / 2, 1.1):
        monkeypatch.setattr(sizes, "ENOUGH", enough)
        keep = [size for size in FEW if shares[size] >= enough]
        assert chosen_size(texts, config) == (max(keep) if keep else FEW[0])
    monkeypatch.setattr(sizes, "ENOUGH", (shares[350] + shares[450]) / 2)
    chosen = chosen_tokenizers(texts, config)
    by_hand = train_tokenizers(texts, config.model_copy(update={"vocab_size": chosen_size(texts, config)}))
    assert [one.backend.to_str() for one in chosen] == [one.backend.to_str() for one in by_hand]


def test_the_table_counts_tokens() -> None:
    config = TokenizerConfig(kind="word", min_frequency=1, vocab_size=10)
    (found,) = measured(lambda side: [["a b c a b", "the cat."]], config, [8])
    # PAD, UNK, BOS, EOS, a, b, and two of those that come once, in the order of unicode: c, cat.
    assert found == Measured(8, (8, 8), (4.0, 4.0), (5 / 8, 5 / 8), (2 / 8, 2 / 8), 0.0)


def test_a_corpus_too_small_for_a_size_ends_the_table() -> None:
    config = TokenizerConfig(kind="bpe", joint=True)
    rows = list(measured(lambda side: [["one two", "two three"]], config, FEW))
    assert len(rows) == 1
    assert rows[0].entries[0] < 300
    assert len(list(table_lines(rows))) == 2


def test_a_side_without_texts_has_no_figures() -> None:
    config = TokenizerConfig(kind="bpe", joint=True)
    _, row = table_lines(measured(lambda side: [["one two", "two three"]] if side else [], config, FEW[:1]))
    size, _, _, *figures, _ = row.split()
    assert size == f"{FEW[0]:,}"
    assert figures[::2] == ["-"] * 3
    assert "-" not in figures[1::2]


def test_no_more_of_a_corpus_is_read_than_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "MEASURED_PAIRS", 700)
    config = TokenizerConfig(kind="bpe", joint=True)

    def two_chunks(side: int) -> Iterator[list[str]]:
        yield from texts(side)[:2]
        raise AssertionError("a third is asked for")

    assert list(measured(two_chunks, config, FEW[:1])) == list(measured(lambda side: texts(side)[:2], config, FEW[:1]))


def test_the_rule_is_the_papers() -> None:
    assert (sizes.FREQUENT, sizes.ENOUGH) == (100, 0.95)
    assert SIZES == (1000, 2000, 4000, 8000, 16000, 32000)


def test_tags_and_masks_come_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that are learned are those of a vocabulary without them."""
    values = {"kind": "bpe", "joint": True, "vocab_size": "auto"}
    plain, tagged = (TokenizerConfig.model_validate({**values, **more}) for more in ({}, {"masks": 200}))
    for enough in (0.0, 1.1):
        monkeypatch.setattr(sizes, "ENOUGH", enough)
        assert chosen_size(texts, tagged) == chosen_size(texts, plain) + 200
    assert [row.tokens for row in measured(texts, tagged, FEW)] == [row.tokens for row in measured(texts, plain, FEW)]


def test_it_is_chosen_for_a_training_and_told(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "ENOUGH", 0.0)
    corpus = write_toy_corpus(tmp_path / "toy")
    tokenizer = {"kind": "bpe", "joint": True, "min_frequency": 2}
    data = prepare_data(toy_config(corpus, tokenizer={**tokenizer, "vocab_size": "auto"}, model={"max_len": 60}))
    by_hand = prepare_data(toy_config(corpus, tokenizer={**tokenizer, "vocab_size": 300}, model={"max_len": 60}))
    assert data.src_tokenizer.backend.to_str() == by_hand.src_tokenizer.backend.to_str()
    assert any(line.startswith("vocabulary: source 300") for line in report_lines(data))


def test_the_verb(tmp_path) -> None:
    made = call_tmt(tmp_path, "data", "vocab", "--config", "quickstart.yaml", "tokenizer.kind=word")
    assert made.returncode == 0
    assert "tokens a sentence" in made.stdout
    pictures = call_tmt(tmp_path, "data", "vocab", "--config", "pictures.yaml", "tokenizer.kind=word")
    assert "word, one vocabulary\n" in pictures.stdout, "the source is drawn"
    refused = call_tmt(
        tmp_path, "data", "vocab", "--config", "quickstart.yaml", "tokenizer.vocab_size=auto", "tokenizer.kind=word"
    )
    assert refused.returncode == 2
    assert "vocab_size: auto is for subwords" in refused.stderr
