"""The training loop."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from transformer_mt.config.run_folder import RunFolder
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batching import Rows
from transformer_mt.data.plan import Plan
from transformer_mt.data.preparation import TrainingData
from transformer_mt.decoding.precision import choose_search_precision
from transformer_mt.errors import ToldElsewhereError, UserError
from transformer_mt.training.attention_picture import attention_picture
from transformer_mt.training.checkpoints import SaveError, check_folder, save_checkpoint
from transformer_mt.training.compiling import why_not_compiled
from transformer_mt.training.diagnosis import diagnose
from transformer_mt.training.feed import Feed, moved
from transformer_mt.training.interrupt import StopRequest, StopRequestedError
from transformer_mt.training.monitor import Monitor, duration
from transformer_mt.training.not_finite import NotFiniteError
from transformer_mt.training.profile import StepProfiler
from transformer_mt.training.running_update import RunningUpdate, UpdateResult
from transformer_mt.training.state import TrainingState
from transformer_mt.training.updates import Updater
from transformer_mt.training.validation import Validator, is_better

STEPS_TIMED = 20
LONG_MINUTES = 30
ASKED_ELSEWHERE = 143  # the exit status of a process that stops since another one was asked to: that of SIGTERM


class Trainer:
    """Puts updates, validations and checkpoints in their order, which is a function of the state alone."""

    def __init__(
        self,
        config: RunConfig,
        data: TrainingData,
        updater: Updater,
        run: RunFolder,
        state: TrainingState,
        monitor: Monitor,
        request: StopRequest,
        profiler: StepProfiler | None = None,
    ) -> None:
        self.config = config
        self.data = data
        self.updater = updater
        self.run = run
        self.state = state
        self.monitor = monitor
        self.request = request
        self.profiler = profiler
        self.world = updater.world
        self.validator = Validator(config, data, self._validation_precision(), self.world)
        self.feed = Feed(
            self._plan,
            lambda rows: moved(data.train.batch(rows), updater.device),
            self.world.rank,
            self.world.size,
            config.training.max_epochs,
        )
        self.per_update = config.training.grad_accum * self.world.size
        self.stop_status: int | None = None  # what all processes know of their requests
        self.last_metrics: dict[str, float] = {}
        if config.training.max_epochs is not None and (number := self._updates_an_epoch()) is not None:
            monitor.expect(config.training.max_epochs * number)
        self._saved_step = state.step
        self._first_step = state.step
        self._step_seconds, self._num_compiling = 0.0, 0  # of this start's steps, and those of them that compiled
        self._said_split = False
        self._unsettled: RunningUpdate | None = None  # the update that was ordered last, until it is waited for
        self._num_graphs = 0  # that the console knows of
        self._clock = time.perf_counter()

    def _validation_precision(self) -> str:
        """Measured once a run where it is auto: twice could be two answers."""
        state, wanted = self.state, self.config.decoding.precision
        device, d_model = self.updater.device, self.config.model.d_model
        if wanted != "auto":
            return choose_search_precision(wanted, device, d_model).value
        if not state.validation_precision:
            state.validation_precision = self.world.first(
                lambda: choose_search_precision(wanted, device, d_model).value
            )
        return state.validation_precision

    def train(self) -> str | None:
        """Train until the config or a signal says stop. Returns the config's reason, None for a signal."""
        with self.feed:
            reason = self._train()
        if self.profiler is not None:
            self.profiler.close()
        return reason

    def _train(self) -> str | None:
        state = self.state
        if state.reason_to_stop(self.config) is None:
            self._probe_memory()
        while True:
            self._agree()
            due = self._validation_is_due(ending=state.reason_to_stop(self.config) is not None)
            best_before = state.best_step, state.best_metrics
            validated, is_best = self._validate(state.step) if due else (False, False)
            if due:
                self._agree()
            # A validation that a signal cut short is still to be done, so the training is not over.
            reason = state.reason_to_stop(self.config) if validated or not due else None
            stopping = reason is not None or self.stop_status is not None
            if is_best or stopping or state.step % self.config.training.checkpoint_every_steps == 0:
                saved = self._save(again=validated, needed=stopping)
                if is_best and not saved:
                    state.best_step, state.best_metrics = best_before
            if stopping:
                return reason
            self._step()

    def _agree(self) -> None:
        """All processes stop together, where one of them is asked to, and go by one clock, that of the first."""
        if self.world.size == 1:
            self.stop_status = self.request.exit_status
            return
        asked, elapsed = self.request.exit_status, self.state.elapsed_seconds
        own = [float(asked is not None), elapsed if self.world.is_first else 0.0]
        num_asked, self.state.elapsed_seconds = self.world.sum(own)
        if num_asked:
            self.stop_status = asked or ASKED_ELSEWHERE

    def _probe_memory(self) -> None:
        """Whether the largest micro-batch fits, and whether the step compiles: now rather than hours from now."""
        micro_batches = self.feed.plan(self.state.epoch).known()
        try:
            largest = self.updater.probe(self.data.train, micro_batches)
        except Exception as error:
            if not self.updater.compiled or (reason := why_not_compiled(error)) is None:
                raise
            self._go_uncompiled(reason)
            largest = self.updater.probe(self.data.train, micro_batches)
        if largest is not None:
            self._say_split(f"memory: the largest micro-batch ({self._shape(largest)}) does not fit")
        self._say_compiled("before the first step", self._tick())  # no part of the speed of the first steps

    def _go_uncompiled(self, reason: str) -> None:
        """Compiling failed: go on without where that is for the program to choose."""
        said = f"The step could not be compiled here: {reason}"
        if self.config.training.compile != "auto":
            raise UserError(f"{said} Set training.compile: auto, or false.")
        self.updater.go_uncompiled()
        self.state.compiled = False
        self.monitor.say(f"warning: {said} Training goes on uncompiled, which is slower (training.compile: false).")

    def _say_compiled(self, when: str, seconds: float) -> bool:
        """Say that something was compiled since the last call, and how often that should be. Returns whether it was."""
        compiled = self.updater.compiled
        if not compiled or compiled.num_graphs == self._num_graphs:
            return False
        more, self._num_graphs = compiled.num_graphs - self._num_graphs, compiled.num_graphs
        self.monitor.say(
            f"compiled {when}: {more} graphs in {seconds:.0f} s, {self._num_graphs} in all; at most "
            f"{compiled.most_graphs} are expected"
        )
        return True

    def _say_split(self, what: str) -> None:
        """Once a start: that micro-batches are split, and how to do without."""
        if not self._said_split:
            self._said_split = True
            self.monitor.say(
                f"{what}, so it is split, and so is what is as large: the same gradient, every pair, less speed. "
                f"Lower training.max_tokens ({self.config.training.max_tokens:,}) to avoid it."
            )

    def _shape(self, rows: Rows) -> str:
        split = self.data.train
        src_len, tgt_len = (int(lengths[rows].max()) for lengths in (split.src_lengths, split.tgt_lengths))
        return f"{len(rows):,} sentences x {src_len:,} source and {tgt_len:,} target positions"

    def _step(self) -> None:
        """One update, and the state moved on by it."""
        state, plan = self.state, self.feed.plan(self.state.epoch)
        micro_batches = plan.take(state.micro_batch, self.per_update)
        batch_of = partial(self.feed.batch, state.epoch, state.micro_batch)
        place = f"epoch {state.epoch + 1}, micro-batch {state.micro_batch + 1}"
        with self._diagnosing():
            update = self.updater.update(self.data.train, micro_batches, state.step + 1, place, batch_of)
        self._settle()
        self._unsettled = update
        state.step += 1
        state.micro_batch += len(micro_batches)
        if not plan.has(state.micro_batch):
            if (summary := plan.summary()) is not None:
                self.monitor.say(summary)
            state.epoch, state.micro_batch = state.epoch + 1, 0
        writes = state.step % self.config.training.log_every_steps == 0
        result = self._settle() if writes or not self.updater.runs_ahead else None
        self._account_time()
        if writes and result is not None:
            self.monitor.train(state.step, self._line_of_metrics(result))
            state.window.clear()
        if self.profiler is not None:
            self.profiler.step_done(state.step)
            self._tick()  # writing a trace is no part of the next step
        self.monitor.advance(state)
        if state.step - self._first_step == STEPS_TIMED > self._num_compiling:
            self._tell_time_left()

    def _settle(self) -> UpdateResult | None:
        """Wait for the update that was ordered last, and add it to the sums since the last line of metrics. Until then
        the state does not know whether it was finite, and is neither saved nor validated.
        """
        if (update := self._unsettled) is None:
            return None
        self._unsettled = None
        with self._diagnosing():
            result = update.result()
        if result.num_split:
            self._say_split(f"memory: a micro-batch of step {update.step:,} does not fit")
        self.state.num_tokens += result.num_tokens
        self._add_to_window(
            loss=result.loss,
            nll=result.nll,
            num_tokens=result.num_tokens,
            num_cells=result.num_cells,
            num_padding=result.num_padding,
            load_balancing=result.load_balancing or 0.0,
            split_micro_batches=result.num_split,
            skipped_steps=result.skipped,
        )
        return result

    def _catch_up(self) -> None:
        """Settle what was ordered, in the time of its step."""
        if self._unsettled is not None:
            self._settle()
            self._account_time()

    def _account_time(self) -> None:
        """Count the time of the step that was made since the last tick."""
        seconds = self._tick()
        if self._say_compiled(f"in step {self.state.step:,}", seconds):
            self._num_compiling += 1
        else:
            self._step_seconds += seconds
        self._add_to_window(seconds=seconds, data_wait=self.feed.take_waited())

    def _add_to_window(self, **values: float) -> None:
        window = self.state.window
        for name, value in values.items():
            window[name] = window.get(name, 0.0) + value

    @contextmanager
    def _diagnosing(self) -> Iterator[None]:
        """Where an update turns out not to be finite, look into it and end the training with what was found."""
        try:
            yield
        except NotFiniteError as error:
            raise self._diagnosed(error) from error

    def _diagnosed(self, error: NotFiniteError) -> UserError:
        """What one of the processes finds, which all raise."""
        with self.updater.whole_model() as model:
            said = self.world.first(lambda: diagnose(error, self.updater, model, self.run), patient=True)
        return said if self.world.is_first else ToldElsewhereError(str(said))

    def _plan(self, epoch: int) -> Plan:
        return self.data.train.plan(self.config.training.max_tokens, self.config.seed, epoch)

    def _updates_an_epoch(self) -> int | None:
        """None where that is not known."""
        number = self.feed.plan(self.state.epoch).num_micro_batches
        return None if number is None else -(-number // self.per_update)

    def _line_of_metrics(self, result: UpdateResult) -> dict[str, float]:
        """What is said of the updates since the last line, of which `result` is the newest."""
        state, window = self.state, self.state.window
        metrics = {
            "loss": window["loss"] / window["num_tokens"],
            "nll": window["nll"] / window["num_tokens"],
            "lr": result.lr,
            "grad_norm": result.grad_norm,
            "padding": window["num_padding"] / window["num_cells"],
            "epoch": state.epoch,
            "num_tokens": state.num_tokens,
            "tokens_per_second": window["num_tokens"] / window["seconds"],
            "data_wait": window["data_wait"] / window["seconds"],
            "elapsed_seconds": state.elapsed_seconds,
        }
        if result.load_balancing is not None:
            metrics["load_balancing"] = window["load_balancing"] / window["num_tokens"]
        if self.updater.precision == "fp16":
            metrics["skipped_steps"] = int(window["skipped_steps"])
        if window["split_micro_batches"]:
            metrics["split_micro_batches"] = int(window["split_micro_batches"])
        if self.updater.device.type == "cuda":
            metrics["peak_memory"] = torch.cuda.max_memory_allocated(self.updater.device)
        if self.updater.compiled:
            metrics["compiled_graphs"] = self.updater.compiled.num_graphs
        return metrics

    def _tick(self) -> float:
        """Seconds since the last tick, added to the time that the run has taken."""
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        self.state.elapsed_seconds += seconds
        return seconds

    def _validation_is_due(self, ending: bool) -> bool:
        state, validation = self.state, self.config.validation
        if state.step in (0, state.last_validation_step):
            return False
        if validation.every_steps is not None:
            return ending or state.step % validation.every_steps == 0
        return ending or (state.micro_batch == 0 and state.epoch % (validation.every_epochs or 1) == 0)

    def _validate(self, step: int) -> tuple[bool, bool]:
        """Whether the validation was finished (a signal ends it; a resumed run does it again), and was the best."""
        self._catch_up()
        state = self.state
        picture = None
        with self.updater.whole_model() as model:
            try:
                result = self.validator.validate(model, self.request.check)
            except StopRequestedError:
                return False, False
            finally:
                self._tick()
            if not math.isfinite(result.metrics["nll"]):
                raise self._not_finite(result.metrics["nll"])
            if self.world.is_first:
                picture = attention_picture(model, result.samples[0], self.data)
        is_best = is_better(self.config.validation.metric, result.metrics, state.best_metrics)
        if is_best:
            state.best_step, state.best_metrics, state.num_bad_validations = step, result.metrics, 0
        else:
            state.num_bad_validations += 1
        state.last_validation_step = step
        self.last_metrics = result.metrics
        self.monitor.validation(state, result, is_best)
        self.monitor.picture("cross-attention", picture, step)
        return True, is_best

    def _not_finite(self, nll: float) -> UserError:
        if not self.world.is_first:  # all have the same nll
            return ToldElsewhereError(f"the validation nll is {nll}")
        precise = "" if self.updater.precision == "fp32" else ", or set training.precision: fp32"
        return UserError(
            f"The validation nll is {nll} at step {self.state.step:,}, so the training stops; the checkpoints are as "
            f"they were. Lower the learning rate (training.factor or training.lr){precise}."
        )

    def _save(self, again: bool, needed: bool) -> bool:
        """Save the state, unless this step is saved as it is. `again`: something was learned about it since.

        Returns whether it is saved. Where it cannot be, goes on if the config says so and it is not `needed`.
        """
        self._catch_up()
        state, training = self.state, self.config.training
        if state.step == self._saved_step and not again:
            return True
        state.loss_scale = self.updater.scaler.state_dict() or None
        limit = self.updater.limit.smallest_failed
        state.memory_limit = int(limit) if math.isfinite(limit) else None
        state.stream = self.feed.plan(state.epoch).place(state.micro_batch)
        weights, moments = self.updater.tensors()

        def save() -> None:
            check_folder(self.run, state.step)
            self.monitor.sync()
            save_checkpoint(self.run, weights, moments, state, self.config)

        try:
            self.world.first(save, patient=True)
            self._saved_step = state.step
        except (SaveError, OSError, ToldElsewhereError) as error:
            if needed or training.on_save_error == "stop":
                raise
            reason = str(error)
            if isinstance(error, OSError):
                reason = f"{error.filename or self.run.path} could not be written: {error.strerror or error}."
            self.monitor.say(f"warning: {reason} Training goes on, as training.on_save_error says.")
            return False
        finally:
            self._tick()
        return True

    def _tell_time_left(self) -> None:
        """What is left, as measured over the first steps of this start; where that is long, a way out."""
        state, training = self.state, self.config.training
        per_step = self._step_seconds / (STEPS_TIMED - self._num_compiling)
        limits = []
        if training.max_steps is not None:
            limits.append((training.max_steps - state.step) * per_step / 60)
        if training.max_epochs is not None and (per_epoch := self._updates_an_epoch()) is not None:
            done = state.epoch + state.micro_batch / self.per_update / per_epoch
            limits.append((training.max_epochs - done) * per_epoch * per_step / 60)
        if training.max_minutes is not None:
            limits.append(training.max_minutes - state.elapsed_seconds / 60)
        if not limits:  # an epoch of a stream, whose length is not known
            self.monitor.say(f"{per_step:.2f} seconds a step over the first {STEPS_TIMED}")
            return
        minutes = min(limits)
        self.monitor.say(f"{per_step:.2f} seconds a step over the first {STEPS_TIMED}: about {duration(minutes)} left")
        # Who gave a number of minutes knows how long it takes.
        if self.updater.device.type == "cpu" and minutes > LONG_MINUTES and training.max_minutes is None:
            self.monitor.say(
                "That is long because there is no GPU. A model sized for a CPU: tmt train --config quickstart.yaml"
            )
