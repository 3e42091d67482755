"""What Python users call beside `Translator`: train a config, evaluate a run, score given translations."""

import io
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from transformer_mt.config.loading import load_config, load_mapping
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.decoding import SearchConfig
from transformer_mt.config.switching_off import NONE
from transformer_mt.decoding.scoring import Scored
from transformer_mt.decoding.search.options import SearchOptions, refuse_other_precision, search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.evaluation.evaluate import Evaluation, Row, Scoring, SetFiles, save_evaluation
from transformer_mt.evaluation.evaluate import evaluate as evaluate_run
from transformer_mt.machine.memory import keep_freed_memory
from transformer_mt.paths import user_path
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.monitoring.monitor import StepReport
from transformer_mt.training.run import start_or_resume

PathText = str | PathLike[str]
Config = PathText | Mapping[str, Any] | RunConfig
Overrides = Sequence[str] | Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """A finished training. `reason` says in words why it ended. `best_scores` are those of the best validation, at
    `best_step`, and `best_score` is the one of them that the config's `validation.metric` names.
    """

    run: Path
    step: int
    reason: str
    best_step: int | None
    best_score: float | None
    best_scores: dict[str, float]


@dataclass(frozen=True)
class Evaluated:
    """The scores of a run, and a row for each pair (see `evaluation.evaluate.evaluate`). `saved` is the file in the
    run's folder; None where it was not to be saved, or could not be.
    """

    scores: Evaluation
    rows: list[Row]
    saved: Path | None


def train(
    config: Config,
    overrides: Overrides = (),
    *,
    runs: PathText = "runs",
    resume: bool = False,
    on_step: Callable[[StepReport], object] | None = None,
    progress: bool = True,
) -> Training:
    """Train a model in the folder `runs/NAME`, as `tmt train` does.

    config: a YAML file, a shipped one such as "quickstart.yaml", plain data in the same form, or a `RunConfig`.
    overrides: ["model.d_model=256"] or {"model.d_model": 256}.
    resume: go on where the run of that name stopped, if there is one.
    on_step: called after each update with a `StepReport`, and once more after each validation. Raising
    KeyboardInterrupt in it ends the training after this step, as Ctrl-C does, where the main thread trains; in another
    thread it comes out at once, as any error does.
    progress: show a bar in a notebook; on a terminal there always is one.

    Raises UserError for what is wrong with the config or the data, and where the run exists and `resume` is false.
    Raises KeyboardInterrupt after Ctrl-C (or "stop" in a notebook), once the step is finished and saved: the same call
    with resume=True goes on there, and gives the run that was never stopped.
    """
    if on_step is not None and not callable(on_step):
        raise UserError(f"on_step is {on_step!r}, which cannot be called. Give a function, or leave it out.")
    _refuse_unless_flags(resume=resume, progress=progress)
    wanted = _config_of(config, overrides)
    run = RunFolder(_path(runs) / wanted.name)
    with _notebook_bar(wanted, progress) as advance, _any_text_printed():

        def watch(report: StepReport) -> None:
            advance(report)
            if on_step is not None:
                _call(on_step, report)

        try:
            outcome = start_or_resume(wanted, run, resume, watch=watch)
        except _CallerError as raised:
            raise raised.error from None
    if outcome.reason is None:
        message = f"saved at step {outcome.step:,}; the same call with resume=True goes on there"
        raise (
            KeyboardInterrupt(message)
            if outcome.exit_status == 128 + signal.SIGINT
            else SystemExit(outcome.exit_status)
        )
    scores = outcome.best_metrics or {}
    best = scores.get(outcome.metric)
    return Training(run.path, outcome.step, outcome.reason, outcome.best_step, best, scores)


