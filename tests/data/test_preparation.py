"""From sources to batches: what is left out is counted, what is asked to be an error is one, caches change nothing."""

import re
from pathlib import Path

import numpy as np
import pytest
from toy import all_entries, toy_config, write_toy_corpus

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.data import encoding
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.make_tokenizers import train_tokenizer
from transformer_mt.data.preparation import prepare_data, report_lines
from transformer_mt.data.tokenizers import WordTokenizer
from transformer_mt.errors import UserError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """120 + 20 toy pairs; line 4 of train is long, line 6 has a blank side."""
    folder = write_toy_corpus(tmp_path / "data")
    for language, word in (("en", "one"), ("es", "uno")):
        path = folder / f"train.{language}"
        lines = path.read_text().split("\n")
        lines[3] = " ".join([word] * 30) if language == "en" else word
        lines[5] = " \t " if language == "es" else lines[5]
        path.write_text("\n".join(lines))
    return folder


def make_config(corpus: Path, **sections: dict) -> RunConfig:
    return toy_config(corpus, data={"cache_dir": str(corpus.parent / "cache"), **sections.pop("data", {})}, **sections)


def test_long_and_blank_pairs_are_left_out_counted_and_nothing_shifts(corpus: Path) -> None:
    data = prepare_data(make_config(corpus))
    assert len(data.train) == 118
    assert (data.train.num_too_long, data.train.corpus.num_blank) == (1, 1)
    sources = (corpus / "train.en").read_text().split("\n")[:-1]
    targets = (corpus / "train.es").read_text().split("\n")[:-1]
    expected = [pair for i, pair in enumerate(zip(sources, targets, strict=True)) if i not in (3, 5)]
    assert list(zip(*data.train.texts(list(range(118))), strict=True)) == expected
    for i in (0, 3, 4, 117):
        batch = data.train.batch(np.array([i]))
        assert data.src_tokenizer.decode(batch.src[0].tolist()) == expected[i][0]
        assert data.tgt_tokenizer.decode(batch.tgt_out[0].tolist()) == expected[i][1]
        assert batch.src[0, -1] == batch.tgt_out[0, -1] == EOS_ID
        assert batch.src.size(1) == data.train.src_lengths[i]
    report = "\n".join(report_lines(data))
    assert "118 pairs" in report
    assert "1 with a blank side dropped, 1 too long left out" in report
    shown = [line.split("  ->  ")[0].strip() for line in report.split("\n") if "  ->  " in line]
    assert set(zip(shown[::2], shown[1::2], strict=True)) <= set(expected)
    assert "vocabulary: source 15, target 15" in report


def test_the_longest_pair_that_fits_is_kept(corpus: Path) -> None:
    """Toy pairs have up to 8 tokens, 9 with EOS."""
    longest = prepare_data(make_config(corpus, model={"max_len": 9}))
    shorter = prepare_data(make_config(corpus, model={"max_len": 8}))
    assert longest.train.num_too_long == 1
    assert longest.train.src_lengths.max() == 9
    assert shorter.train.num_too_long > 1
    assert shorter.train.src_lengths.max() == 8


def test_a_long_pair_is_an_error_if_asked_for(corpus: Path) -> None:
    message = r"train\.en / .*train\.es, line 4: 31 source and 2 target tokens .* model\.max_len is 16"
    with pytest.raises(UserError, match=message):
        prepare_data(make_config(corpus, data={"too_long": "error"}))


def test_nothing_that_fits_is_an_error(corpus: Path) -> None:
    """It says which length would hold most of them."""
    told = r"Of 20 pairs of .*, none fits model\.max_len 2\. Raise it: model\.max_len=(\d+) would hold 99 % of them\."
    train = {"train": [{"src": "valid.en", "tgt": "valid.es"}]}
    with pytest.raises(UserError, match=told) as error:
        prepare_data(make_config(corpus, model={"max_len": 2}, training={"max_tokens": 64}, data=train))
    enough = int(re.findall(told, str(error.value))[0])
    assert len(prepare_data(make_config(corpus, model={"max_len": enough}, data=train)).train) == 20


