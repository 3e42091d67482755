"""Everything that stands between the sources of a config and the first batch, and the report on it."""

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.data.batches.batching import Batch, Rows, plan_batches
from transformer_mt.data.batches.forms import AS_PAIRS, Form
from transformer_mt.data.batches.plan import WholePlan
from transformer_mt.data.batches.stream import Stream
from transformer_mt.data.batches.stream_window import NUM_SHOWN, Head
from transformer_mt.data.corpus import Corpus, load_corpus
from transformer_mt.data.encoding import EncodedCorpus, corpus_tokenizers, encode_corpus, learned_tokenizers, too_long
from transformer_mt.data.left_out import LeftOut, left_out_lines, positions_for_most, refuse_to_leave_out
from transformer_mt.data.mixture import Mixture
from transformer_mt.data.overlap import Overlap, find_overlap
from transformer_mt.data.pictures.pictures import Pictures
from transformer_mt.data.sources.files import NoRootError, open_plain
from transformer_mt.data.sources.kinds import source_of, sources_of
from transformer_mt.data.tokenizers import Tokenizer, WordTokenizer
from transformer_mt.data.vocabulary.sizes import Texts
from transformer_mt.data.word_splitting import printable
from transformer_mt.errors import UserError
from transformer_mt.plurals import counted

LARGEST_UNKNOWN_SHARE = 0.5
WORTH_A_HINT = 0.1
LARGEST_SEEN_SHARE = 0.05  # of the validation's sources, in the training too
INTERRUPTED = (
    "The data was being prepared, and no run was begun or changed. Start again by the same command; what was prepared "
    "as a whole is in the cache."
)
MOST_SHOWN = 500  # characters of each side


@dataclass(frozen=True)
class Split:
    """The pairs of one split that fit the model. `rows` are their places in corpus and ids, `form` is that of their
    batches.
    """

    name: str
    corpus: Corpus
    ids: EncodedCorpus
    rows: Rows
    form: Form = AS_PAIRS

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_too_long(self) -> int:
        """Pairs that the model has no positions for, including those that are too long for any model."""
        return self.corpus.num_beyond + len(self.ids) - len(self.rows)

    @cached_property
    def src_lengths(self) -> NDArray[np.int32]:
        """Lengths of x + EOS, a number a row."""
        return self.ids.src.lengths[self.rows] + 1

    @cached_property
    def tgt_lengths(self) -> NDArray[np.int32]:
        """How many target tokens each row has: the length of y + EOS, or of the tokens that are told in place."""
        return self.form.num_targets(self.ids.tgt)[self.rows]

    def batch(self, indices: Rows) -> Batch:
        """The pairs at these places among `rows`, padded."""
        rows = self.rows[indices] if len(self.rows) < len(self.ids) else indices
        return self.form.batch_of(self.ids.src.gather(rows), self.ids.tgt.gather(rows))

    def where(self, index: int) -> str:
        """Where the pair at this place among `rows` stands: `file.en / file.de, line 17`."""
        return self.corpus.where(int(self.rows[index]))

    def plan(self, max_tokens: int, seed: int, epoch: int) -> WholePlan:
        """The micro-batches of an epoch."""
        plan = self.mixture.plan if self.mixture else plan_batches
        return WholePlan(plan(self.src_lengths, self.tgt_lengths, max_tokens, seed, epoch))

    @cached_property
    def mixture(self) -> Mixture | None:
        """How the sources share the batches; None where they have neither weights nor a temperature."""
        temperature = self.corpus.sources[0].data.temperature if self.name == "train" else None
        return Mixture.of(self.corpus, self.rows, temperature)

    def identity(self) -> dict[str, str | int]:
        """What tells these pairs from others."""
        return {"fingerprint": self.corpus.fingerprint, "num_pairs": self.corpus.num_read}

    def texts(self, indices: list[int]) -> tuple[list[str], list[str]]:
        """Raw source and target texts of the pairs at these places among `rows`."""
        pairs = self.corpus.dataset[self.rows[indices].tolist()]
        return list(pairs["src"]), list(pairs["tgt"])

    @property
    def left_out(self) -> LeftOut:
        """The pairs that the model has no positions for, among those with two sides."""
        enough = positions_for_most(self.ids.src.lengths, self.ids.tgt.lengths) if self.num_too_long else 1
        return LeftOut(self.num_too_long, self.corpus.num_beyond + len(self.ids), enough)

    def sample_texts(self, number: int, seed: int) -> list[tuple[str, str]]:
        """Raw source and target text of so many pairs from all over the split, or of all where there are fewer."""
        rows = np.random.default_rng(seed).choice(len(self), min(number, len(self)), replace=False)
        return list(zip(*self.texts(sorted(rows.tolist())), strict=True))

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
    """What training reads. The training split may be a stream."""

    train: Split | Stream
    validation: Split
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    seed: int
    overlap: Overlap | None  # None: not known, since the training is a stream


