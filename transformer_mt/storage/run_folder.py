"""Where things are in the folder of a run. Other modules read and write them."""

import re
import shlex
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.paths import exists, is_file
from transformer_mt.storage.files import permission_to_read, writing

STEP_PREFIX = "step_"
_UPDATE = re.compile(rf"{STEP_PREFIX}([1-9][0-9]*)\.safetensors")
MANIFEST = "manifest.json"
TOKENIZERS = "src.json", "tgt.json"  # the files of `RunFolder.tokenizers`


class _Within:
    """A file or folder at a fixed place within that of a run."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, run: "RunFolder", owner: type) -> Path:
        return run.path / self._place


@dataclass(frozen=True)
class RunFolder:
    """`runs/NAME`. Translating needs nothing else. Raises UserError for a path that is not UTF-8."""

    path: Path
    config = _Within("config.yaml")  # the whole config, as `dump_config` writes it
    tokenizers = _Within("tokenizers")  # the folder of both
    origin = _Within("origin.json")  # with which run's weights the training began, if with any
    checkpoints = _Within("checkpoints")  # each a folder of its own
    average = _Within("checkpoints/average")  # the checkpoint that `tmt average` makes
    metrics = _Within("metrics.jsonl")  # a line for each line of the log and each validation
    recorder = _Within("recorder.jsonl")  # what diagnoses need beside them: a line for each validation and each spike
    lock = _Within("train.lock")  # which a process locks while it trains here
    memory_limit = _Within("memory_limit.json")  # what did not fit into the memory of one of several processes
    changes = _Within("changes.jsonl")  # those that later starts made to the config: a line for each start
    evaluations = _Within("evaluations")  # the results of `tmt evaluate`
    aligner = _Within("aligner")  # the word aligner, trained on the run's own pairs
    confidence = _Within("confidence")  # the calibrations, one for each way to translate
    debug = _Within("debug")  # updates that were not finite
    profile = _Within("profile")  # the traces of `tmt train --profile`

    def __post_init__(self) -> None:
        try:
            str(self.path).encode()
        except UnicodeEncodeError:  # neither safetensors nor TensorBoard can use it
            raise UserError(
                f"The path of the run, {str(self.path)!a}, is not UTF-8. Rename the folder, or choose another."
            ) from None

    def step(self, step: int) -> Path:
        """The checkpoint of one step."""
        return self.checkpoints / f"{STEP_PREFIX}{step}"

    def steps(self) -> list[int]:
        """The steps with a whole checkpoint, ascending. UserError where the folder may not be read."""
        found = []
        with permission_to_read(self.path):
            for path in _inside(self.checkpoints):
                number = path.name.removeprefix(STEP_PREFIX)
                if number == path.name or not number.isdecimal() or str(int(number)) != number:
                    continue
                if is_file(path / MANIFEST):
                    found.append(int(number))
        return sorted(found)

    def trained_steps(self) -> list[int]:
        """`steps`, which here are at least one. UserError where there is none."""
        steps = self.steps()
        if not steps:
            raise UserError(f"{self.path} has no checkpoint yet. Train it with `tmt train --resume {self.quoted}`.")
        return steps

    def update_file(self, step: int) -> Path:
        """Where an update is kept that was not finite."""
        return self.debug / f"{STEP_PREFIX}{step}.safetensors"

    def not_finite(self) -> dict[int, Path]:
        """The files of `debug` that hold an update, by its step, ascending: a training stopped at each. UserError where
        the folder may not be read.
        """
        with permission_to_read(self.path):
            names = [_UPDATE.fullmatch(path.name) for path in _inside(self.debug)]
        return {step: self.update_file(step) for step in sorted(int(name[1]) for name in names if name)}

    @property
    def quoted(self) -> str:
        """The path as one would type it in a shell."""
        return shlex.quote(str(self.path))

    def has_begun(self) -> bool:
        """Whether a training has begun here."""
        return exists(self.config) or exists(self.checkpoints)


def run_folder_errors(run: RunFolder) -> AbstractContextManager[None]:
    """Turns what the system says while the body writes into the folder into a `UserError`."""
    return writing(f"The run folder {run.path}", "Choose another with --runs.")


def _inside(folder: Path) -> list[Path]:
    """The content of a folder; nothing where there is no folder. Unlike `glob`, this raises if it may not be read."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def newest_run(runs: Path, untrained: bool = False) -> RunFolder:
    """The run in `runs` with the most recent checkpoint, or if `untrained` the one that a training wrote to last, with
    a checkpoint or without. Runs that may not be read are passed over. Raises UserError where there is none.
    """
    times, refused = {}, None
    with permission_to_read(runs):
        folders = _inside(runs)
    for folder in folders:
        try:
            run = RunFolder(folder)
            with permission_to_read(run.path):
                checkpoints = [run.step(step) / MANIFEST for step in run.steps()]
                written = [run.config, run.metrics] if untrained else checkpoints[-1:]
                if exists(run.config) and written:
                    times[run] = max((path.stat().st_mtime for path in written if exists(path)), default=0.0)
        except UserError as error:
            refused = error
    if refused is not None and not times:
        raise refused
    if not times:
        raise UserError(
            f"There is no trained run in {runs.resolve()}. Train one with `tmt train --config quickstart.yaml`, "
            "or name the folder of one."
        )
    return max(times, key=lambda run: times[run])


def open_run(path: Path, untrained: bool = False, runs: Path = Path("runs")) -> RunFolder:
    """The run at a path that a user typed. Raises UserError where there is no run, which says if there is one of this
    name in `runs`; or unless `untrained` where it has no checkpoint yet.
    """
    run = RunFolder(path)
    with permission_to_read(path):
        is_run = is_file(run.config)
    if not is_run:
        within = next((parent.parent for parent in (path, path.parent) if parent.name == "checkpoints"), None)
        if within is None and is_file(runs / path / run.config.name):
            within = runs / path
        hint = f"Did you mean {within}?" if within else "Give that of one, runs/NAME."
        raise UserError(f"{path} is not the folder of a run: it has no config.yaml. {hint}")
    if not untrained:
        run.trained_steps()
    return run
