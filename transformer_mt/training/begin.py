"""A run's folder when a training begins: the state to go on from, the refusals, the files of a new run."""

import json
import os
from dataclasses import dataclass
from itertools import count

from transformer_mt.config.loading import dump_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.encoding import save_tokenizers
from transformer_mt.data.preparation import TrainingData
from transformer_mt.errors import UserError
from transformer_mt.model.named_parts import freeze, outline
from transformer_mt.paths import exists, is_dir, what_exists_of
from transformer_mt.plurals import counted
from transformer_mt.storage.checkpoint_files import STATE
from transformer_mt.storage.files import remove, replace_file
from transformer_mt.storage.run_folder import STEP_PREFIX, RunFolder, run_folder_errors
from transformer_mt.training.fine_tuning.source_run import SourceRun, open_source, refuse_itself
from transformer_mt.training.monitoring.metrics_file import cut_back, read_scores
from transformer_mt.training.resuming.checkpoints import recover, regular_steps, set_damaged_aside, settings_so_far
from transformer_mt.training.resuming.resume_rules import (
    Changes,
    adapted_grad_accum,
    allowed_changes,
    changed_translations,
    differences,
)
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.validation import TRANSLATION_METRICS, is_better

MOST_KEYS = 3  # settings of another config that are named


@dataclass
class Beginning:
    """What the first process found in the folder, for all processes: the state to go on from, or a fresh one, and the
    settings that the config changes. `config` has the grad_accum with which an update stays what it was. `remark` is
    printed where the run goes on. `source` is the run whose weights a new run begins with, if the config names one.
    `before` are the settings of a run so far.
    """

    going_on: bool
    state: TrainingState
    changes: Changes
    config: RunConfig
    remark: str | None = None
    source: SourceRun | None = None
    before: RunConfig | None = None


def of_other_configs(given: list[RunConfig]) -> str | None:
    """A sentence on the first of several processes that was given another config than process 0, whose config all of
    them train by; None where there is none.
    """
    for rank, config in enumerate(given):
        if differ := list(differences(given[0], config).items()):
            told = ", ".join(f"{key} {there!r} instead of {here!r}" for key, (here, there) in differ[:MOST_KEYS])
            more = ", …" * (len(differ) > MOST_KEYS)
            return (
                f"process {rank} of {len(given)} was given another config ({told}{more}), and trains by that of "
                "process 0"
            )
    return None


def begin(config: RunConfig, run: RunFolder, resume: bool, change_lr: bool, num_processes: int) -> Beginning:
    """Look into the folder, set damaged checkpoints aside, and compare the config with that of the run so far. Raises
    UserError where the run exists and `resume` is false, where a setting differs that must not change, and where a new
    run cannot begin as `training.init_from` and `training.freeze` ask for.
    """
    if not resume and run.has_begun():
        refuse_itself(config, run)
        raise UserError(
            f"{run.path} exists already. Go on with it by adding `--resume auto` (in Python: "
            f"resume=True), or train beside it with another name, for example name={config.name}_2."
        )
    recover(run)
    if exists(run.checkpoints) and not exists(run.config):
        raise UserError(
            f"{run.config} is gone, though there are checkpoints beside it. Put it back (`tmt config show FILE` prints "
            "what it held), or train under another name."
        )
    if resume:
        print("".join(f"{line}\n" for line in set_damaged_aside(run)), end="")
    if not (resume and run.steps()):
        source = open_source(config, run)
        if config.training.freeze:  # what cannot be frozen is refused now rather than after the data was prepared
            freeze(outline(config.model), config.training.freeze)
        if resume:
            _set_earlier_aside(run)
        state = TrainingState(micro_batches_per_update=config.training.grad_accum * num_processes)
        if config.training.max_tokens != "auto":
            state.max_tokens = config.training.max_tokens
        return Beginning(False, state, {}, config, source=source)
    before = settings_so_far(run)
    changes = allowed_changes(before, config, change_lr)
    state = TrainingState.read(run.step(run.steps()[-1]) / STATE)
    if config.training.max_tokens != "auto":
        state.max_tokens = config.training.max_tokens
    translations = changed_translations(before, config)
    if translations:
        state.comparable_from = state.step + 1
    metric, remark = config.validation.metric, None
    if "validation.metric" in changes:
        remark = f"validation.metric is {metric} now; {_judge_anew(state, metric, run)}"
    elif translations and metric in TRANSLATION_METRICS:
        changed = " and ".join(translations)
        remark = f"{changed} changed, so {metric} is of other translations now; {_judge_anew(state, metric, run)}"
    grad_accum = adapted_grad_accum(before, config, state.micro_batches_per_update, num_processes)
    processes = counted(num_processes, "process", "processes")
    if config.training.max_tokens == "auto":  # the config stays as it is, because auto goes with no grad_accum
        as_before = f"training.max_tokens is {state.max_tokens:,} as before"
        print(f"{as_before}, and training.grad_accum {grad_accum:,} for {processes}")
    elif grad_accum != config.training.grad_accum:
        print(f"training.grad_accum is {grad_accum} for {processes}, so that an update stays what it was")
        config = config.model_copy(update={"training": config.training.model_copy(update={"grad_accum": grad_accum})})
    return Beginning(True, state, changes, config, remark, before=before)


