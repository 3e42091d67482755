"""What a training shows and writes while it runs: TensorBoard, metrics.jsonl, a bar, a line a validation."""

import math
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from transformer_mt.config.loading import dump_config
from transformer_mt.config.run_folder import RunFolder
from transformer_mt.config.schema import RunConfig
from transformer_mt.training.metrics_file import MetricsFile
from transformer_mt.training.state import TrainingState
from transformer_mt.training.validation import ValidationResult

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


class Monitor:
    """Opened at the state that the training starts or goes on from; what earlier starts wrote after it is cut off."""

    def __init__(self, run: RunFolder, config: RunConfig, state: TrainingState) -> None:
        self.config = config
        self.run = run
        is_gone = state.step > 0 and not run.metrics.exists()
        self.metrics_file = MetricsFile(run.metrics, state)
        # TensorBoard's own thread writes; what stops it is raised once more at the next call, where it is handled.
        self.excepthook, threading.excepthook = threading.excepthook, _say_nothing_of_os_errors
        self.board: SummaryWriter | None = self._open_board(state.step + 1)
        self.bar = tqdm(
            total=config.training.max_steps,
            initial=state.step,
            unit=" steps",
            disable=not sys.stderr.isatty(),
            smoothing=0.1,
        )
        if is_gone:
            self.say(
                f"warning: {run.metrics} is gone, and with it the numbers of the steps up to {state.step:,}, which "
                "TensorBoard's files may have still. A new one begins here."
            )
        if state.step == 0:
            self._draw(lambda board: board.add_text("config", f"```yaml\n{dump_config(config)}```"))

    def train(self, step: int, metrics: dict[str, float]) -> None:
        """Numbers since the last line; see `docs/training.md` for what each is."""
        self._line("train", step, metrics)
        names = ("loss", "nll", "load_balancing", "lr", "grad_norm", "tokens_per_second", "padding", "data_wait",
                 "skipped_steps", "split_micro_batches", "compiled_graphs")  # fmt: skip
        self._curves("train", {name: metrics[name] for name in names if name in metrics}, step)
        shown = {"loss": f"{metrics['loss']:.3f}", "tok/s": f"{metrics['tokens_per_second']:,.0f}"}
        self.bar.set_postfix({**shown, "lr": f"{metrics['lr']:.2e}"}, refresh=False)

    def advance(self, state: TrainingState) -> None:
        """One step further on the bar. Where minutes end the training, they say what is left."""
        if self.config.training.max_minutes is not None:
            left = max(0.0, self.config.training.max_minutes - state.elapsed_seconds / 60)
            self.bar.set_description(f"at most {left:.0f} min left", refresh=False)
        self.bar.update()

    def validation(self, state: TrainingState, result: ValidationResult, best: bool) -> None:
        """One line on the console, curves, and the sample translations as text."""
        step, epoch = state.step, state.epoch
        self._line("validation", step, {**result.metrics, "epoch": epoch, "elapsed_seconds": state.elapsed_seconds})
        self._curves("validation", result.metrics, step)
        for i, sample in enumerate(result.samples, start=1):
            rows = (("source", sample.src), ("reference", sample.reference), ("translation", sample.hypothesis))
            sample = "\n\n".join(f"**{name}**: {_plain(text)}" for name, text in rows)
            self._draw(lambda board, i=i, sample=sample: board.add_text(f"sample {i}", sample, step))
        numbers = ", ".join(f"{name} {value:.2f}" for name, value in result.metrics.items())
        place = f"after epoch {epoch}" if state.micro_batch == 0 else f"epoch {epoch + 1}"
        minutes = state.elapsed_seconds / 60
        self.say(f"step {step:,} ({place}, {minutes:.1f} min): {numbers}{'  *' if best else ''}")
        self._draw(lambda board: board.flush())

    def expect(self, num_steps: int) -> None:
        """Tell the bar how many steps the epochs come to, unless the steps are limited more closely."""
        self.bar.total = min(num_steps, self.bar.total or num_steps)

    def picture(self, name: str, pixels: Any, step: int) -> None:
        """An image (height, width, 3)."""
        self._draw(lambda board: board.add_image(name, pixels, step, dataformats="HWC"))

    def hparams(self, metrics: dict[str, float]) -> None:
        """The settings and the final scores, for TensorBoard's table of runs."""
        from torch.utils.tensorboard.summary import hparams

        settings = {
            f"{section}.{key}": value
            for section in ("tokenizer", "model", "training", "decoding")
            for key, value in getattr(self.config, section).model_dump().items()
            if isinstance(value, bool | int | float | str)
        }
        curves = {f"validation/{name}": value for name, value in metrics.items() if math.isfinite(value)}
        for summary in hparams(settings, curves):
            # `add_hparams` would put them in a run of their own
            self._draw(lambda board, summary=summary: board._get_file_writer().add_summary(summary))

    def say(self, text: str) -> None:
        """A line on standard output, around the bar."""
        try:
            self.bar.write(text, file=sys.stdout)
            sys.stdout.flush()
        except OSError as error:
            # Whoever read this is gone (`| tee log` dies of the same Ctrl-C as we do), or the disk under a log is full.
            # The training goes on.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error, BrokenPipeError):
                with suppress(OSError):
                    print(
                        f"tmt: standard output cannot be written ({error.strerror or error}); the training goes on "
                        "without it. What it says is in metrics.jsonl too.", file=sys.stderr,
                    )  # fmt: skip

    def sync(self) -> None:
        """Put what was written so far on the disk: called before a checkpoint that relies on it. Raises OSError."""
        self.metrics_file.sync()
        if self.board is None:
            self.board = self._open_board(None)
        self.board.flush()

    def close(self) -> None:
        """On a full disk, what could not be written stays unwritten: the checkpoints say how far the run is."""
        self.bar.close()
        for file in (self.board, self.metrics_file):
            with suppress(OSError):
                if file is not None:
                    file.close()
        threading.excepthook = self.excepthook

    def _line(self, kind: str, step: int, metrics: dict[str, float]) -> None:
        try:
            self.metrics_file.add(kind, step, metrics)
        except OSError as error:
            self._bear(error)

    def _curves(self, kind: str, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._draw(lambda board, name=name, value=value: board.add_scalar(f"{kind}/{name}", value, step))

    def _draw(self, draw: Callable[["SummaryWriter"], None]) -> None:
        """Something for TensorBoard, unless it has failed since the last checkpoint."""
        if self.board is None:
            return
        try:
            draw(self.board)
        except OSError as error:
            self._bear(error)
            board, self.board = self.board, None  # what failed once raises the same error for ever
            with suppress(OSError):
                board.close()

    def _bear(self, error: OSError) -> None:
        """Stop or go on, as the config says of checkpoints."""
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

        self.is_troubled = False
        return SummaryWriter(str(self.run.path), purge_step=purge_step)


class Silence(Monitor):
    """The monitor of a process that is not the first: nothing is shown or written."""

    def __init__(self) -> None:
        pass

    def train(self, step: int, metrics: dict[str, float]) -> None:
        pass

    def advance(self, state: TrainingState) -> None:
        pass

    def validation(self, state: TrainingState, result: ValidationResult, best: bool) -> None:
        pass

    def expect(self, num_steps: int) -> None:
        pass

    def picture(self, name: str, pixels: Any, step: int) -> None:
        pass

    def hparams(self, metrics: dict[str, float]) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


def _say_nothing_of_os_errors(failure: threading.ExceptHookArgs) -> None:
    if not isinstance(failure.exc_value, OSError):
        threading.__excepthook__(failure)


def _plain(text: str) -> str:
    """Text that TensorBoard's Markdown shows as it is."""
    return "".join("\\" + character if character in r"\`*_{}[]()#+-.!|<>" else character for character in text)


def duration(minutes: float) -> str:
    """A length of time for a person to read."""
    if minutes < 1.5:
        return f"{max(60 * minutes, 0):.0f} s"
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} hours" if minutes < 72 * 60 else f"{minutes / 60 / 24:.1f} days"
