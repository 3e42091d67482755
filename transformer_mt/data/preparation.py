"""Everything that stands between the sources of a config and the first batch, and the report on it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batching import Batch, Rows, batch_of_ids, plan_batches
from transformer_mt.data.corpus import Corpus, load_corpus
from transformer_mt.data.encoding import EncodedCorpus, corpus_tokenizers, encode_corpus, too_long
from transformer_mt.data.plan import WholePlan
from transformer_mt.data.sources import describe
from transformer_mt.data.stream import Stream
from transformer_mt.data.tokenizers import Tokenizer, WordTokenizer, train_tokenizers
from transformer_mt.data.window import NUM_SHOWN, Head
from transformer_mt.data.words import printable
from transformer_mt.errors import UserError

LARGEST_UNKNOWN_SHARE = 0.5
WORTH_A_HINT = 0.1
MOST_SHOWN = 500  # characters of each side


@dataclass(frozen=True)
class Split:
    """The pairs of one split that fit the model. `rows` are their places in corpus and ids."""

    name: str
    corpus: Corpus
    ids: EncodedCorpus
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_too_long(self) -> int:
        """Pairs that the model has no positions for."""
        return len(self.ids) - len(self.rows)

    @cached_property
    def src_lengths(self) -> NDArray[np.int32]:
        """Lengths of x + EOS, a number a row."""
        return self.ids.src.lengths[self.rows] + 1

    @cached_property
    def tgt_lengths(self) -> NDArray[np.int32]:
        """Lengths of y + EOS, a number a row."""
        return self.ids.tgt.lengths[self.rows] + 1

    def batch(self, indices: Rows) -> Batch:
        """The pairs at these places among `rows`, padded."""
        rows = self.rows[indices] if self.num_too_long else indices
        return batch_of_ids(self.ids.src.gather(rows), self.ids.tgt.gather(rows))

    def where(self, index: int) -> str:
        """Where the pair at this place among `rows` stands: `file.en / file.de, line 17`."""
        return self.corpus.where(int(self.rows[index]))

    def plan(self, max_tokens: int, seed: int, epoch: int) -> WholePlan:
        """The micro-batches of an epoch."""
        return WholePlan(plan_batches(self.src_lengths, self.tgt_lengths, max_tokens, seed, epoch))

    def identity(self) -> dict[str, str | int]:
        """What tells these pairs from others."""
        return {"fingerprint": self.corpus.fingerprint, "num_pairs": self.corpus.num_read}

    def texts(self, indices: list[int]) -> tuple[list[str], list[str]]:
        """Raw source and target texts of the pairs at these places among `rows`."""
        pairs = self.corpus.dataset[self.rows[indices].tolist()]
        return list(pairs["src"]), list(pairs["tgt"])

    def first_texts(self, number: int) -> list[tuple[str, str]]:
        """Raw source and target text of so many pairs, or of all there are."""
        return list(zip(*self.texts(list(range(min(number, len(self))))), strict=True))

    def unknown_shares(self) -> tuple[float, float]:
        """UNK among the tokens of the source and of the target, pairs that are too long included."""
        ids = self.ids
        return ids.num_unknown_src / max(1, len(ids.src.ids)), ids.num_unknown_tgt / max(1, len(ids.tgt.ids))

    def unknown_target_words(self, tokenizer: Tokenizer) -> float:
        """UNK among the target tokens that are not punctuation, which every vocabulary knows."""
        num_words = len(self.ids.tgt.ids) - self.ids.tgt.count(tokenizer.punctuation_ids())
        return self.ids.num_unknown_tgt / max(1, num_words)


@dataclass(frozen=True)
class TrainingData:
    """What training reads: the pairs that it is on may be a stream."""

    train: Split | Stream
    validation: Split
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer


@dataclass(frozen=True)
class PreparedData(TrainingData):
    """Both splits as a whole."""

    train: Split


Tokenizers = tuple[Tokenizer, Tokenizer]  # of the source and of the target


def prepare_training_data(config: RunConfig, tokenizers: Tokenizers | None = None) -> TrainingData:
    """What `prepare_data` gives, or with `data.streaming` the same but for a training split that is read later.

    Raises UserError as it does, as far as the beginning of the stream shows what is wrong.
    """
    if not config.data.streaming:
        return prepare_data(config, tokenizers)
    src, tgt = tokenizers or _head_tokenizers(config)
    validation = _validation(config, src, tgt)
    return TrainingData(Stream(config, src, tgt), validation, src, tgt)


def prepare_data(config: RunConfig, tokenizers: Tokenizers | None = None) -> PreparedData:
    """Load, tokenize and filter both splits. Tokenizers are trained on the training split unless given.

    Raises UserError for sources that cannot be read, for a split of which nothing fits the model, and where more than
    half of the validation target's words are unknown to the vocabulary: such a model could not say what it should.
    """
    corpus = load_corpus(config.data.train, config.data)
    src, tgt = tokenizers or corpus_tokenizers(corpus, config.tokenizer, config.data)
    train = load_split("train", corpus, src, tgt, config)
    return PreparedData(train, _validation(config, src, tgt), src, tgt)


def _validation(config: RunConfig, src: Tokenizer, tgt: Tokenizer) -> Split:
    """The split, which is always a whole; UserError where its target's words are not known."""
    split = load_split("validation", load_corpus(config.data.validation, config.data), src, tgt, config)
    unknown = split.unknown_target_words(tgt)
    if unknown > LARGEST_UNKNOWN_SHARE:
        raise UserError(
            f"{unknown:.0%} of the validation target's words are not in the vocabulary ({tgt.vocab_size:,} entries), "
            f"so no model could produce them. {_advice(config)}"
        )
    return split