@dataclass(frozen=True)
class PreparedData(TrainingData):
    """Training data of which both splits are whole."""

    train: Split


Tokenizers = tuple[Tokenizer, Tokenizer]  # of the source and of the target


def prepare_training_data(config: RunConfig, tokenizers: Tokenizers | None = None) -> TrainingData:
    """What `prepare_data` gives; with `data.streaming`, the training split is a stream that is read later.

    Raises UserError as `prepare_data` does; of a stream only the beginning is checked.
    """
    try:
        check_test_files(config.data)
        return _prepare_stream(config, tokenizers) if config.data.streaming else prepare_data(config, tokenizers)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(INTERRUPTED) from None


def with_pictures(config: RunConfig, learned: Tokenizers) -> Tokenizers:
    """What was learned; where the source is a picture, what draws it in the first place."""
    return learned if config.data.source_as == "text" else (Pictures.of(config), learned[1])


def check_test_files(data: DataConfig) -> None:
    """Raise UserError where a file of `data.test` is missing or cannot be opened, before hours of training."""
    for source in data.test:
        try:
            for path in source_of(source, data).files():
                with open_plain(path) as file:
                    file.read(1)
        except NoRootError:
            raise  # training and validation are missing too
        except UserError as error:
            raise UserError(f"data.test: {error} Or train without it: data.test=[].") from error


def _prepare_stream(config: RunConfig, tokenizers: Tokenizers | None) -> TrainingData:
    src, tgt = tokenizers or with_pictures(
        config, learned_tokenizers(training_texts(config), config.tokenizer, config.data)
    )
    validation = _validation(config, src, tgt)
    stream = Stream(config, src, tgt)
    refuse_to_leave_out("first training", stream.beginning.left_out, config)
    _refuse_another_script(stream, src)
    return TrainingData(stream, validation, src, tgt, config.seed, None)


def prepare_data(config: RunConfig, tokenizers: Tokenizers | None = None) -> PreparedData:
    """Load, tokenize and filter both splits. Tokenizers are trained on the training split unless given.

    Raises UserError for sources that cannot be read, for a split of which nothing fits the model, and where more than
    half of the validation target's words are unknown to the vocabulary: such a model could not say what it should.
    """
    corpus = load_corpus(config.data.train, config.data, mono=True)
    src, tgt = tokenizers or with_pictures(config, corpus_tokenizers(corpus, config.tokenizer, config.data))
    train = load_split("train", corpus, src, tgt, config)
    refuse_to_leave_out("training", train.left_out, config)
    _refuse_another_script(train, src)
    if train.mixture:
        train.mixture.refuse_empty()
    validation = _validation(config, src, tgt)
    overlap = find_overlap(corpus, validation.corpus, config.tokenizer.lowercase, config.data)
    return PreparedData(train, validation, src, tgt, config.seed, overlap)