def evaluate(
    run: PathText | Sequence[PathText] | Translator,
    *,
    split: str | None = None,
    src: PathText | None = None,
    ref: PathText | Sequence[PathText] | None = None,
    checkpoint: str | Sequence[str] | None = None,
    device: str = "auto",
    bleu_tokenize: str | None = None,
    lowercase: bool = False,
    data_root: PathText | None = None,
    save: bool = True,
    progress: bool = True,
    **search: Any,
) -> Evaluated:
    """The scores of a run, of several as an ensemble, or of a loaded `Translator`, as `tmt evaluate` computes them.

    split: train, validation or test, as the run's config names them, by default test; or give a file of sources, `src`,
    with one or more files of references, `ref`. search: keys of the config's section `decoding`, such as beam_size=4.
    `save`: also write the scores and the translations into the (first) run's folder; where that fails, a warning says
    so.

    Raises UserError where a file, a checkpoint or a split is missing, where both a split and files are given, and for a
    checkpoint, a device or another precision of a translator that is loaded already.
    """
    _refuse_unless_flags(lowercase=lowercase, save=save, progress=progress)
    keep_freed_memory()
    for name in search.keys() & SearchOptions.model_fields.keys() - SearchConfig.model_fields.keys():
        raise UserError(
            f"{name} is {search[name]!r}, and the best translation of a whole source is scored. Leave it out."
        )
    if (constraints := search.get("constraints", NONE)) not in (None, NONE):
        raise UserError(f"constraints is {constraints}, and what is evaluated has none. Leave it out.")
    for name, value in (("split", split), ("data_root", data_root)):
        if src is not None and value is not None:
            raise UserError(f"src and {name} were both given. Give src and ref, or what names a split.")
    if (src is None) != (ref is None):
        raise UserError("src and ref go together. Give both, or neither for a split.")
    files = (SetFiles(_path(src), tuple(map(_path, _several(ref)))),) if src is not None and ref is not None else ()
    root = None if data_root is None else str(_path(data_root))
    scoring = Scoring("test" if split is None else split, files, root, bleu_tokenize, lowercase)
    translator = _loaded(run, checkpoint, device, search)
    if not translator.checkpoints:
        raise UserError("This translator was made of a model, not loaded from a run. Give evaluate the run's folder.")
    folder, taken = translator.checkpoints[0]
    options = search_options(translator.config.decoding, **search)
    with _bar(progress, "Translating", " sentences") as advance:
        scores, rows = evaluate_run(translator, folder, taken.name, scoring, options, advance)
    return Evaluated(scores, rows, _saved(folder, scoring, scores, rows) if save else None)


def score(
    run: PathText | Sequence[PathText] | Translator,
    texts: Iterable[str],
    translations: Iterable[str],
    *,
    checkpoint: str | Sequence[str] | None = None,
    device: str = "auto",
    **search: Any,
) -> list[Scored]:
    """What a model says of given translations, in order, as `tmt score` does: log-probabilities of words and sentences.

    search: keys of the config's section `decoding` that scoring obeys, such as length_penalty=1.0. Raises UserError for
    lists of unequal length.
    """
    translator = _loaded(run, checkpoint, device, search)
    return translator.score(texts, translations, **search)


def _saved(run: RunFolder, scoring: Scoring, scores: Evaluation, rows: list[Row]) -> Path | None:
    """The file. None, and a warning, where it cannot be written: hours of translating may be in what is returned."""
    try:
        return save_evaluation(
            run, scoring, scores, rows, "The result is returned all the same; save=False leaves it out."
        )
    except UserError as error:
        warnings.warn(str(error), stacklevel=3)
        return None


def _config_of(config: Config, overrides: Overrides) -> RunConfig:
    texts = _as_texts(overrides)
    if isinstance(config, RunConfig):
        if not texts:
            return config
        config = config.model_dump(exclude_unset=True)
    if isinstance(config, Mapping):
        return load_mapping(config, texts)
    if not isinstance(config, str | PathLike):
        raise UserError(f"config is {config!r}. Give a YAML file, plain data in the same form, or a RunConfig.")
    return load_config(str(config), texts).config


