"""The training pairs nearest to a sentence. Their index is made at the first use and kept in the cache of corpora."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.data.cache import Counts, cache_folder, cached, key_of
from transformer_mt.data.corpus import Corpus, load_corpus
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.explaining.sentence_index import VERSION, SentenceIndex, pooled, read_vectors, write_index
from transformer_mt.storage.manifest import MANIFEST, digest

SPARE = 20  # rows looked at for each pair wanted: the same pair may come many times
Remark = Callable[[str], None]


@dataclass(frozen=True)
class Neighbour:
    """A training pair, where it stands, and the cosine of its source with the sentence."""

    cosine: float
    where: str
    src: str
    tgt: str


def neighbours(translator: Translator, src: list[int], number: int, remark: Remark) -> list[Neighbour]:
    """The `number` nearest training pairs of a source given as ids, the nearest first, none of them twice.

    `remark` gets a sentence on whatever takes time. UserError where the pairs cannot be read any more, or the index
    cannot be written.
    """
    config = translator.config
    if config.data.streaming:
        raise UserError("The run's data.streaming is on, so its pairs have no places. Look for them in its files.")
    corpus = load_corpus(config.data.train, config.data.model_copy(update={"too_long": "filter"}))
    index = _index(translator, corpus, remark)
    query = pooled(translator.model, [src])[0].numpy()
    found: dict[tuple[str, str], Neighbour] = {}
    for row, cosine in index.nearest(query, number * SPARE):
        pair = corpus.dataset[row]
        texts = pair["src"], pair["tgt"]
        if texts not in found and len(found) < number:
            found[texts] = Neighbour(cosine, corpus.where(row), *texts)
    return list(found.values())


def _index(translator: Translator, corpus: Corpus, remark: Remark) -> SentenceIndex:
    """The index of these pairs and weights. It is made where the cache of corpora has none."""
    _, checkpoint = translator.checkpoints[0]
    key = key_of([VERSION, corpus.fingerprint, digest(checkpoint / MANIFEST)])
    entry = cache_folder(translator.config.data) / "neighbours" / key

    def write(folder: Path) -> Counts:
        remark(f"making an index of the {len(corpus):,} training pairs, once")
        start = time.perf_counter()
        counts = write_index(folder, translator, corpus)
        remark(f"the index took {time.perf_counter() - start:.1f} s; it is kept in {entry}")
        return counts

    vectors, counts = cached(entry, write, read_vectors)
    return SentenceIndex(vectors, counts["every"])