def _validation(config: RunConfig, src: Tokenizer, tgt: Tokenizer) -> Split:
    """The validation split, which is never a stream; UserError where most of its target's words are not known."""
    split = load_split("validation", load_corpus(config.data.validation, config.data, mono=True), src, tgt, config)
    refuse_to_leave_out("validation", split.left_out, config)
    _refuse_another_script(split, src)
    unknown = split.unknown_target_words(tgt)
    if unknown > LARGEST_UNKNOWN_SHARE:
        raise UserError(
            f"{unknown:.0%} of the validation target's words are not in the vocabulary ({tgt.vocab_size:,} entries), "
            f"so no model could produce them. {_advice(config)}"
        )
    return split


def _refuse_another_script(split: Split | Stream, src: Tokenizer) -> None:
    """UserError where the font that draws the sources has not the letters of most of them."""
    if isinstance(src, Pictures) and (unknown := split.unknown_shares()[0]) > LARGEST_UNKNOWN_SHARE:
        raise UserError(
            f"{unknown:.0%} of the patches of data.{split.name}'s sources have characters that {src.font.name} has "
            "not. Name one that has them with data.font, a font's file or the family of an installed one; `fc-list "
            ":lang=hi family` lists those for Hindi, and so on."
        )


def training_texts(config: RunConfig) -> Texts:
    """The texts that tokenizers are trained on: those of the training split, of a stream its first pairs. Where both
    sides have one vocabulary, text in one language comes once.
    """
    read = _head(config) if config.data.streaming else load_corpus(config.data.train, config.data, mono=True)
    return partial(read.texts, once=config.tokenizer.joint)


def _head(config: RunConfig) -> Head:
    """The first pairs of a stream, of which the tokenizers are trained."""
    sources = sources_of(config.data.train, config.data)
    head = Head(sources, config.data.streaming_tokenizer_pairs)
    if next(head.texts(0), None) is None:
        raise UserError(
            f"There is no pair with two sides among the first {config.data.streaming_tokenizer_pairs:,} of "
            f"{', '.join(source.description for source in sources)}. Check that these are the "
            "files you mean."
        )
    return head


def load_split(
    name: str, corpus: Corpus, src: Tokenizer, tgt: Tokenizer, config: RunConfig, way_out: str | None = None
) -> Split:
    """Encode one split, and leave out or refuse pairs that are longer than the model's positions.

    Raises UserError where nothing is left, with `way_out`, or else with a length that holds most.
    """
    ids = encode_corpus(corpus, src, tgt, config.data)
    fits = (ids.src.lengths < config.model.max_len) & (ids.tgt.lengths < config.model.max_len)
    rows = np.flatnonzero(fits)
    if config.data.too_long == "error" and len(rows) < len(ids):
        row = int(np.flatnonzero(~fits)[0])
        raise too_long(corpus.where(row), ids.src.lengths[row], ids.tgt.lengths[row], config.model.max_len)
    if len(rows) == 0:
        enough = positions_for_most(ids.src.lengths, ids.tgt.lengths)
        way_out = way_out or f"Raise it: model.max_len={enough} would hold 99 % of them."
        raise UserError(
            f"Of {counted(len(ids), 'pair')} of {', '.join(corpus.descriptions)}, none fits model.max_len "
            f"{config.model.max_len}. {way_out}"
        )
    return Split(name, corpus, ids, rows)


