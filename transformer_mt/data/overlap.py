"""How many validation sentences the training split holds too, which makes scores look better than they are."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.data.cache import Counts, cache_folder, cached, key_of
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.tokenizers import normalize

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION = 3  # raise it whenever the same texts would give other counts
# Capitals that Arrow makes small letter by letter, and Python by rules: a sigma at the end of a word, Turkish dotted I.
OF_THEIR_OWN = "[\u03a3\u0130]"


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
    import pyarrow as pa
    from pyarrow import compute

    pc: Any = compute  # makes its functions when it is imported, where no type checker sees them
    wanted = [pa.chunked_array(side) for side in zip(*_sides(validation, lowercase), strict=True)]
    known: list[Any] = [side.unique() for side in wanted]
    found = [np.zeros(len(side), np.bool_) for side in known]
    for texts in _sides(train, lowercase):
        for side in (0, 1):
            places = pc.index_in(texts[side], value_set=known[side])
            found[side][places.drop_null().to_numpy()] = True
    return {
        name: int(found[side][pc.index_in(wanted[side], value_set=known[side]).to_numpy()].sum())
        for side, name in enumerate(("src", "tgt"))
    }


def _sides(corpus: Corpus, lowercase: bool) -> Iterator[tuple["pa.Array", "pa.Array"]]:
    """Sources and targets of some thousand pairs at a time, as they are compared."""
    for batch in corpus.batches():
        yield as_read(_untagged(batch, corpus), lowercase), as_read(batch.column(1), lowercase)


def _untagged(batch: "pa.RecordBatch", corpus: Corpus) -> "pa.Array":
    """The sources without the tags that the config put before them: of two splits one may have a tag that the other
    has not.
    """
    from pyarrow import compute

    pc: Any = compute
    texts: Any = batch.column(0)
    for number, source in enumerate(corpus.sources):
        if source.config.tag is not None:
            start = len(source.config.tag) + len(" ")
            is_own = pc.equal(batch.column(2), number)
            texts = pc.if_else(is_own, pc.utf8_slice_codeunits(texts, start), texts)
    return texts


def as_read(column: "pa.Array", lowercase: bool) -> "pa.Array":
    """What `tokenizers.normalize` makes of each text, as Arrow computes it: ten times as fast."""
    import pyarrow as pa
    from pyarrow import compute

    pc: Any = compute
    text = pc.utf8_lower(column) if lowercase else column
    text = pc.utf8_trim_whitespace(pc.utf8_normalize(text, form="NFC"))
    text = pc.binary_join(pc.utf8_split_whitespace(text), " ")
    if lowercase and (is_odd := pc.match_substring_regex(column, OF_THEIR_OWN)).true_count:
        odd = [normalize(one, lowercase) for one in column.filter(is_odd).to_pylist()]
        text = pc.replace_with_mask(text, is_odd, pa.array(odd, text.type))
    return text
