"""The training pairs nearest to a sentence. Their index is made at the first use and kept in the run's folder."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from transformer_mt.data.corpus import Corpus, load_corpus
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.explaining.sentence_index import SentenceIndex, pooled, read_index, write_index
from transformer_mt.paths import exists
from transformer_mt.storage.files import replace_folder, sweep, written_to
from transformer_mt.storage.manifest import MANIFEST, DamagedError, digest
from transformer_mt.storage.run_folder import RunFolder

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
    pairs = [source for source in config.data.train if not source.mono]  # text in one language has nothing beside it
    corpus = load_corpus(pairs or config.data.train, config.data.model_copy(update={"too_long": "filter"}))
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
    """The index in the run's folder; made anew where there is none, where it is damaged, and for other pairs or
    weights.
    """
    run, checkpoint = translator.checkpoints[0]
    key: dict[str, object] = {"corpus": corpus.fingerprint, "checkpoint": digest(checkpoint / MANIFEST)}
    if exists(run.neighbours):
        try:
            index = read_index(run.neighbours, key)
        except DamagedError as error:
            remark(error.what)
        else:
            if index is not None:
                return index
            remark(f"The index {run.neighbours} is of other pairs or another checkpoint, and is made again.")
    _make(translator, corpus, run, key, remark)
    index = read_index(run.neighbours, key)
    assert index is not None
    return index


def _make(translator: Translator, corpus: Corpus, run: RunFolder, key: dict[str, object], remark: Remark) -> None:
    remark(f"making an index of the {len(corpus):,} training pairs of {run.path}, once")
    start = time.perf_counter()
    with written_to("index", run.neighbours, run.path):
        sweep(run.neighbours)
        replace_folder(run.neighbours, lambda folder: write_index(folder, translator, corpus, key))
    remark(f"the index is in {run.neighbours}; it took {time.perf_counter() - start:.1f} s")