def _set_earlier_aside(run: RunFolder) -> None:
    """Keep what is told of the weights that a run has lost, where it begins anew without a checkpoint. It may be all
    that is left of them, and would be taken for the new training's. What an earlier start set aside is numbered.
    """
    moved = []
    for path in (run.metrics, run.evaluations, run.changes, run.debug):
        if exists(path) and (is_dir(path) or path.stat().st_size):
            aside = path.with_stem(f"{path.stem}_before")
            if exists(aside):
                numbered = (aside.with_stem(f"{aside.stem}_{number}") for number in count(1))
                os.replace(aside, next(free for free in numbered if not exists(free)))
            os.replace(path, aside)
            moved.append(str(aside))
    run.recorder.unlink(missing_ok=True)
    if moved:
        print(
            f"{run.path} has no checkpoint, so training begins anew; the numbers so far are now in {', '.join(moved)}"
        )


def set_lost_scores_aside(run: RunFolder, step: int) -> None:
    """Keep apart what was measured of checkpoints after this step, where the learning rate changes from it on: they are
    gone, and those that will have their names have other weights.
    """
    aside, moved = run.evaluations.with_name(f"{run.evaluations.name}_before"), 0
    with run_folder_errors(run):
        for path in sorted(run.evaluations.glob("*.json")):
            try:
                checkpoint = json.loads(path.read_text(encoding="utf-8"))["checkpoint"]
                is_later = int(checkpoint.removeprefix(STEP_PREFIX)) > step
            except (ValueError, KeyError, TypeError, AttributeError):  # damaged, or of an average, which is still there
                continue
            if is_later:
                aside.mkdir(exist_ok=True)
                for file in (path, path.with_suffix(".jsonl")):
                    if exists(file):
                        os.replace(file, aside / file.name)
                moved += 1
    if moved:
        print(f"set aside in {aside}: {counted(moved, 'evaluation')} of later steps, whose weights are gone")


def _judge_anew(state: TrainingState, metric: str, run: RunFolder) -> str:
    """Choose the best checkpoint by the new scores, and count bad validations from zero. Where no checkpoint that is
    left has such a score, the best so far is kept until the next validation. Returns a sentence that names the best.
    """
    cut_back(run.metrics, state)
    scores = read_scores(run.metrics, "validation")
    state.best_metrics, state.num_bad_validations = None, 0
    first = state.comparable_from if metric in TRANSLATION_METRICS else 0
    for step in regular_steps(run):
        if step >= first and metric in scores.get(step, {}) and is_better(metric, scores[step], state.best_metrics):
            state.best_step, state.best_metrics = step, scores[step]
    best = "the next validation's" if state.best_metrics is None else f"step {state.best_step:,}"
    return f"of the checkpoints that are left the best is {best}"


def refuse_unless_writable(run: RunFolder, resume: bool) -> None:
    """UserError where the run's folder cannot be written: now, rather than after the data was prepared."""
    with run_folder_errors(run):  # such as a name that is too long
        place = what_exists_of(run.path)
    if not is_dir(place) or not os.access(place, os.W_OK | os.X_OK):
        what = "cannot be written to" if is_dir(place) else "is a file, not a folder"
        if resume and is_dir(run.path):
            raise UserError(f"{place} {what}, so the run cannot go on. Make it writable, or go on with a copy of it.")
        raise UserError(f"{place} {what}, so there is no place for the run. Choose another with --runs or name=NEW.")


def write_beginnings(
    config: RunConfig, run: RunFolder, data: TrainingData | None, source: SourceRun | None = None
) -> None:
    """Write the tokenizers, where the weights came from, then the config, so that the folder of the run needs nothing
    else.

    A resumed run passes no data: it writes only the config, some settings of which may have changed.
    """
    with run_folder_errors(run):
        run.path.mkdir(parents=True, exist_ok=True)
        if data is not None:
            save_tokenizers(run.tokenizers, data.src_tokenizer, data.tgt_tokenizer)
            for path in (run.aligner, run.origin):  # of a training that left no checkpoint, perhaps with other pairs
                if exists(path):
                    remove(path)
        if source is not None:
            source.origin.write(run.origin)
        replace_file(run.config, dump_config(config))
