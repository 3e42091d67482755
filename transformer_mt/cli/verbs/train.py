"""`tmt train`."""

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.options import RUNS, path_option
from transformer_mt.paths import user_path
from transformer_mt.plurals import rounded

if TYPE_CHECKING:
    from transformer_mt.config.schema import RunConfig
    from transformer_mt.training.run import Outcome

PRETRAIN = "Train a model on text in one language, as data.noise says; options are those of `tmt train`."
_WHICH = {
    "train": "Which model? Give a config, for example `tmt train --config quickstart.yaml`.",
    "pretrain": "Which model? Give a config with data.noise: `tmt pretrain --config FILE.yaml`.",
}


def train(
    context: typer.Context,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings that replace those of the file, for example model.d_model=256.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", "-c", help="YAML file: in this folder, in configs/, or a shipped one.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(help="`auto`: go on with the run that the config names, if there is one. Or the folder of a run."),
    ] = None,
    change_lr: Annotated[
        bool, typer.Option("--change-lr", help="With --resume: let the settings of the learning rate change.")
    ] = False,
    runs: Annotated[Path, path_option("The folder in which the run's own folder is made.")] = RUNS,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time of a few steps goes, and keep a trace of them.")
    ] = False,
) -> None:
    """Train a model as a config says; with --resume, go on exactly where a run stopped."""
    from transformer_mt.config.loading import load_config
    from transformer_mt.errors import UserError
    from transformer_mt.machine import launch
    from transformer_mt.storage.run_folder import RunFolder, open_run

    launch.let_first_speak()
    try:
        folder = None if resume in (None, "auto") else open_run(user_path(str(resume)), untrained=True)
        if config is None and folder is None:
            raise UserError(_which_model(context.info_name or "", overrides or []))
        if config is None and folder is not None:
            config = str(folder.config.resolve())
        assert config is not None
        if folder is not None and any(override.partition("=")[0].strip() == "name" for override in overrides or []):
            raise UserError(
                f"--resume {resume} goes on in that folder, whose name is its own. To start anew under another name: "
                f"tmt train --config {shlex.quote(config)} name=NEW."
            )
        if change_lr and resume is None:
            raise UserError("--change-lr is for a run that goes on. Add --resume, or leave it out.")
        loaded = load_config(config, overrides or [])
        if context.info_name == "pretrain" and loaded.config.data.noise is None:
            raise UserError(
                "This config has no data.noise, which says what is learned from text in one language. Set it, for "
                "example data.noise.kind=infilling, or use `tmt train`."
            )
        run = folder or RunFolder(runs / loaded.config.name)
    except UserError as error:
        raise launch.told_once(error) from error
    print(loaded.note or f"config: {loaded.path}")
    print(f"run: {run.path}")

    from transformer_mt.training.run import start_or_resume

    outcome = start_or_resume(loaded.config, run, resume is not None, change_lr, profile)
    with suppress(BrokenPipeError):  # the reader may have ended by the same Ctrl-C
        _tell(outcome, loaded.config)
        sys.stdout.flush()
    sys.exit(outcome.exit_status)


def _which_model(verb: str, overrides: list[str]) -> str:
    """What is said where no config was given; a YAML file among the overrides is the one that was meant."""
    meant = next((word for word in overrides if "=" not in word and word.endswith((".yaml", ".yml"))), None)
    if meant is None:
        return _WHICH.get(verb, _WHICH["train"])
    return f"{meant} stands where settings stand. Did you mean `tmt {verb} --config {shlex.quote(meant)}`?"


def _tell(outcome: "Outcome", config: "RunConfig") -> None:
    run, name = outcome.run, outcome.run.quoted
    if outcome.reason is None:
        saved = f"saved at step {outcome.step:,}" if outcome.step else "stopped before the first step"
        print(f"{saved}; go on with: tmt train --resume {name}")
        return
    print(f"finished at step {outcome.step:,}: {outcome.reason}")
    _tell_best(outcome)
    for never in _what_never_began(config, outcome):
        print(never)
    most, minutes = config.training.max_steps, config.training.max_minutes
    if most is not None and minutes is not None and outcome.reason.startswith("max_minutes"):
        print(f"max_steps is {most:,}; go on with, say: tmt train --resume {name} training.max_minutes={2 * minutes:g}")
    if config.data.has_pairs:
        from transformer_mt.decoding.lines.target_language import TargetLanguages

        is_asked = TargetLanguages.of(config).is_needed and config.decoding.to is None
        to = f"--to {config.languages[0]} " if is_asked else ""
        print(f'translate with: tmt translate --run {name} {to}"..."')
    elif config.model.architecture == "encoder_only":
        from transformer_mt.decoding.filling.whole_sentences import text_to_fill

        print(f'fill in words with: tmt fill --run {name} "{text_to_fill(config)}"')
        print(f'train on pairs from here with: "training.init_from={{run: {run.path}, parts: [encoder]}}"')
    else:
        print(f"train on pairs from here with: training.init_from={name}")


def _what_never_began(config: "RunConfig", outcome: "Outcome") -> list[str]:
    """Told: what the config set for later than the last step. By `max_epochs` or minutes none could know it before."""
    told, training, both = [], config.training, config.data.both_directions_epochs
    if training.warmup_steps > outcome.step:
        told.append(
            f"training.warmup_steps is {training.warmup_steps:,}, so that the learning rate was still rising at the "
            "end; lower it, or train for longer"
        )
    if training.consistency is not None and training.consistency.start_step > outcome.step:
        told.append(
            f"training.consistency.start_step is {training.consistency.start_step:,}, so that consistency never began; "
            "lower it, or train for longer"
        )
    if both and both >= outcome.num_epochs:
        told.append(
            f"data.both_directions_epochs is {both:,}, so that the wanted direction never came alone; lower it, or "
            "train for longer"
        )
    return told


def _tell_best(outcome: "Outcome") -> None:
    """Name the step that translating uses, and its score."""
    score = (outcome.best_metrics or {}).get(outcome.metric)
    if outcome.best_step is None or score is None:
        return
    told = f"best: step {outcome.best_step:,}, {outcome.metric} {rounded(score)}"
    if outcome.best_step == 0:
        told += "; no step was better than the model it began with, so that translating uses that one (step_0)"
    print(told)
