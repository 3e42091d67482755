"""The options that several verbs share."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.search_flags import FLAGS
from transformer_mt.cli.terminal import remark, typed
from transformer_mt.errors import UserError
from transformer_mt.paths import user_path
from transformer_mt.plurals import counted

if TYPE_CHECKING:
    from transformer_mt.config.schema import RunConfig
    from transformer_mt.decoding.filling.masked_words import MaskedModel
    from transformer_mt.decoding.search.options import SearchOptions
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.storage.run_folder import RunFolder


def path_option(help: str) -> Any:
    """An option that is a path."""
    return typer.Option(parser=user_path, metavar="PATH", help=help)


def path_argument(help: str) -> Any:
    """An argument that is a path."""
    return typer.Argument(parser=user_path, help=help)


RunOption = Annotated[Path | None, path_option("The folder of a run. Default: the newest in runs/.")]
RunsOption = Annotated[Path, path_option("Where to look for the newest run.")]
CheckpointOption = Annotated[str | None, typer.Option(help="best, last, average or step_N. Default: best, else last.")]
CheckpointsOption = Annotated[
    list[str] | None,
    typer.Option(help="best, last, average or step_N; one for all runs, or one for each. Default: best, else last."),
]
LicenceOption = Annotated[
    str | None, typer.Option("--license", help="The model's licence, for its card: apache-2.0, cc-by-4.0, …")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
RUNS = Path("runs")


@dataclass(frozen=True)
class OneRun:
    """The run that a verb is about, each field an option (see `with_options`)."""

    run: RunOption = None
    checkpoint: CheckpointOption = None
    runs: RunsOption = RUNS

    def chosen(self) -> "RunFolder":
        """As `chosen_run`."""
        return chosen_run(self.run, self.runs)


@dataclass(frozen=True)
class OneModel(OneRun):
    """The model that a verb looks into, the language of what it writes, and where it computes."""

    to: Annotated[str | None, typer.Option(help=FLAGS["to"].whole_help)] = None
    device: DeviceOption = "auto"

    def open(self) -> "tuple[RunFolder, RunConfig]":
        """The run with its config, read before torch and weights are, so that options can be held against it."""
        folder = self.chosen()
        return folder, _config_of(folder)

    def as_read(self, text: str, config: "RunConfig") -> str:
        """A text that was typed, as the model reads it: behind the tag of `to`. UserError as in `as_read`."""
        from transformer_mt.decoding.lines.target_language import as_read

        return as_read(typed(text), config, self.to)

    def load(self, folder: "RunFolder", precision: str | None = None) -> "Translator":
        """Its translator, what it has to note said on standard error. UserError as in `Translator.load`."""
        from transformer_mt.decoding.translator import Translator

        remark_on_text_alone(folder, _config_of(folder))
        return _noted(Translator.load(folder.path, self.checkpoint, self.device, precision))

    def load_any(self, folder: "RunFolder") -> "tuple[Translator | MaskedModel, str]":
        """`load`, or of an encoder alone what fills in hidden words; and the run and checkpoint, as they are told."""
        from transformer_mt.decoding.filling.masked_words import MaskedModel
        from transformer_mt.decoding.load_model import load_trained_config
        from transformer_mt.decoding.translator import Translator

        config, checkpoint = load_trained_config(folder, self.checkpoint)
        told = f"{folder.path}, checkpoint {checkpoint.name}"
        if config.model.architecture == "encoder_only":
            return MaskedModel.load(folder, checkpoint.name, self.device), told
        return _noted(Translator.load(folder.path, checkpoint.name, self.device)), told


@dataclass(frozen=True)
class Models:
    """The models that translate, one or an ensemble, each field an option (see `with_options`)."""

    run: Annotated[
        list[Path] | None, path_option("The folder of a run; several are an ensemble. Default: the newest in runs/.")
    ] = None
    checkpoint: CheckpointsOption = None
    ensemble_mode: Annotated[
        str | None,
        typer.Option(
            help="Of several runs or checkpoints. linear: the mean of their probabilities; log_linear: the "
            "renormalised mean of their log-probabilities. Default: linear."
        ),
    ] = None
    device: DeviceOption = "auto"
    runs: RunsOption = RUNS

    @cached_property
    def config(self) -> "RunConfig":
        """The config that they obey, which is the first one's, read once, before torch and weights are. UserError
        where there is no such run, and as in `load_config`.
        """
        return _config_of(self.folders[0])

    @cached_property
    def folders(self) -> "list[RunFolder]":
        """Their runs, looked for once: a training may write a newer one at any time. UserError as in `chosen_runs`."""
        return chosen_runs(self.run, self.runs)

    def search_options(self, decoding: dict[str, Any], **changes: Any) -> "SearchOptions":
        """What they search by: the keys of their config with those that were given. UserError before weights are read
        as in `search_options`, and for a language that they do not write.
        """
        from transformer_mt.decoding.lines.target_language import TargetLanguages
        from transformer_mt.decoding.search.options import search_options

        options = search_options(self.config.decoding, **changes, **decoding)
        TargetLanguages.of(self.config).check(options.to)
        return options

    def of_each(self, runs: list[Path]) -> "list[Models]":
        """Each of these runs alone, with the checkpoint for it or for all. UserError where there are others."""
        given = self.checkpoint or []
        if len(given) not in (0, 1, len(runs)):
            number, checkpoints = counted(len(runs), "run"), counted(len(given), "checkpoint")
            raise UserError(f"{checkpoints} for {number}: give one for all, or one for each.")
        each = [[name] for name in given] if len(given) == len(runs) else [given or None] * len(runs)
        return [replace(self, run=[run], checkpoint=own) for run, own in zip(runs, each, strict=True)]

    def load(self, precision: str | None) -> "Translator":
        """Their translator, what it has to note said on standard error. UserError as in `Translator.load`."""
        folders = self.folders
        from transformer_mt.decoding.translator import Translator
        from transformer_mt.machine.memory import keep_freed_memory

        keep_freed_memory()
        remark_on_text_alone(folders[0], self.config)
        paths = [folder.path for folder in folders]
        return _noted(Translator.load(paths, self.checkpoint or None, self.device, precision, self.ensemble_mode))


def remark_on_text_alone(run: "RunFolder", config: "RunConfig") -> None:
    """Say of a run that is asked for a translation that it never saw one, where that is so."""
    if not config.data.has_pairs and config.model.num_decoder_layers:
        remark(
            f"{run.path} has learned from text in one language alone, and no translation. Train it on pairs "
            "(training.init_from), or use `tmt fill`."
        )


def _config_of(run: "RunFolder") -> "RunConfig":
    from transformer_mt.config.loading import read_config

    return read_config(run.config)


def _noted(translator: "Translator") -> "Translator":
    if translator.note:
        remark(translator.note)
    return translator


def chosen_run(run: Path | None, runs: Path, untrained: bool = False) -> "RunFolder":
    """As `chosen_runs`, of one."""
    return chosen_runs(None if run is None else [run], runs, untrained)[0]


def chosen_runs(given: list[Path] | None, runs: Path, untrained: bool = False) -> "list[RunFolder]":
    """The runs of `--run`, or else the newest in `--runs`, named on standard error. UserError where there is none, or
    unless `untrained` none with a checkpoint.
    """
    from transformer_mt.storage.run_folder import newest_run, open_run

    if given:
        return [open_run(run, untrained, runs) for run in given]
    newest = newest_run(runs, untrained)
    remark(f"run: {newest.path}")
    return [newest]
