"""How many validation sentences the training split holds too, which makes scores look better than they are."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.data.cache import Counts, cache_folder, cached, key_of
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.tokenizers import normalize

FORMAT_VERSION = 4  # raise it whenever the same texts would give other counts


class Overlap(NamedTuple):
    """How many sources and how many targets of the validation stand in the training split, out of `num_pairs`."""

    num_src: int
    num_tgt: int
    num_pairs: int


def find_overlap(train: Corpus, validation: Corpus, lowercase: bool, data: DataConfig) -> Overlap:
    """Counts the validation sentences that are in the training split too.

    Sentences are equal where training reads them as equal: in NFC, with single spaces, with `lowercase` whatever their
    case. The tag of a source of the config is no part of them. The validation is in memory as a whole, the training
    some thousand texts at a time. A second call with the same texts is immediate.
    """
    key = key_of([FORMAT_VERSION, train.fingerprint, validation.fingerprint, lowercase])
    entry = cache_folder(data) / "overlaps" / key
    _, counts = cached(entry, lambda folder: _count(train, validation, lowercase), lambda folder: None)
    return Overlap(counts["src"], counts["tgt"], len(validation))


def _count(train: Corpus, validation: Corpus, lowercase: bool) -> Counts:
    """How many sentences of the validation are among those of the training, by side."""
    wanted = [list(chain.from_iterable(side)) for side in zip(*_sides(validation, lowercase), strict=True)]
    known, found = [set(side) for side in wanted], [set[str](), set[str]()]
    for texts in _sides(train, lowercase):
        for side in (0, 1):
            found[side] |= known[side].intersection(texts[side])
    return {name: sum(text in found[side] for text in wanted[side]) for side, name in enumerate(("src", "tgt"))}


def _sides(corpus: Corpus, lowercase: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Sources and targets of some thousand pairs at a time, as they are compared: sources without the tags that the
    config put before them, since of two splits one may have a tag that the other has not.
    """
    tags = [source.config.tag for source in corpus.sources]
    starts = [len(tag) + len(" ") if tag is not None else 0 for tag in tags]
    for batch in corpus.batches():
        src, tgt, of_source = (column.to_pylist() for column in batch.columns[:3])
        src = [text[starts[number] :] for text, number in zip(src, of_source, strict=True)]
        yield [normalize(text, lowercase) for text in src], [normalize(text, lowercase) for text in tgt]