def _head_tokenizers(config: RunConfig) -> Tokenizers:
    """Tokenizers of a stream, trained on its first pairs."""
    head = Head(config.data)
    if next(head.texts(0), None) is None:
        raise UserError(
            f"There is no pair with two sides among the first {config.data.streaming_tokenizer_pairs:,} of "
            f"{', '.join(describe(source) for source in config.data.train)}. Check that these are the "
            "files you mean."
        )
    return train_tokenizers(head.texts, config.tokenizer)


def load_split(
    name: str, corpus: Corpus, src: Tokenizer, tgt: Tokenizer, config: RunConfig, way_out: str = "Raise model.max_len."
) -> Split:
    """Encode one split and leave out, or refuse, what is longer than the model's positions.

    Raises UserError, with `way_out`, where nothing is left.
    """
    ids = encode_corpus(corpus, src, tgt, config.data)
    fits = (ids.src.lengths < config.model.max_len) & (ids.tgt.lengths < config.model.max_len)
    rows = np.flatnonzero(fits)
    if config.data.too_long == "error" and len(rows) < len(ids):
        row = int(np.flatnonzero(~fits)[0])
        raise too_long(corpus.where(row), ids.src.lengths[row], ids.tgt.lengths[row], config.model.max_len)
    if len(rows) == 0:
        raise UserError(
            f"All {len(ids):,} pairs of {', '.join(corpus.descriptions)} are longer than model.max_len "
            f"{config.model.max_len}. {way_out}"
        )
    return Split(name, corpus, ids, rows)


def report_lines(data: TrainingData) -> list[str]:
    """What a person should see before the first step: counts, lengths, vocabularies, unknown words, three pairs."""
    lines = []
    for split in (data.train, data.validation):
        lines += _stream_lines(split) if isinstance(split, Stream) else _split_lines(split)
        if max(split.unknown_shares()) > WORTH_A_HINT and isinstance(data.tgt_tokenizer, WordTokenizer):
            lines.append("  many words are unknown; tokenizer.kind: bpe knows every text")
    tokenizers = (data.src_tokenizer, data.tgt_tokenizer)
    lines.append("vocabulary: source {:,}, target {:,}".format(*(t.vocab_size for t in tokenizers)))
    for pair in data.train.first_texts(NUM_SHOWN):
        for text, tokenizer in zip(pair, tokenizers, strict=True):
            tokens = " ".join(tokenizer.tokens(tokenizer.encode(text)))
            lines.append(f"  {_shown(text)}  ->  {_shown(tokens)}")
    return lines


def _shown(text: str) -> str:
    return printable(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…")


def _split_lines(split: Split) -> list[str]:
    dropped = f", {split.corpus.num_blank:,} with a blank side dropped" if split.corpus.num_blank else ""
    left_out = f", {split.num_too_long:,} too long left out" if split.num_too_long else ""
    return [
        f"{split.name}: {len(split):,} pairs ({', '.join(split.corpus.descriptions)}{dropped}{left_out})",
        *_token_lines(split.src_lengths, split.tgt_lengths, split.unknown_shares()),
    ]


def _stream_lines(stream: Stream) -> list[str]:
    window = stream.beginning
    dropped = f", {window.num_blank:,} with a blank side dropped" if window.num_blank else ""
    left_out = f", {window.num_too_long:,} too long left out" if window.num_too_long else ""
    return [
        f"{stream.name}: a stream ({', '.join(stream.descriptions)}), shuffled within {stream.size:,} pairs at a time; "
        "how many there are shows at the end of the first epoch",
        f"  its first window: {len(window):,} pairs{dropped}{left_out}",
        *_token_lines(window.src_lengths, window.tgt_lengths, stream.unknown_shares()),
    ]


def _token_lines(src: NDArray[np.int32], tgt: NDArray[np.int32], unknown: tuple[float, float]) -> list[str]:
    return [
        f"  tokens a {side}: {_lengths(lengths)}; unknown {share:.2%}"
        for side, lengths, share in (("source", src, unknown[0]), ("target", tgt, unknown[1]))
    ]


def _lengths(lengths: NDArray[np.int32]) -> str:
    return f"mean {lengths.mean():.1f}, 99 % up to {int(np.percentile(lengths, 99))}, longest {int(lengths.max())}"


def _advice(config: RunConfig) -> str:
    if config.tokenizer.kind == "word":
        return (
            "Is the text in a script without spaces, or from another language than the training split? "
            "Use tokenizer.kind: bpe, which knows every text; or give words more room with tokenizer.vocab_size and "
            "tokenizer.min_frequency."
        )
    return "Check that the training and the validation split are the same languages."