def test_tokenizers_see_the_training_split_alone(corpus: Path) -> None:
    with (corpus / "valid.en").open("a") as file:
        file.write("zebra\n")
    with (corpus / "valid.es").open("a") as file:
        file.write("cebra\n")
    data = prepare_data(make_config(corpus))
    assert data.src_tokenizer.vocab_size == 15
    assert data.validation.ids.num_unknown_src == data.validation.ids.num_unknown_tgt == 1
    words = int(data.validation.ids.tgt.lengths.sum()) - 20  # each of the toy pairs ends in a full stop
    assert data.validation.unknown_target_words(data.tgt_tokenizer) == pytest.approx(1 / words)
    shares = data.validation.unknown_shares()
    assert shares[0] == pytest.approx(1 / data.validation.ids.src.lengths.sum())


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_a_second_start_reads_the_cache_and_gets_the_same(corpus: Path, kind: str, monkeypatch) -> None:
    tokenizer = {"kind": kind, "vocab_size": 320, **all_entries(kind)}
    config = make_config(corpus, tokenizer=tokenizer, data={"allow_left_out": True})
    first = prepare_data(config)

    def refuse(*_: object) -> None:
        pytest.fail("worked out again")

    monkeypatch.setattr(encoding, "_write_ids", refuse)
    monkeypatch.setattr(encoding, "chosen_tokenizers", refuse)
    second = prepare_data(config)
    assert second.tgt_tokenizer.backend.to_str() == first.tgt_tokenizer.backend.to_str()
    for i in range(len(first.train.ids)):
        assert np.array_equal(first.train.ids.src[i], second.train.ids.src[i])


def test_another_setting_or_text_is_another_entry(corpus: Path) -> None:
    first = prepare_data(make_config(corpus))
    lower = prepare_data(make_config(corpus, tokenizer={"kind": "word", "vocab_size": 12, "min_frequency": 1}))
    assert lower.src_tokenizer.vocab_size == 12 < first.src_tokenizer.vocab_size
    lines = (corpus / "train.en").read_text().split("\n")
    (corpus / "train.en").write_text("\n".join(["eleven.", *lines[1:]]))
    assert prepare_data(make_config(corpus)).src_tokenizer.vocab_size == 16


def test_another_target_vocabulary_is_another_entry(corpus: Path) -> None:
    """Also where the source has the same."""
    (corpus / "train.en").write_text("one.\n" * 120)
    small = prepare_data(make_config(corpus, tokenizer={"vocab_size": 12}))
    large = prepare_data(make_config(corpus))
    assert small.src_tokenizer.backend.to_str() == large.src_tokenizer.backend.to_str()
    targets = [line for line in (corpus / "train.es").read_text().split("\n") if line.strip()]
    assert [large.tgt_tokenizer.decode(ids.tolist()) for ids in large.train.ids.tgt] == targets


def test_another_case_is_another_entry(corpus: Path) -> None:
    """Also where the vocabulary is the same."""
    (corpus / "train.en").write_text("ONE\n" * 120)
    config = make_config(corpus)
    text = load_corpus(config.data.train, config.data)
    backend = train_tokenizer(["one ONE"], config.tokenizer).backend
    for lowercase, word in ((False, "ONE"), (True, "one")):
        tokenizer = WordTokenizer(backend, lowercase)
        ids = encoding.encode_corpus(text, tokenizer, tokenizer, config.data)
        assert tokenizer.decode(ids.src[0].tolist()) == word


def test_a_damaged_tokenizer_in_the_cache_is_trained_again(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = prepare_data(make_config(corpus))
    (damaged,) = (corpus.parent / "cache" / "tokenizers").glob("*/src.json")
    damaged.write_text(damaged.read_text()[:100])
    again = prepare_data(make_config(corpus))
    assert again.src_tokenizer.backend.to_str() == first.src_tokenizer.backend.to_str()
    assert f"The cache entry {damaged.parent} is damaged" in caplog.text


def test_rows_of_many_chunks_are_found(corpus: Path, monkeypatch) -> None:
    whole = prepare_data(make_config(corpus))
    monkeypatch.setattr("transformer_mt.data.sources.files.BLOCK_BYTES", 100)
    parts = prepare_data(make_config(corpus, data={"cache_dir": str(corpus.parent / "cache2")}))
    for i in range(len(whole.train.ids)):
        assert np.array_equal(whole.train.ids.tgt[i], parts.train.ids.tgt[i])
    assert np.array_equal(whole.train.ids.src.lengths, parts.train.ids.src.lengths)
