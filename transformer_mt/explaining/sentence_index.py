"""The training sources as vectors of the model's own space, on the disk, and the nearest of them to a sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from transformer_mt.config.special_ids import EOS_ID, PAD_ID
from transformer_mt.data.batches.batching import pad_rows
from transformer_mt.data.cache import Counts
from transformer_mt.data.corpus import Corpus
from transformer_mt.decoding.translator import Translator
from transformer_mt.model.decoder_only import DecoderOnly
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.recurrent.rnn import Rnn
from transformer_mt.model.stack import positions_of
from transformer_mt.model.transformer import Transformer

VECTORS = "vectors.npy"
VERSION = 1  # raise it whenever the same pairs and weights would give other vectors
MOST_PAIRS = 500_000  # of more, one in so many: a gigabyte at d_model 1024
TEXTS_AT_ONCE, TOKENS_AT_ONCE, ROWS_AT_ONCE = 4096, 8192, 65_536


@torch.inference_mode()
def pooled(model: TranslationModel, rows: Sequence[Sequence[int]]) -> Tensor:
    """Sources as ids without special tokens -> (sources, d): the mean of the encoder's states over the tokens, EOS left
    out, at length 1. Of a decoder-only model these are the states of the source's part of the stream; of a recurrent
    network those of both directions.
    """
    src = pad_rows([[*row, EOS_ID] for row in rows]).to(next(model.parameters()).device)
    if isinstance(model, Transformer):
        states, _ = model.encode(src)
    elif isinstance(model, DecoderOnly):
        states = model.decoder(src, positions_of(src).expand_as(src))
    else:
        assert isinstance(model, Rnn)
        states, _ = model.encoder(src)
    is_token = (src != PAD_ID) & (src != EOS_ID)
    mean = (states.float() * is_token[..., None]).sum(dim=1) / is_token.sum(dim=1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=1).cpu()


@dataclass(frozen=True)
class SentenceIndex:
    """A vector of each `every`-th pair of a corpus, in order. A source that the model cannot read has zeros."""

    vectors: NDArray[np.float16]
    every: int

    def nearest(self, query: NDArray[np.float32], number: int) -> list[tuple[int, float]]:
        """Rows of the corpus and the cosine of each, the largest first; some tens of megabytes at once."""
        best: list[tuple[float, int]] = []
        for start in range(0, len(self.vectors), ROWS_AT_ONCE):
            block = self.vectors[start : start + ROWS_AT_ONCE].astype(np.float32)
            cosines = np.where(block.any(axis=1), block @ query, -np.inf)
            top = np.argsort(-cosines, kind="stable")[:number]
            best += [(-float(cosines[row]), start + int(row)) for row in top if np.isfinite(cosines[row])]
            best = sorted(best)[:number]
        return [(row * self.every, -cosine) for cosine, row in best]


def write_index(folder: Path, translator: Translator, corpus: Corpus) -> Counts:
    """Write the vectors of a corpus into a folder that is there, in bounded memory. Returns of how many pairs one was
    taken, as `every`.
    """
    every = -(-len(corpus) // MOST_PAIRS)
    number = -(-len(corpus) // every)
    width = pooled(translator.model, [[EOS_ID + 1]]).size(1)
    vectors = np.lib.format.open_memmap(folder / VECTORS, mode="w+", dtype=np.float16, shape=(number, width))
    texts = islice((src for src, _ in corpus), 0, None, every)
    start = 0
    with tqdm(total=number, desc="Indexing training pairs", unit=" pairs", leave=False, disable=None) as bar:
        while block := list(islice(texts, TEXTS_AT_ONCE)):
            vectors[start : start + len(block)] = _vectors_of(block, translator, width)
            start += len(block)
            bar.update(len(block))
    vectors.flush()
    del vectors
    return {"every": every}


def read_vectors(folder: Path) -> NDArray[np.float16]:
    """The vectors of an index, mapped into memory."""
    return np.load(folder / VECTORS, mmap_mode="r")


def _vectors_of(texts: list[str], translator: Translator, width: int) -> NDArray[np.float32]:
    """Texts of like length go through the model together."""
    rows = translator.src_tokenizer.encode_batch(texts)
    found = np.zeros((len(texts), width), np.float32)
    for batch in _batches(rows, translator.config.model.max_len):
        found[batch] = pooled(translator.model, [rows[i] for i in batch]).numpy()
    return found


def _batches(rows: list[list[int]], max_len: int) -> Iterator[list[int]]:
    """The numbers of the rows that the model can read, in batches of at most `TOKENS_AT_ONCE` positions."""
    order = sorted((i for i, row in enumerate(rows) if 0 < len(row) < max_len), key=lambda i: -len(rows[i]))
    while order:
        number = max(1, TOKENS_AT_ONCE // (len(rows[order[0]]) + 1))
        yield order[:number]
        order = order[number:]