def report_lines(data: TrainingData, knows_more: str = "tokenizer.kind: bpe knows every text") -> list[str]:
    """What a person should see before the first step: counts, lengths, vocabularies, unknown words, three pairs. Where
    many words are unknown, also what `knows_more`.
    """
    lines = []
    for split in (data.train, data.validation):
        lines += _stream_lines(split) if isinstance(split, Stream) else _split_lines(split)
        if max(split.unknown_shares()) > WORTH_A_HINT and isinstance(data.tgt_tokenizer, WordTokenizer):
            lines.append(f"  many words are unknown; {knows_more}")
    lines += _overlap_lines(data.overlap)
    tokenizers = (data.src_tokenizer, data.tgt_tokenizer)
    if isinstance(data.src_tokenizer, Pictures):
        sizes = data.src_tokenizer.patches
        lines.append(
            f"source: pictures in {data.src_tokenizer.font.name}, {sizes.height} pixels high, cut into patches of "
            f"{sizes.width} columns every {sizes.stride}; vocabulary: target {data.tgt_tokenizer.vocab_size:,}"
        )
    else:
        lines.append("vocabulary: source {:,}, target {:,}".format(*(t.vocab_size for t in tokenizers)))
    for pair in data.train.sample_texts(NUM_SHOWN, data.seed):
        for text, tokenizer in zip(pair, tokenizers, strict=True):
            known = text if isinstance(tokenizer, Pictures) else None  # what stands in each patch
            tokens = " ".join(tokenizer.tokens(tokenizer.encode(text), known))
            lines.append(f"  {printable(text, MOST_SHOWN)}  ->  {printable(tokens, MOST_SHOWN)}")
    return lines


def _split_lines(split: Split) -> list[str]:
    dropped = f", {split.corpus.num_blank:,} with a blank side dropped" if split.corpus.num_blank else ""
    left_out = f", {split.num_too_long:,} too long left out" if split.num_too_long else ""
    return [
        f"{split.name}: {counted(len(split), 'pair')} ({', '.join(split.corpus.descriptions)}{dropped}{left_out})",
        *_token_lines(split.src_lengths, split.tgt_lengths, split.unknown_shares()),
        *left_out_lines(split.left_out),
        *(split.mixture.lines() if split.mixture else []),
    ]


def _stream_lines(stream: Stream) -> list[str]:
    window = stream.beginning
    dropped = f", {window.num_blank:,} with a blank side dropped" if window.num_blank else ""
    left_out = f", {window.num_too_long:,} too long left out" if window.num_too_long else ""
    return [
        f"{stream.name}: a stream ({', '.join(stream.descriptions)}), shuffled within {stream.size:,} pairs at a time; "
        "how many there are shows at the end of the first epoch",
        f"  its first window: {counted(len(window), 'pair')}{dropped}{left_out}",
        *_token_lines(window.src_lengths, window.tgt_lengths, stream.unknown_shares()),
        *left_out_lines(window.left_out),
    ]


def _overlap_lines(overlap: Overlap | None) -> list[str]:
    if overlap is None:
        return ["  of a stream it is not known how many of these sentences are in it too"]
    num_src, num_tgt, num_pairs = overlap
    lines = [f"  in the training split too: {num_src:,} of its {num_pairs:,} sources, {num_tgt:,} of its targets"]
    if num_src / num_pairs > LARGEST_SEEN_SHARE:
        lines.append(
            f"  warning: {num_src / num_pairs:.0%} of the validation's sources are trained on, so its scores are "
            "better than those of new text; `tmt data split` takes a validation out that shares no sentence"
        )
    return lines


def _token_lines(src: NDArray[np.int32], tgt: NDArray[np.int32], unknown: tuple[float, float]) -> list[str]:
    return [
        f"  tokens a {side}: {_lengths(lengths)}; unknown {share:.2%}"
        for side, lengths, share in (("source", src, unknown[0]), ("target", tgt, unknown[1]))
    ]


def _lengths(lengths: NDArray[np.int32]) -> str:
    return f"mean {lengths.mean():.1f}, 99 % up to {int(np.percentile(lengths, 99))}, longest {int(lengths.max())}"


def _advice(config: RunConfig) -> str:
    if config.training.init_from is not None and config.tokenizer.kind == "word":
        return (
            "Is the text in another language than that of training.init_from? If not, vocabulary: extend there adds "
            "the frequent words of data.train; a higher tokenizer.vocab_size and a lower tokenizer.min_frequency make "
            "them more."
        )
    if config.tokenizer.kind == "word":
        return (
            "Is the text in a script without spaces, or from another language than the training split? "
            "Use tokenizer.kind: bpe, which knows every text; or give words more room with tokenizer.vocab_size and "
            "tokenizer.min_frequency."
        )
    return "Check that the training and the validation split are the same languages."
