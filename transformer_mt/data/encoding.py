"""From a corpus of text to ids: tokenizers trained on it, its pairs encoded, both cached by content and settings."""

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.data.cache import Counts, cache_folder, cached, key_of
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.id_file import IdColumn, IdWriter
from transformer_mt.data.make_tokenizers import load_tokenizer
from transformer_mt.data.pictures.pictures import Pictures, is_kept_picture
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.data.vocabulary.sizes import Texts, chosen_tokenizers
from transformer_mt.errors import UserError
from transformer_mt.machine.workers import on_all_cores
from transformer_mt.storage.manifest import check_manifest, write_manifest
from transformer_mt.storage.run_folder import TOKENIZERS

if TYPE_CHECKING:
    import pyarrow as pa

Encoded = tuple[NDArray[np.int32], NDArray[np.int64]]  # what `Tokenizer.encode_flat` gives
# Raise these whenever the same text and settings would give other tokenizers, or other ids or files of ids.
FORMAT_VERSION = 2  # one more for unigram
IDS_VERSION = 3
SRC, TGT = TOKENIZERS


@dataclass(frozen=True)
class EncodedCorpus:
    """Both sides as ids, without special tokens, row by row as in the corpus; and how many of them are UNK."""

    src: IdColumn
    tgt: IdColumn
    num_unknown_src: int
    num_unknown_tgt: int

    def __len__(self) -> int:
        return len(self.src)


def too_long(where: str, num_src: int, num_tgt: int, max_len: int) -> UserError:
    """What to raise for a pair of so many tokens (EOS not counted), where pairs that do not fit are not left out."""
    return UserError(
        f"{where}: {num_src + 1:,} source and {num_tgt + 1:,} target tokens (EOS counted), model.max_len is {max_len}. "
        "Shorten the pair, raise model.max_len, or set data.too_long: filter."
    )


def corpus_tokenizers(corpus: Corpus, config: TokenizerConfig, data: DataConfig) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer trained on this corpus, by this call or by an earlier one."""
    kinds = ["picture"] if data.source_as == "picture" else []
    if config.joint and any(source.config.mono for source in corpus.sources):
        kinds.append("once")  # tokenizers that an earlier version learned had each line twice
    version = FORMAT_VERSION + (config.kind == "unigram")
    learned_by = config.model_dump(exclude={"bpe_dropout", "bpe_dropout_sides"})  # which change what is done with them
    key = key_of([version, hf.__version__, corpus.fingerprint, learned_by, *kinds])

    def write(folder: Path) -> Counts:
        save_tokenizers(folder, *learned_tokenizers(partial(corpus.texts, once=config.joint), config, data))
        return {}

    return cached(cache_folder(data) / "tokenizers" / key, write, lambda folder: load_tokenizers(folder, config))[0]


def learned_tokenizers(texts: Texts, config: TokenizerConfig, data: DataConfig) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer; that of the target twice where the source is drawn, and so has none."""
    return chosen_tokenizers(*learned_from(texts, config, data))


def learned_from(texts: Texts, config: TokenizerConfig, data: DataConfig) -> tuple[Texts, TokenizerConfig]:
    """The texts and settings that tokenizers are learned from: where the source is drawn, one for the targets alone."""
    if data.source_as == "text":
        return texts, config
    return (lambda side: texts(side) if side else ()), config.model_copy(update={"joint": True})


def save_tokenizers(folder: Path, src: Tokenizer, tgt: Tokenizer) -> None:
    """Write `src.json` and `tgt.json`, the same twice where the vocabulary is joint, and then their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    src.save(folder / SRC)
    tgt.save(folder / TGT)
    write_manifest(folder, [SRC, TGT])


def load_tokenizers(
    folder: Path, config: TokenizerConfig, way_out: str = "Put back a copy of it, or train again."
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers that `save_tokenizers` wrote; one and the same object where the vocabulary is joint.

    Raises UserError, with `way_out`, where a file is missing or was changed.
    """
    check_manifest(folder, [SRC, TGT], way_out)
    if is_kept_picture(folder / SRC):
        return Pictures.load(folder / SRC, way_out), load_tokenizer(folder / TGT, config, way_out)
    src = load_tokenizer(folder / SRC, config, way_out)
    return src, src if config.joint else load_tokenizer(folder / TGT, config, way_out)


def encode_corpus(corpus: Corpus, src: Tokenizer, tgt: Tokenizer, data: DataConfig) -> EncodedCorpus:
    """Ids of every pair, mapped into memory. A second call with the same text and tokenizers is immediate."""
    identity = [_identity(tokenizer) for tokenizer in (src, tgt)]
    key = key_of([IDS_VERSION, hf.__version__, corpus.fingerprint, identity])

    def read(folder: Path) -> tuple[IdColumn, IdColumn]:
        of_src = IdColumn.mapped(folder, "src", src.vocab_size, pixels_of(src))
        return of_src, IdColumn.mapped(folder, "tgt", tgt.vocab_size)

    entry = cache_folder(data) / "encoded" / key
    columns, counts = cached(entry, lambda folder: _write_ids(folder, corpus, src, tgt), read)
    return EncodedCorpus(*columns, counts["num_unknown_src"], counts["num_unknown_tgt"])


def _identity(tokenizer: Tokenizer) -> list:
    """What tells a tokenizer from others."""
    if isinstance(tokenizer, Pictures):
        from PIL import __version__ as pillow

        return [tokenizer.settings, pillow]
    return [tokenizer.backend.to_str(), type(tokenizer).__name__, tokenizer.lowercase, *sorted(tokenizer.tags)]


def pixels_of(tokenizer: Tokenizer) -> int:
    """Of what the tokenizer makes of a text: those of a patch, or 0 for ids."""
    return tokenizer.patches.pixels if isinstance(tokenizer, Pictures) else 0


def _write_ids(folder: Path, corpus: Corpus, src: Tokenizer, tgt: Tokenizer) -> Counts:
    from tqdm import tqdm

    def encode(batch: "pa.RecordBatch") -> list[Encoded]:
        return [tokenizer.encode_flat(batch.column(side).to_pylist()) for side, tokenizer in enumerate((src, tgt))]

    counts = {"num_unknown_src": 0, "num_unknown_tgt": 0}
    bar = tqdm(total=len(corpus), desc="Tokenizing", unit=" pairs", leave=False, disable=None)
    encoded = closing(on_all_cores(encode, corpus.batches(), "tokenizing"))
    writers = (
        IdWriter(folder, name, tokenizer.vocab_size, pixels_of(tokenizer))
        for name, tokenizer in (("src", src), ("tgt", tgt))
    )
    with bar, next(writers) as src_writer, next(writers) as tgt_writer, encoded as batches:
        for batch in batches:
            for side, writer, (ids, lengths) in zip(("src", "tgt"), (src_writer, tgt_writer), batch, strict=True):
                unknown = ids == UNK_ID
                counts[f"num_unknown_{side}"] += int((unknown.any(axis=1) if unknown.ndim == 2 else unknown).sum())
                writer.write(ids, lengths)
            bar.update(len(batch[0][1]))
    return counts
