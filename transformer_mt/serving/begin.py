"""From runs and options to a server that answers."""

import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from transformer_mt.aligning.run_aligner import aligner_of_run
from transformer_mt.aligning.words import normal_form, words_of
from transformer_mt.config.language_names import normal
from transformer_mt.config.loading import read_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.tokenizer import language_of
from transformer_mt.data.sources.kinds import sources_of_pairs
from transformer_mt.errors import UserError
from transformer_mt.machine.device import choose_device
from transformer_mt.machine.listening import address, bound, listen
from transformer_mt.serving.batcher import Batcher
from transformer_mt.serving.chosen import Chosen
from transformer_mt.serving.detection import Detector
from transformer_mt.serving.pool import Pool
from transformer_mt.serving.refusal import Limits
from transformer_mt.serving.search_process import Setup
from transformer_mt.serving.service import Served, Service, options_of
from transformer_mt.serving.web.application import run
from transformer_mt.serving.web.endpoints import Server, key_from
from transformer_mt.serving.web.metrics import Metrics
from transformer_mt.storage.run_folder import RunFolder

MOST_PAIRS = 50_000  # of each source, whose words tell languages apart
MANY_FILES = 10_240  # of one process on macOS, which says that there is no limit and refuses to have none
Remark = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to serve. `num_processes` None: one for each of torch's threads on a CPU, and one on any other device."""

    host: str
    port: int
    limits: Limits
    checkpoint: str | None = None
    device: str = "auto"
    num_processes: int | None = None
    api_key: str | None = None


def serve(runs: Sequence[RunFolder], decoding: dict[str, Any], options: Options, remark: Remark) -> None:
    """Serve the runs until Ctrl-C or SIGTERM. `remark` gets what a person should know, with the address at the end.

    Raises UserError for two runs of the same pair of languages, for options that make no sense, and where a run cannot
    be loaded or the port is taken.
    """
    key = None if options.api_key is None else key_from(options.api_key)
    configs = [read_config(folder.config) for folder in runs]
    refuse_same_pairs(
        [
            Served(i, str(runs[i].path), config, None, direction=direction)
            for i, config in enumerate(configs)
            for direction in directions_of(config)
        ]
    )
    chosen = [Chosen.of(folder, options.checkpoint) for folder in runs]
    for i, config in enumerate(configs):
        options_of(Served(i, "", config, None, decoding=decoding))
        if unused := config.decoding.lines.unused:
            remark(f"{runs[i].path}: {unused}")
    listener = bound(options.host, options.port)
    device = choose_device(options.device).value
    import torch

    num_processes = options.num_processes or (torch.get_num_threads() if device == "cpu" else 1)
    pool = Pool(Setup(chosen, device, decoding), num_processes, partial(renewed, options.checkpoint, remark))
    try:
        pool.begin()
        for folder, note in zip(runs, pool.wait_until_ready(), strict=True):  # before an aligner is trained
            if note:
                remark(f"{folder.path}: {note}")
        served = [one for i, folder in enumerate(runs) for one in _served(i, folder, configs[i], decoding, remark)]
        batch_size = decoding.get("batch_size") or max(config.decoding.batch_size for config in configs)
        batcher = Batcher(pool, batch_size, options.limits.seconds)
        service = Service(served, batcher, options.limits, _detector(served))
        allow_many_files()
        told = _address(served, *listener.getsockname()[:2])
        listen(listener)
        run(Server(service, Metrics(), key), listener, lambda: remark(told))
    finally:
        pool.end()
        listener.close()


def renewed(choice: str | None, remark: Remark, setup: Setup) -> Setup:
    """The setup with the checkpoints that `choice` means now, where one is gone of those that it has; else itself."""
    if all(run.is_there for run in setup.runs):
        return setup
    runs = [Chosen.of(RunFolder(run.run), choice) for run in setup.runs]
    for before, now in zip(setup.runs, runs, strict=True):
        if before != now:
            remark(f"{now.run}: {before.name} is gone as it was. {now.name} is served from now on.")
    return replace(setup, runs=runs)


def refuse_same_pairs(runs: Sequence[Served]) -> None:
    """Raise UserError for two runs of the same pair of languages, by their names."""
    first: dict[tuple[str, str], Served] = {}
    for one in runs:
        src, tgt = (normal(code) for code in one.pair)
        other = first.setdefault((src, tgt), one)
        if other is not one:
            raise UserError(
                f"{other.name} and {one.name} both translate {src} to {tgt}. Serve one of them; the other may have a "
                "server of its own, with another --port."
            )


def directions_of(config: RunConfig) -> list[tuple[str, str] | None]:
    """The directions that a run was trained in, where tags say which is wanted; else None, its only one."""
    pairs = [source for source in config.data.train if not source.mono and language_of(source.tag) in config.languages]
    return list(dict.fromkeys(config.data.languages_of(source) for source in pairs)) or [None]


def _served(
    number: int, folder: RunFolder, config: RunConfig, decoding: dict[str, Any], remark: Remark
) -> list[Served]:
    """A run with its aligner, which is trained where there is none yet, once for each direction."""
    aligner, why = None, ""
    try:
        aligner = aligner_of_run(folder, remark)
    except UserError as error:
        remark(f"{folder.path}: HTML, word alignment and detection of languages are off. {error}")
        why = f"It has no aligner for {folder.path.name}."
    return [
        Served(number, str(folder.path), config, aligner, why, decoding, direction)
        for direction in directions_of(config)
    ]


def _detector(served: Sequence[Served]) -> Detector | None:
    """Knows the languages by the words of the aligners, and those of a run of several directions by the words of its
    training pairs. None where one has no aligner, or the pairs cannot be read.
    """
    words: dict[str, set[str]] = {}
    for one in served:
        if one.aligner is None:
            return None
        if one.direction is not None:
            continue
        for code, vocabulary in zip(one.pair, (one.aligner.src_vocabulary, one.aligner.tgt_vocabulary), strict=True):
            words.setdefault(normal(code), set()).update(vocabulary.words)
    try:
        for config in {one.number: one.config for one in served if one.direction is not None}.values():
            _add_words(words, config)
    except UserError:
        return None
    return Detector(words)


def _add_words(words: dict[str, set[str]], config: RunConfig) -> None:
    """Add the words of each language that the training pairs of a run show. UserError where they cannot be read."""
    for source in sources_of_pairs(config.data.train, config.data):
        languages = config.data.languages_of(source.config)
        for pair in islice(source.streamed(), MOST_PAIRS):
            for code, text in zip(languages, (pair.src, pair.tgt), strict=True):
                words.setdefault(normal(code), set()).update(normal_form(word.text) for word in words_of(text))


def allow_many_files() -> None:
    """Let this process have as many open files as the system allows it, because every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (hard, max(soft, MANY_FILES)):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return


def _address(served: Sequence[Served], host: str, port: int) -> str:
    pairs = ", ".join(" to ".join(one.pair) for one in served)
    return f"serving {pairs} at {address(host, port)} until Ctrl-C"
