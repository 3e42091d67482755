"""Pairs that are others in each epoch: all of them come, lengths are those of the batches, an epoch is itself again."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from toy import toy_config, write_toy_corpus

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.special_ids import EOS_ID, PAD_ID
from transformer_mt.data.batches.batching import Batch
from transformer_mt.data.batches.plan import TrainingSplit
from transformer_mt.data.batches.stream import Stream
from transformer_mt.data.noise.epoch_split import EpochSplit, split_by_epochs
from transformer_mt.data.preparation import PreparedData, Split, prepare_data, prepare_training_data
from transformer_mt.errors import UserError

BPE = {"kind": "bpe", "vocab_size": 320, "joint": True}
NUM_PAIRS, MAX_TOKENS = 120, 200


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_toy_corpus(tmp_path_factory.mktemp("toy"), NUM_PAIRS)


def config_of(corpus: Path, tokenizer: dict | None = None, max_len: int = 60, **data: object) -> RunConfig:
    return toy_config(
        corpus, tokenizer={**BPE, **(tokenizer or {})}, model={"max_len": max_len}, data=data,
        training={"max_tokens": MAX_TOKENS},
    )  # fmt: skip


def made(config: RunConfig) -> tuple[TrainingSplit, PreparedData]:
    data = prepare_data(config)
    return split_by_epochs(data, config), data


def batches(split: TrainingSplit, epoch: int) -> list[Batch]:
    """Those of an epoch, whose lengths are the ones that it was planned by."""
    found = []
    for rows in split.plan(MAX_TOKENS, 3, epoch).known():
        batch = split.batch(rows)
        assert (batch.src != 0).sum(1).tolist() == split.src_lengths[rows].tolist()
        assert (batch.tgt_out != 0).sum(1).tolist() == split.tgt_lengths[rows].tolist()
        assert split.src_lengths[rows[0]] == (batch.src[0] != 0).sum()
        assert len(rows) * max(batch.src.size(1), batch.tgt_out.size(1)) <= MAX_TOKENS
        found.append(batch)
    return found


def texts(data: PreparedData, found: list[Batch]) -> Counter[tuple[str, str]]:
    return Counter(
        (data.src_tokenizer.decode(src.tolist()), data.tgt_tokenizer.decode(tgt.tolist()))
        for batch in found
        for src, tgt in zip(batch.src, batch.tgt_out, strict=True)
    )


def ids(found: list[Batch]) -> list[list]:
    return [[batch.src.tolist(), batch.tgt_in.tolist(), batch.tgt_out.tolist()] for batch in found]


def test_without_either_option_it_is_the_split_itself(corpus: Path) -> None:
    split, data = made(config_of(corpus))
    assert split is data.train


@pytest.mark.parametrize("sides", ["both", "src", "tgt"])
def test_each_epoch_has_every_pair_once_in_pieces_of_its_own(corpus: Path, sides: str) -> None:
    config = config_of(corpus, {"bpe_dropout": 0.3, "bpe_dropout_sides": sides})
    split, data = made(config)
    usual = Counter(data.train.texts(list(range(NUM_PAIRS)))[0])
    zero, one = batches(split, 0), batches(split, 1)
    assert texts(data, zero) == texts(data, one)
    assert Counter(src for src, _ in texts(data, zero)) == usual
    assert ids(zero) != ids(one)
    assert ids(batches(made(config)[0], 1)) == ids(one), "without having been in epoch 0"
    rows = np.arange(NUM_PAIRS) + (1 << 40)
    assert (split.src_lengths[rows] > data.train.src_lengths).any() == (sides != "tgt")
    assert (split.tgt_lengths[rows] > data.train.tgt_lengths).any() == (sides != "src")
    assert split.where(5 + (1 << 40)) == data.train.where(5)


def test_a_pair_that_would_be_too_long_keeps_its_pieces_and_is_counted(corpus: Path) -> None:
    longest = max(int(prepare_data(config_of(corpus)).train.tgt_lengths.max()), 24)
    config = config_of(corpus, {"bpe_dropout": 0.9}, max_len=longest)
    split, data = made(config)
    found = batches(split, 0)
    assert max(max(batch.src.size(1), batch.tgt_out.size(1)) for batch in found) <= longest
    assert sum(texts(data, found).values()) == len(data.train)
    rows = np.arange(len(data.train))
    same = (split.src_lengths[rows] == data.train.src_lengths) & (split.tgt_lengths[rows] == data.train.tgt_lengths)
    assert 0 < same.sum() < len(data.train)
    said = split.plan(MAX_TOKENS, 3, 0).summary()
    assert said is not None
    assert f"epoch 1: {same.sum()} pairs kept their usual pieces" in said


def test_both_directions_come_in_the_first_epochs_only(corpus: Path) -> None:
    split, data = made(config_of(corpus, both_directions_epochs=2))
    once = texts(data, batches(split, 2))
    assert sum(once.values()) == NUM_PAIRS
    for epoch in (0, 1):
        assert texts(data, batches(split, epoch)) == once + Counter((tgt, src) for src, tgt in once)
    assert split.where(NUM_PAIRS + 5) == f"{data.train.where(5)}, from target to source"


def test_both_options_together(corpus: Path) -> None:
    """A pair has other pieces in its other direction."""
    split, data = made(config_of(corpus, {"bpe_dropout": 0.5}, both_directions_epochs=1))
    assert isinstance(split, EpochSplit)
    found = texts(data, batches(split, 0))
    assert sum(found.values()) == 2 * NUM_PAIRS
    src, tgt = split.lengths(0)
    assert (src[:NUM_PAIRS] != tgt[NUM_PAIRS:]).any()


def mono(corpus: Path, tokenizer: dict, max_len: int = 60, **noise: object) -> RunConfig:
    return config_of(corpus, tokenizer, max_len, train=[{"mono": "train.es"}], noise=noise, allow_left_out=True)


@pytest.mark.parametrize("sides", ["both", "src", "tgt"])
def test_dropout_beside_text_that_is_learned_word_by_word(corpus: Path, sides: str) -> None:
    """Such text has an empty source, whatever dropout makes of the line."""
    split, data = made(mono(corpus, {"bpe_dropout": 0.5, "bpe_dropout_sides": sides}, kind="causal"))
    assert isinstance(data.train, Split)
    usual = Counter(data.train.texts(list(range(NUM_PAIRS)))[1])
    zero, one = batches(split, 0), batches(split, 1)
    for found in (zero, one):
        assert texts(data, found) == Counter({("", line): number for line, number in usual.items()})
    pieces = [sorted(row[row != 0].tolist() for batch in found for row in batch.tgt_out) for found in (zero, one)]
    assert (pieces[0] != pieces[1]) == (sides != "src")


def test_a_line_that_noise_makes_too_long_is_cut_and_counted(corpus: Path) -> None:
    """Each word is hidden by a mask of its own, so that the target is twice as long as what was hidden."""
    whole = int(prepare_data(config_of(corpus)).train.tgt_lengths.max())
    split, data = made(mono(corpus, {"masks": 40}, whole, kind="spans", share=0.9, mean_length=1))
    assert isinstance(data.train, Split)
    found = batches(split, 0)
    assert max(max(batch.src.size(1), batch.tgt_out.size(1)) for batch in found) <= whole
    pairs = texts(data, found)
    assert sum(pairs.values()) == len(data.train)
    assert all(src != tgt for src, tgt in pairs), "something is hidden of every line"
    said = split.plan(MAX_TOKENS, 3, 0).summary()
    assert said is not None
    assert re.fullmatch(r"epoch 1: \d+ lines were cut in half, since data\.noise makes .* than model\.max_len", said)


def test_a_stream_counts_the_lines_that_are_cut_too(corpus: Path) -> None:
    """Of such a line fewer tokens are shown or told than it has. A stream that goes on within an epoch counts alike."""
    whole = int(prepare_data(config_of(corpus)).train.tgt_lengths.max())
    config = config_of(
        corpus, {"masks": 40}, whole, train=[{"mono": "train.es"}], allow_left_out=True, streaming=True,
        shuffle_window=50, noise={"kind": "spans", "share": 0.9, "mean_length": 1},
    )  # fmt: skip
    lines, cut, place = (corpus / "train.es").read_text("utf-8").split("\n"), 0, None
    data = prepare_training_data(config)
    masks = [i for token, i in data.tgt_tokenizer.backend.get_vocab().items() if token.startswith("<mask")]
    for _ in range(2):
        stream = split_by_epochs(data, config)
        assert isinstance(stream, Stream)
        stream.go_on_from(0, place)
        plan, number = stream.plan(MAX_TOKENS, 3, 0), 0 if place is None else int(place["micro_batch"])
        while plan.has(number):
            (rows,) = plan.take(number, 1)
            batch, number = stream.batch(rows), number + 1
            for row, src, tgt in zip(rows, batch.src, batch.tgt_out, strict=True):
                line = lines[int(stream.where(int(row)).rpartition(" ")[2]) - 1]
                kept = sum(i not in (PAD_ID, EOS_ID, *masks) for i in [*src.tolist(), *tgt.tolist()])
                cut += place is None and kept < len(data.tgt_tokenizer.encode(line))
        assert cut > 0
        assert str(plan.summary()).endswith(f", {cut} cut in half for data.noise")
        place, data = plan.place(number - 1), prepare_training_data(config)
        assert place["window"] == 2


def test_another_seed_is_other_pieces(corpus: Path) -> None:
    config = config_of(corpus, {"bpe_dropout": 0.3})
    data = prepare_data(config)
    one, other = (
        split_by_epochs(data, config.model_copy(update={"seed": seed})).batch(np.arange(NUM_PAIRS)) for seed in (1, 2)
    )
    assert one.src.tolist() != other.src.tolist()


def test_misuse_is_told_by_both_keys(corpus: Path) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.bpe_dropout and data\.streaming: true do not go together"):
        config_of(corpus, {"bpe_dropout": 0.1}, streaming=True)
    with pytest.raises(UserError, match="both_directions_epochs is 1 and has no meaning with streaming: true"):
        config_of(corpus, both_directions_epochs=1, streaming=True)
    with pytest.raises(UserError, match=r"data\.both_directions_epochs .* set tokenizer\.joint: true"):
        config_of(corpus, {"joint": False}, both_directions_epochs=1)
    with pytest.raises(UserError, match=r"epochs is 1, and tokenizer\.tags is \['<2es>'\], which"):
        config_of(corpus, {"tags": ["<2es>"]}, both_directions_epochs=1)


@pytest.mark.parametrize(
    ("lines", "change_places"),
    [
        ([f"one {'x' * (number + 1)} two three." for number in range(30)], False),  # an unknown word ends no sentence
        (["one two. three four five."] * 30, True),
        (["one two . three four five ."] * 30, True),
    ],
    ids=["unknown", "joined", "parted"],
)
def test_sentences_of_words_end_at_their_marks(lines: list[str], change_places: bool, tmp_path: Path) -> None:
    """Of lines so short that nothing of them is hidden."""
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = [{"mono": "text"}]
    noise = {"kind": "infilling", "share": 0.01}
    config = toy_config(
        tmp_path, data={"root": str(tmp_path), "train": text, "validation": text, "noise": noise},
        tokenizer={"kind": "word", "min_frequency": 3, "joint": True, "masks": 1},
    )  # fmt: skip
    found = batches(made(config)[0], 0)
    told = [(src, tgt) for batch in found for src, tgt in zip(batch.src.tolist(), batch.tgt_out.tolist(), strict=True)]
    assert any(src != tgt for src, tgt in told) == change_places
    assert any(src == tgt for src, tgt in told)
    assert all(sorted(src) == sorted(tgt) for src, tgt in told)
