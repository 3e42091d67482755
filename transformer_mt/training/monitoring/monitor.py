"""The output of a training while it runs: TensorBoard, metrics.jsonl, a bar, and a line for each validation."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from transformer_mt.config.loading import dump_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.diagnosing.diagnoses import Diagnoses, Diagnosis
from transformer_mt.diagnosing.history import read_recorded
from transformer_mt.diagnosing.told import in_one_line, summary_line
from transformer_mt.paths import exists
from transformer_mt.plurals import rounded
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.monitoring.metrics_file import MetricsFile, finite
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.validation import ValidationResult

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

# tqdm's own format without its time left, which would take a validation for a very slow step.
BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"


@dataclass(frozen=True)
class StepReport:
    """An update that was made. `metrics` are those of the line of the log, where the step writes one; see
    `training.log_every_steps`. A step that is validated is reported once more, with the scores in `validation`.
    """

    step: int
    metrics: dict[str, float] = field(default_factory=dict)
    validation: dict[str, float] | None = None


Watch = Callable[[StepReport], object]


class Monitor:
    """Shows and writes how a training goes, from the given state on. What earlier starts wrote after it is cut off.

    `watch` is called with a report of each step and of each validation.
    """

    def __init__(self, run: RunFolder, config: RunConfig, state: TrainingState, watch: Watch | None = None) -> None:
        self.config = config
        self.run = run
        self.step = state.step
        self.watch = watch
        self.is_troubled = False  # a file of the run could not be written, which was said
        self.new_metrics: dict[str, float] = {}  # of the step that is about to be reported
        is_gone = state.step > 0 and not exists(run.metrics)
        self.metrics_file = MetricsFile(run.metrics, state)
        self.recorder_file = MetricsFile(run.recorder, state)
        self.diagnoses = Diagnoses.of(read_recorded(run).entries)  # those of earlier starts are not said again
        # TensorBoard writes in a thread of its own. Its error is raised again at the next call, which handles it.
        self.excepthook, threading.excepthook = threading.excepthook, _say_nothing_of_os_errors
        self.bar = tqdm(initial=state.step, unit=" steps", disable=not sys.stderr.isatty(), smoothing=0.1)
        self.board: SummaryWriter | None = self._open_board(state.step + 1)
        if config.training.max_steps is not None:
            self.expect(config.training.max_steps)
        if is_gone:
            self.say(
                f"warning: {run.metrics} is gone, and with it the numbers of the steps up to {state.step:,}, which "
                "TensorBoard's files may still have. A new file begins here."
            )
        if state.step == 0:
            self._draw(lambda board: board.add_text("config", f"```yaml\n{dump_config(config)}```"))

    def train(self, step: int, metrics: dict[str, float]) -> None:
        """The numbers since the last line, as a line and as curves. `docs/training.md` explains each."""
        self._line("train", step, metrics)
        self.new_metrics = metrics
        names = ("loss", "nll", "load_balancing", "divergence", "lr", "grad_norm", "tokens_per_second", "padding",
                 "data_wait", "skipped_steps", "split_micro_batches", "compiled_graphs", "captured_graphs")  # fmt: skip
        self._curves("train", {name: metrics[name] for name in names if name in metrics}, step)
        shown = {"loss": f"{metrics['loss']:.3f}", "tok/s": f"{metrics['tokens_per_second']:,.0f}"}
        self.bar.set_postfix({**shown, "lr": f"{metrics['lr']:.2e}"}, refresh=False)

    def advance(self, left: str) -> None:
        """Move the bar one step on; it says how much time is `left`."""
        self.bar.set_description(left, refresh=False)
        self.bar.update()
        self.step += 1
        metrics, self.new_metrics = self.new_metrics, {}
        if self.watch is not None:
            self.watch(StepReport(self.step, metrics))

    def validation(self, state: TrainingState, result: ValidationResult, best: bool, left: str) -> None:
        """Say one line on the console, with the time that is `left`. Write curves, and the sample translations."""
        step, epoch = state.step, state.epoch
        self._line("validation", step, {**result.metrics, "epoch": epoch, "elapsed_seconds": state.elapsed_seconds})
        self._curves("validation", result.metrics, step)
        for i, sample in enumerate(result.samples, start=1):
            rows = (("source", sample.src), ("reference", sample.reference), ("translation", sample.hypothesis))
            sample = "\n\n".join(f"**{name}**: {_plain(text)}" for name, text in rows)
            self._draw(lambda board, i=i, sample=sample: board.add_text(f"sample {i}", sample, step))
        numbers = _told(result.metrics)
        place = f"after epoch {epoch}" if state.micro_batch == 0 else f"epoch {epoch + 1}"
        place = "before the first step" if step == 0 else place
        minutes = f"{state.elapsed_seconds / 60:.1f} min" + (f", {left}" if left else "")
        self.say(f"step {step:,} ({place}, {minutes}): {numbers}{'  *' if best else ''}")
        self._draw(lambda board: board.flush())
        if self.watch is not None:
            self.watch(StepReport(step, validation=result.metrics))

    def average(self, step: int, steps: list[int], metrics: dict[str, float], verdict: str) -> None:
        """Say one line on the average of the checkpoints of `steps`, and put it on the disk at once."""
        self._line("average", step, {**metrics, "num_averaged": len(steps)})
        self.metrics_file.sync()
        numbers = _told(metrics)
        self.say(f"average of the steps {', '.join(map(str, steps))}: {numbers}; {verdict}")

    def record(self, kind: str, step: int, figures: dict[str, Any]) -> None:
        """Write what diagnoses need beside the metrics, and say what it shows for the first time."""
        self._line(kind, step, figures, self.recorder_file)

    def summarise(self) -> None:
        """Say in one line what was diagnosed since the run began."""
        self.say(summary_line(self.diagnoses))

    def expect(self, num_steps: int) -> None:
        """Let the bar end at this number of steps, unless it ends earlier already."""
        self.bar.total = min(num_steps, self.bar.total or num_steps)
        self.bar.bar_format = BAR

    def picture(self, name: str, pixels: Any, step: int) -> None:
        """An image (height, width, 3)."""
        self._draw(lambda board: board.add_image(name, pixels, step, dataformats="HWC"))

    def hparams(self, metrics: dict[str, float]) -> None:
        """Write the settings and the final scores to TensorBoard's table of runs."""
        from torch.utils.tensorboard.summary import hparams

        settings = {
            f"{section}.{key}": value
            for section in ("tokenizer", "model", "training", "decoding")
            for key, value in getattr(self.config, section).model_dump().items()
            if isinstance(value, bool | int | float | str)
        }
        curves = {f"validation/{name}": value for name, value in metrics.items() if math.isfinite(value)}
        for summary in hparams(settings, curves):
            # `add_hparams` would make another run of them
            self._draw(lambda board, summary=summary: board._get_file_writer().add_summary(summary))

    def say(self, text: str) -> None:
        """Print a line on standard output, above the bar."""
        try:
            self.bar.write(text, file=sys.stdout)
            sys.stdout.flush()
        except OSError as error:
            # The reader is gone (`| tee log` ends by the same Ctrl-C as we do), or the disk of a log is full. The
            # training goes on in both cases.
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())
            if not isinstance(error, BrokenPipeError):
                with suppress(OSError):
                    print(
                        f"tmt: standard output cannot be written ({error.strerror or error}); the training goes on "
                        "without it. What it says is in metrics.jsonl too.", file=sys.stderr,
                    )  # fmt: skip

    def sync(self) -> None:
        """Put everything written so far on the disk, because the next checkpoint relies on it. Raises OSError."""
        self.metrics_file.sync()
        self.recorder_file.sync()
        if self.board is None:
            self.board = self._open_board(None)
        self.board.flush()

    def saved(self) -> None:
        """A checkpoint is on the disk, so there is room again: the next trouble is another one, and is said."""
        self.is_troubled = False

    def close(self) -> None:
        """Close everything. On a full disk some output stays unwritten; the checkpoints say how far the run is."""
        self.bar.close()
        for file in (self.board, self.metrics_file, self.recorder_file):
            with suppress(OSError):
                if file is not None:
                    file.close()
        threading.excepthook = self.excepthook

    def _line(self, kind: str, step: int, figures: dict[str, Any], file: MetricsFile | None = None) -> None:
        """Write a line to metrics.jsonl or the given file, and say what it shows for the first time."""
        try:
            (file or self.metrics_file).add(kind, step, figures)
        except OSError as error:
            self._bear(error)
        if kind != "average":
            self._say_diagnoses(self.diagnoses.add(kind, {"step": step, **finite(figures)}))

    def _say_diagnoses(self, new: list[Diagnosis]) -> None:
        """Each name once a run, on the console and in TensorBoard."""
        for found in new:
            self.say(in_one_line(found))
            tag, step = f"diagnosis {found.name}", found.first_step
            text = f"{_plain(found.finding.seen)}\n\n{_plain(found.tries)}"
            self._draw(lambda board, tag=tag, text=text, step=step: board.add_text(tag, text, step))

    def _curves(self, kind: str, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._draw(lambda board, name=name, value=value: board.add_scalar(f"{kind}/{name}", value, step))

    def _draw(self, draw: Callable[["SummaryWriter"], None]) -> None:
        """Write something to TensorBoard, unless that has failed since the last checkpoint."""
        if self.board is None:
            return
        try:
            draw(self.board)
        except OSError as error:
            self._bear(error)
            board, self.board = self.board, None  # a writer that failed once raises the same error for ever
            with suppress(OSError):
                board.close()

    def _bear(self, error: OSError) -> None:
        """Stop or go on where a file cannot be written, as `training.on_save_error` says."""
        if self.config.training.on_save_error == "stop":
            raise error
        if not self.is_troubled:
            self.is_troubled = True
            self.say(
                f"warning: {self.run.path} cannot be written: {error.strerror or error}. Training goes on; its metrics "
                "wait for room, and TensorBoard misses some."
            )

    def _open_board(self, purge_step: int | None) -> "SummaryWriter":
        from torch.utils.tensorboard.writer import SummaryWriter

        if not _wait_to_be_newest(self.run.path):
            self.say(
                "warning: TensorBoard's files of this run are from the future, as if the clock had been set back: "
                "TensorBoard may hide what comes now. metrics.jsonl is right."
            )
        return SummaryWriter(str(self.run.path), purge_step=purge_step)


class Silence(Monitor):
    """The monitor of the other processes beside the first: it shows and writes nothing."""

    def __init__(self) -> None:
        pass

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    train = advance = validation = average = expect = picture = hparams = say = sync = saved = close = _nothing
    record = summarise = _nothing


def _wait_to_be_newest(folder: Path) -> bool:
    """Wait up to 2 s until a new file is the last by name, which is TensorBoard's order. The name begins with a second.

    Two files of one second stand in the order of their process numbers, so that what a resumed training writes could
    come before what was written before it, and be taken for lost.
    """
    seconds = (path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*.*"))
    newest = max((int(second) for second in seconds if second.isdecimal()), default=0)  # a person may have renamed one
    until = time.time() + 2
    while int(time.time()) <= newest and time.time() < until:
        time.sleep(0.02)
    return int(time.time()) > newest


def _say_nothing_of_os_errors(failure: threading.ExceptHookArgs) -> None:
    if not isinstance(failure.exc_value, OSError):
        threading.__excepthook__(failure)


def _told(metrics: dict[str, float]) -> str:
    """The scores in a line, behind those of the whole split those of each direction: `en-de nll 1.20 bleu 30.10`."""
    whole, by_direction = [], {}
    for name, value in metrics.items():
        metric, _, direction = name.partition("/")
        (by_direction.setdefault(direction, []) if direction else whole).append(f"{metric} {rounded(value)}")
    told = [f"{direction} {' '.join(scores)}" for direction, scores in by_direction.items()]
    return "; ".join([", ".join(whole), *told])


def _plain(text: str) -> str:
    """The text escaped, so that TensorBoard's Markdown shows it as it is."""
    return "".join("\\" + character if character in r"\`*_{}[]()#+-.!|<>" else character for character in text)
