"""The aligner of a run: trained on the run's own pairs at its first use, and kept in the run's folder."""

import time
from collections.abc import Callable, Iterator
from itertools import islice

from tqdm import tqdm

from transformer_mt.aligning.aligner import Aligner, Pair
from transformer_mt.aligning.find_kernels import compiled_kernels
from transformer_mt.config.loading import read_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.batches.stream_window import stream_pairs
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.sources.kinds import sources_of_pairs, those_of_pairs
from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.storage.files import written_to
from transformer_mt.storage.manifest import DamagedError
from transformer_mt.storage.run_folder import RunFolder

MOST_PAIRS = 500_000  # more make alignments hardly better, and take time and memory at the first use
NUM_ITERATIONS = 5
Remark = Callable[[str], None]


def aligner_of_run(run: RunFolder, remark: Remark) -> Aligner:
    """The aligner in the run's folder. It is trained on the run's training pairs where there is none, and where its
    files are damaged.

    `remark` gets a sentence on whatever takes time, and where the folder cannot be written: the aligner is then not
    kept. Raises UserError where it has to be trained and the pairs cannot be read.
    """
    if exists(run.aligner):
        try:
            return Aligner.load(run.aligner)
        except DamagedError as error:
            remark(f"{error.what} The aligner is made again.")
    aligner, seconds = _trained(run, remark)
    try:
        _keep(aligner, seconds, run, remark)
    except UserError as error:
        remark(f"{error} It is used this once.")
    return aligner


def train_run_aligner(run: RunFolder, remark: Remark) -> Aligner:
    """Train an aligner on the run's pairs and put it into the run's folder, in the place of another.

    Raises UserError where the pairs cannot be read or the folder cannot be written. Of two processes that do this at
    once, one writes last, and either leaves a whole aligner.
    """
    aligner, seconds = _trained(run, remark)
    _keep(aligner, seconds, run, remark)
    return aligner


def _trained(run: RunFolder, remark: Remark) -> tuple[Aligner, float]:
    """The aligner, and the seconds that it took."""
    pairs, description = _training_pairs(read_config(run.config))
    slowly = "" if compiled_kernels() else "; numba does not work here, so this takes some 20 times as long"
    remark(f"training an aligner on {description} of {run.path}, once{slowly}")
    start = time.perf_counter()
    with tqdm(total=2 * NUM_ITERATIONS, desc="Training the aligner", unit=" passes", leave=False, disable=None) as bar:
        aligner = Aligner.train(pairs, num_iterations=NUM_ITERATIONS, progress=bar.update)
    return aligner, time.perf_counter() - start


def _keep(aligner: Aligner, seconds: float, run: RunFolder, remark: Remark) -> None:
    with written_to("aligner", run.aligner, run.path):
        aligner.save(run.aligner)
    remark(f"the aligner is in {run.aligner}; it took {seconds:.1f} s")


def _training_pairs(config: RunConfig) -> tuple[Iterator[Pair], str]:
    """Up to `MOST_PAIRS` of the run's pairs, from all over a corpus or the first of a stream, and what they are."""
    if config.data.streaming:
        sources = sources_of_pairs(_untagged(config.data), config.data)
        first = islice(stream_pairs(sources), MOST_PAIRS)
        pairs = ((pair.src, pair.tgt) for _, pair in first if not (is_beyond(pair.src) or is_beyond(pair.tgt)))
        return pairs, f"up to {MOST_PAIRS:,} pairs"
    corpus = load_corpus(_untagged(config.data), config.data)
    every = -(-len(corpus) // MOST_PAIRS)
    description = f"the {len(corpus):,} pairs" if every == 1 else f"one in {every} of the {len(corpus):,} pairs"
    return islice(corpus, 0, None, every), description


def _untagged(data: DataConfig) -> list[SourceConfig]:
    """The training sources of pairs without their tags, which are no words of either side."""
    return [source.model_copy(update={"tag": None}) for source in those_of_pairs(data.train)]
