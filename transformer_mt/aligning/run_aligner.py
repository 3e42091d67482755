"""The aligner of a run: trained on the run's own pairs at its first use, and kept in the run's folder."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from transformer_mt.aligning.aligner import Aligner, Pair
from transformer_mt.aligning.find_kernels import compiled_kernels
from transformer_mt.config.loading import read_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.batches.stream_window import stream_pairs
from transformer_mt.data.cache import key_of
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.sources.files import reading
from transformer_mt.data.sources.kinds import sources_of
from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.storage.files import replace_file, replace_folder, written_to
from transformer_mt.storage.manifest import DamagedError
from transformer_mt.storage.run_folder import RunFolder

CORPUS = "corpus.json"  # what the aligner was trained on
MOST_PAIRS = 500_000  # more make alignments hardly better, and take time and memory at the first use
NUM_ITERATIONS = 5
Remark = Callable[[str], None]


class _TrainingPairs(NamedTuple):
    """The pairs that an aligner is trained on, in words for a person, and what tells them from others."""

    pairs: Iterator[Pair]
    description: str
    fingerprint: str


def aligner_of_run(run: RunFolder, remark: Remark) -> Aligner:
    """The aligner in the run's folder. It is trained on the run's training pairs where there is none, where its files
    are damaged, and where the pairs are others than they were.

    `remark` gets a sentence on whatever takes time. Where the pairs can no longer be read, the aligner that is there
    is taken. Raises UserError where there is none either, and where the folder cannot be written.
    """
    path = run.aligner
    if not exists(path):
        return train_run_aligner(run, remark)
    try:
        aligner = Aligner.load(path)
    except DamagedError as error:
        remark(f"{error.what} The aligner is made again.")
        return train_run_aligner(run, remark)
    if not _is_current(run):
        remark(f"The training pairs of {run.path} are others than those of its aligner, which is made again.")
        return train_run_aligner(run, remark)
    return aligner


def train_run_aligner(run: RunFolder, remark: Remark) -> Aligner:
    """Train an aligner on the run's pairs and put it into the run's folder, in the place of another.

    Raises UserError where the pairs cannot be read or the folder cannot be written. Of two processes that do this at
    once, one writes last, and either leaves a whole aligner.
    """
    config = read_config(run.config)
    outline = _outline(config)
    training = _training_pairs(config)
    slowly = "" if compiled_kernels() else "; numba does not work here, so this takes some 20 times as long"
    remark(f"training an aligner on {training.description} of {run.path}, once{slowly}")
    start = time.perf_counter()
    with tqdm(total=2 * NUM_ITERATIONS, desc="Training the aligner", unit=" passes", leave=False, disable=None) as bar:
        aligner = Aligner.train(training.pairs, num_iterations=NUM_ITERATIONS, progress=bar.update)
    _keep(aligner, run, {"fingerprint": training.fingerprint, "outline": outline})
    remark(f"the aligner is in {run.aligner}; it took {time.perf_counter() - start:.1f} s")
    return aligner


def _keep(aligner: Aligner, run: RunFolder, corpus: dict[str, str]) -> None:
    def write(folder: Path) -> None:
        aligner.write(folder)
        (folder / CORPUS).write_text(json.dumps(corpus) + "\n", encoding="utf-8")

    with written_to("aligner", run.aligner, run.path):
        replace_folder(run.aligner, write)


def _is_current(run: RunFolder) -> bool:
    """Whether the aligner was trained on the pairs that the run's config names now. True also where these cannot be
    read: a run needs nothing but its folder.

    Files of the same size that were not written since are taken for the same; only others are read.
    """
    path = run.aligner / CORPUS
    try:
        was = json.loads(path.read_text(encoding="utf-8"))
        before = was["outline"], was["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    with suppress(UserError):
        config = read_config(run.config)
        outline = _outline(config)
        if outline == before[0]:
            return True
        if _training_pairs(config).fingerprint != before[1]:
            return False
        with suppress(OSError):  # it only saves time later
            replace_file(path, json.dumps({"fingerprint": before[1], "outline": outline}) + "\n")
    return True


def _outline(config: RunConfig) -> str:
    """A hash of what is known of the sources before they are read: settings, sizes and times of files."""
    sources = sources_of(_untagged(config.data), config.data)
    times = []
    for path in (path for source in sources for path in source.files()):
        with reading(path):
            times.append(path.stat().st_mtime_ns)
    return key_of([config.data.streaming, [source.outline() for source in sources], times])


def _training_pairs(config: RunConfig) -> _TrainingPairs:
    """Up to `MOST_PAIRS` of the run's pairs: from all over a corpus, or the first of a stream."""
    if config.data.streaming:
        sources = sources_of(_untagged(config.data), config.data)
        first = islice(stream_pairs(sources), MOST_PAIRS)
        pairs = ((pair.src, pair.tgt) for _, pair in first if not (is_beyond(pair.src) or is_beyond(pair.tgt)))
        return _TrainingPairs(pairs, f"up to {MOST_PAIRS:,} pairs", _outline(config))
    corpus = load_corpus(_untagged(config.data), config.data)
    every = -(-len(corpus) // MOST_PAIRS)
    description = f"the {len(corpus):,} pairs" if every == 1 else f"one in {every} of the {len(corpus):,} pairs"
    return _TrainingPairs(islice(corpus, 0, None, every), description, corpus.fingerprint)


def _untagged(data: DataConfig) -> list[SourceConfig]:
    """The training sources without their tags, which are no words of either side."""
    return [source.model_copy(update={"tag": None}) for source in data.train]