def _as_texts(overrides: Overrides) -> list[str]:
    if isinstance(overrides, str):
        raise UserError(f"overrides is a list, and {overrides!r} is a text. Write [{overrides!r}].")
    if isinstance(overrides, Mapping):
        return [f"{key}={json.dumps(value, ensure_ascii=False, default=_plain)}" for key, value in overrides.items()]
    if not isinstance(overrides, Sequence) or not all(isinstance(text, str) for text in overrides):
        raise UserError(
            f'overrides is {overrides!r}. Give a list of texts, ["model.d_model=256"], or a map, '
            '{"model.d_model": 256}.'
        )
    return list(overrides)


def _plain(value: Any) -> Any:
    """What JSON has no form for, as it is meant: a path, and a number of an array."""
    if isinstance(value, PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return value.item()
    raise UserError(f"overrides has {value!r}, which no YAML file could hold. Give text, a number, a list or a map.")


def _refuse_unless_flags(**given: object) -> None:
    """UserError for one that is neither True nor False: "no" would count as True."""
    for name, value in given.items():
        if not isinstance(value, bool | np.bool_):
            raise UserError(f"{name} is {value!r}. Give True or False.")


def _several(paths: PathText | Sequence[PathText]) -> list[PathText]:
    return [paths] if isinstance(paths, str | PathLike) or not isinstance(paths, Iterable) else list(paths)


def _path(path: PathText) -> Path:
    if not isinstance(path, str | PathLike):
        raise UserError(f"{path!r} stands where a path is needed. Give a text or a Path.")
    return user_path(path)


def _loaded(
    run: PathText | Sequence[PathText] | Translator,
    checkpoint: str | Sequence[str] | None,
    device: str,
    search: Mapping[str, Any],
) -> Translator:
    """The translator of a run, or of several; one that is loaded as it is. UserError for what only a loading obeys."""
    if not isinstance(run, Translator):
        return Translator.load([_path(path) for path in _several(run)], checkpoint, device, search.get("precision"))
    for name, value in (("checkpoint", checkpoint), ("device", None if device == "auto" else device)):
        if value is not None:
            raise UserError(
                f"{name} is {value!r}, and this translator is loaded already. Leave {name} out, or give the folder of "
                "the run."
            )
    refuse_other_precision(run.precision, search)
    return run


@contextmanager
def _any_text_printed() -> Iterator[None]:
    """Inside, characters that standard output has no bytes for are written as escapes. On Windows a file or a pipe has
    some for a few hundred characters alone, and examples of the pairs may have any.
    """
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream.errors != "strict":
        yield
        return
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        stream.reconfigure(errors="strict")


class _CallerError(Exception):
    """Around an OSError that `on_step` has raised, which would be told as one of the run's own files."""

    def __init__(self, error: OSError) -> None:
        self.error = error


def _call(on_step: Callable[[StepReport], object], report: StepReport) -> None:
    """Call it. A KeyboardInterrupt that it raises becomes a signal, after which the step is saved."""
    try:
        on_step(report)
    except OSError as error:
        raise _CallerError(error) from error
    except KeyboardInterrupt:
        if threading.current_thread() is not threading.main_thread():
            raise
        signal.raise_signal(signal.SIGINT)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return shell is not None and "IPKernelApp" in shell.config


@contextmanager
def _notebook_bar(config: RunConfig, progress: bool) -> Iterator[Callable[[StepReport], None]]:
    """What shows the steps in a notebook. On a terminal the training has a bar of its own."""
    with _bar(
        progress and in_notebook() and not sys.stderr.isatty(), "Training", " steps", config.training.max_steps
    ) as add:
        last = 0

        def advance(report: StepReport) -> None:
            nonlocal last
            if report.validation is None:
                add(report.step - last)  # a run that goes on begins at its step
                last = report.step

        yield advance


@contextmanager
def _bar(shown: bool, what: str, unit: str, total: int | None = None) -> Iterator[Callable[..., object]]:
    """A bar that a notebook draws as its own, and a terminal as text."""
    from tqdm import TqdmWarning

    with warnings.catch_warnings():  # without ipywidgets a notebook shows the bar as text, and that is all
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    is_seen = shown and (in_notebook() or sys.stderr.isatty())
    with tqdm(desc=what, unit=unit, total=total, disable=not is_seen) as bar:
        yield bar.update
