"""The training loop: updates, validations and checkpoints in their order."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches.batching import Rows
from transformer_mt.data.batches.plan import Plan
from transformer_mt.data.noise.epoch_split import split_by_epochs
from transformer_mt.data.preparation import TrainingData
from transformer_mt.diagnosing.spikes import note_update
from transformer_mt.errors import ToldElsewhereError
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.batch_feed import Feed, moved
from transformer_mt.training.compiling import why_not_compiled
from transformer_mt.training.debugging.diagnosis import diagnose
from transformer_mt.training.debugging.not_finite import NotFiniteError
from transformer_mt.training.explaining import go_uncompiled, is_split, nll_not_finite, not_saved, shape_of, shared_out
from transformer_mt.training.final_average import average_at_end, average_is_due
from transformer_mt.training.memory.choose_max_tokens import choose_max_tokens
from transformer_mt.training.memory.probe import probe
from transformer_mt.training.monitoring.attention_picture import attention_picture
from transformer_mt.training.monitoring.look import look
from transformer_mt.training.monitoring.meter import Meter
from transformer_mt.training.monitoring.monitor import Monitor
from transformer_mt.training.monitoring.spiked_pairs import spiked_pairs
from transformer_mt.training.monitoring.step_profile import StepProfiler
from transformer_mt.training.proofs.prove import OFF, prove
from transformer_mt.training.resuming.checkpoints import SaveError, check_folder, save_checkpoint
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.running_update import RunningUpdate, UpdateResult
from transformer_mt.training.stop_signals import StopRequest, StopRequestedError
from transformer_mt.training.updates import Updater
from transformer_mt.training.validation import Validator, is_better, validation_precision

T = TypeVar("T")

SPIKES_WITH_PAIRS = 20  # of a run: those after them are counted alone, so that a wild training is not slow too
ASKED_ELSEWHERE = 143  # the exit status of a process that stops because another one was asked to: that of SIGTERM


class Trainer:
    """Puts updates, validations and checkpoints in their order. The order is a function of the state alone."""

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
        self.split = split_by_epochs(data, config)
        self.updater = updater
        self.run = run
        self.state = state
        self.monitor = monitor
        self.request = request
        self.profiler = profiler
        self.world = updater.world
        precision = validation_precision(config.decoding.precision, updater.model, state, updater.device, self.world)
        self.validator = Validator(config, data, precision, self.world)
        self.feed = Feed(
            lambda epoch: self._plan(state.max_tokens, epoch),
            lambda rows: moved(self.split.batch(rows), updater.device),
            self.world.rank,
            self.world.size,
            config.training.max_epochs,
        )
        self.meter = Meter(config, state)
        request.on_continue = self.meter.skip
        self.stop_status: int | None = None  # None until a signal reached any of the processes
        self.last_metrics: dict[str, float] = {}
        # Weights that were taken from another run are saved before the first step: from then on it is not needed.
        self._saved_step = state.step if state.step or config.training.init_from is None else None
        self._said_split = False
        self._prepared = False  # whether the newest step did something for the sake of later ones
        self._unsettled: RunningUpdate | None = None  # the update that was ordered last and not waited for yet

    def train(self) -> str | None:
        """Train until the config or a signal says stop. Returns the config's reason to stop, None for a signal."""
        with self.feed:
            reason = self._train()
        if self.profiler is not None:
            self.profiler.close()
        return reason

    def _train(self) -> str | None:
        state = self.state
        if state.reason_to_stop(self.config) is None:
            self._rehearse()
        while True:
            self._agree()
            due, best_before = state.validation_is_due(self.config), (state.best_step, state.best_metrics)
            validated, is_best = self._validate() if due else (False, False)
            if due:
                self._agree()
            # Where a signal cut a validation short, the training is not over: the validation is still to be done.
            reason = state.reason_to_stop(self.config) if validated or not due else None
            stopping = reason is not None or self.stop_status is not None
            regular = is_best or reason is not None or state.step % self.config.training.checkpoint_every_steps == 0
            if regular or stopping:
                saved = self._save(again=validated, needed=stopping, only_for_a_stop=not regular)
                if is_best and not saved:
                    state.best_step, state.best_metrics = best_before
            if stopping:
                return reason if reason is None or self._average() else None
            self._step()

    def _agree(self) -> None:
        """All processes stop together where one of them was asked to, and all take the clock of the first."""
        if self.world.size == 1:
            self.stop_status = self.request.exit_status
            return
        asked, elapsed = self.request.exit_status, self.state.elapsed_seconds
        own = [float(asked is not None), elapsed if self.world.is_first else 0.0]
        num_asked, self.state.elapsed_seconds = self.world.sum(own)
        if num_asked:
            self.stop_status = asked or ASKED_ELSEWHERE

    def _rehearse(self) -> None:
        """Try the largest micro-batch, and compile the step: a failure comes now rather than hours from now."""
        if self.state.max_tokens == 0:
            self._choose_max_tokens()
        plan = self.feed.plan(self.state.epoch)
        self._note_length(plan)
        if (number := self.meter.updates_until_max_epochs(0)) is not None:
            self.monitor.expect(number)
        if self.state.step == 0:
            self.monitor.say(self._prove(plan.known()))
        accumulates = self.state.micro_batches_per_update > self.world.size
        largest = self._or_uncompiled(lambda: probe(self.updater, self.split, plan.known(), accumulates))
        if largest is not None:
            self._say_split(f"the largest micro-batch ({shape_of(self.split, largest)})")
        self._say_compiled("before the first step", self.meter.tick())  # so this time does not slow the first step

    def _prove(self, micro_batches: list[Rows]) -> str:
        if (wanted := self.config.training.proofs) == "off":
            return OFF
        return prove(self.updater, self.split, micro_batches, stops=wanted == "stop")

    def _choose_max_tokens(self) -> None:
        """Share the update out into the largest micro-batches that fit, and keep that in the state for the run's life:
        the order of the data depends on it.
        """
        update_tokens, max_len = self.config.training.update_tokens, self.config.model.max_len
        assert update_tokens is not None, "the config refuses that"

        def plan(max_tokens: int) -> list[Rows]:
            return self._plan(max_tokens, self.state.epoch).known()

        chosen = self._or_uncompiled(lambda: choose_max_tokens(self.updater, self.split, plan, update_tokens, max_len))
        self.state.max_tokens = chosen.max_tokens
        self.state.micro_batches_per_update = chosen.grad_accum * self.world.size
        self.monitor.say(shared_out(chosen.max_tokens, chosen.grad_accum, self.world.size))

    def _plan(self, max_tokens: int, epoch: int) -> Plan:
        return self.split.plan(max_tokens, self.config.seed, epoch)

    def _or_uncompiled(self, attempt: Callable[[], T]) -> T:
        """What the attempt returns; a second one without the compiler where that is what failed."""
        try:
            return attempt()
        except Exception as error:
            if not self.updater.compiled or (reason := why_not_compiled(error)) is None:
                raise
            self.monitor.say(go_uncompiled(self.updater, self.config.training.compile, reason))
            self.state.compiled = False
        return attempt()

    def _note_length(self, plan: Plan) -> None:
        """Tell the meter how many updates an epoch has, where that is known. The bar and the time left go by it."""
        if (number := plan.num_micro_batches) is not None:
            self.meter.know_epoch(-(-number // self.state.micro_batches_per_update))

    def _say_compiled(self, when: str, seconds: float) -> bool:
        """Say what was compiled since the last call. Returns whether anything was compiled."""
        news = self.updater.compiled and self.updater.compiled.news(when, seconds)
        if news:
            self.monitor.say(news)
        return bool(news)

    def _say_split(self, what: str) -> None:
        """Say, once a start, that micro-batches are split."""
        if not self._said_split:
            self._said_split = True
            self.monitor.say(is_split(what, self.state.max_tokens))

    def _step(self) -> None:
        """Make one update, and move the state on by it."""
        state, plan = self.state, self.feed.plan(self.state.epoch)
        self._note_length(plan)
        micro_batches = plan.take(state.micro_batch, state.micro_batches_per_update)
        batch_of = partial(self.feed.batch, state.epoch, state.micro_batch)
        place = f"epoch {state.epoch + 1}, micro-batch {state.micro_batch + 1}"
        with self._diagnosing():
            update = self.updater.update(self.split, micro_batches, state.step + 1, place, batch_of)
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
        self._count_time()
        if writes and result is not None:
            self.monitor.train(state.step, self._line_of_metrics(result))
        if self.profiler is not None:
            self.profiler.step_done(state.step, self._prepared)
            self.meter.tick()  # so the next step is not charged for the writing of a trace
        for line in self.meter.news():
            self.monitor.say(line)
        self.monitor.advance(self.meter.left())

    def _settle(self) -> UpdateResult | None:
        """Wait for the update that was ordered last, and count it. Until then nobody knows whether it was finite, so
        the state must be neither saved nor validated.
        """
        if (update := self._unsettled) is None:
            return None
        self._unsettled = None
        with self._diagnosing():
            result = update.result()
        if result.num_split:
            self._say_split(f"a micro-batch of step {update.step:,}")
        self.meter.count_update(result)
        self._watch_spikes(update, result)
        return result

    def _watch_spikes(self, update: RunningUpdate, result: UpdateResult) -> None:
        """Record an update whose loss stands out, with its pairs. All processes come to the same result."""
        state, nll = self.state, result.nll / result.num_tokens
        if (usual := note_update(state.updates, nll, result.num_tokens)) is None:
            return
        figures = {"nll": nll, "usual": usual.nll, "spread": usual.spread, "grad_norm": result.grad_norm}
        figures |= {"num_pairs": sum(map(len, update.micro_batches)), "pairs": []}
        if state.updates["num_spikes"] <= SPIKES_WITH_PAIRS:
            with self.updater.whole_model() as model:
                if self.world.is_first:
                    figures["pairs"] = spiked_pairs(model, update, self.data)
        self.monitor.record("spike", update.step, figures)

    def _catch_up(self) -> None:
        """Settle the update that was ordered last, and count the wait as time of its step."""
        if self._unsettled is not None:
            self._settle()
            self._count_time(settling=True)

    def _count_time(self, settling: bool = False) -> None:
        seconds = self.meter.tick()
        compiled = self._say_compiled(f"in step {self.state.step:,}", seconds)
        if self.updater.graphs is not None:
            compiled |= self.updater.graphs.take_prepares()
        self._prepared = compiled
        waited = min(seconds, self.feed.take_waited())  # whose clock runs on while the process is halted
        self.meter.count_step(seconds, waited, compiled, settling)

    def _line_of_metrics(self, result: UpdateResult) -> dict[str, float]:
        """The metrics of the updates since the last line; `result` is that of the newest."""
        metrics = self.meter.take_line(result)
        if self.updater.device.type == "cuda":
            # What graphs keep counts as free, though nothing else can have it.
            in_graphs = self.updater.graphs is not None and self.updater.graphs.num_captured
            peak = torch.cuda.max_memory_reserved if in_graphs else torch.cuda.max_memory_allocated
            metrics["peak_memory"] = peak(self.updater.device)
        if self.updater.compiled:
            metrics["compiled_graphs"] = self.updater.compiled.num_graphs
        if self.updater.graphs is not None:
            metrics["captured_graphs"] = self.updater.graphs.num_captured
        return metrics

    @contextmanager
    def _diagnosing(self) -> Iterator[None]:
        """While inside, an update that is not finite is diagnosed, and the training ends with what was found."""
        try:
            yield
        except NotFiniteError as error:
            with self.updater.whole_model() as model:
                found = self.world.first(partial(diagnose, error, self.updater, model, self.run), patient=True)
            raise self.world.told_by_one(found) from error

    def _validate(self) -> tuple[bool, bool]:
        """Validate. Returns whether that was finished (a signal ends it early), and whether the scores are the best."""
        self._catch_up()
        state, picture, seen = self.state, None, {}
        with self.updater.whole_model(self.updater.averages) as model:
            try:
                result = self.validator.validate(model, self.request.check)
            except StopRequestedError:
                return False, False
            finally:
                self.meter.count_validation()
            if not math.isfinite(nll := result.metrics["nll"]):  # the same in all processes
                raise self.world.told_by_one(nll_not_finite(nll, state.step, self.updater.precision))
            if self.world.is_first:
                picture = attention_picture(model, result.samples[0], self.data) if result.samples else None
                seen = look(self.config, model, self.updater, self.data, result)
        is_best = is_better(self.config.validation.metric, result.metrics, state.best_metrics)
        if is_best:
            state.best_step, state.best_metrics, state.num_bad_validations = state.step, result.metrics, 0
        else:
            state.num_bad_validations += 1
        state.last_validation_step = state.step
        self.last_metrics = result.metrics
        self.monitor.validation(state, result, is_best, self.meter.say_left())
        self.monitor.record("look", state.step, {"epoch": state.epoch, **seen})
        if picture is not None:
            self.monitor.picture("cross-attention", picture, state.step)
        self.meter.count_validation()  # so the next step is not charged for the drawing
        return True, is_best

    def _average(self) -> bool:
        """Make what `training.average_last` asks for at the end. False where a signal came before it was done."""
        try:
            if self.world.first(lambda: average_is_due(self.config, self.run, self.state)):
                average_at_end(
                    self.config, self.run, self.state, self.updater, self.validator, self.monitor, self.request.check
                )
        except StopRequestedError:
            self.stop_status = self.request.exit_status or ASKED_ELSEWHERE
            return False
        return True

    def _save(self, again: bool, needed: bool, only_for_a_stop: bool) -> bool:
        """Save the state, unless this step is saved already. `again`: save it anyway, for a validation changed it.
        `only_for_a_stop`: see `TrainingState`.

        Returns whether the step is saved. Where it cannot be saved, the training goes on if the config says so and the
        save is not `needed`.
        """
        self._catch_up()
        state = self.state
        if state.step == self._saved_step and not again:
            return True
        state.only_for_a_stop = only_for_a_stop
        state.loss_scale = self.updater.scaler.state_dict() or None
        limit = self.updater.limit.smallest_failed
        state.memory_limit = int(limit) if math.isfinite(limit) else None
        # An epoch that this training never reads is not opened, for its source may be gone. None is its beginning.
        is_read = state.micro_batch > 0 or state.reason_to_stop(self.config) is None
        state.stream = self.feed.plan(state.epoch).place(state.micro_batch) if is_read else None
        weights, moments = self.updater.tensors()

        def save() -> None:
            check_folder(self.run, state.step)
            self.monitor.sync()
            save_checkpoint(self.run, weights, moments, state, self.config)
            self.monitor.saved()

        try:
            self.world.first(save, patient=True)
            self._saved_step = state.step
        except (SaveError, OSError, ToldElsewhereError) as error:
            if needed or self.config.training.on_save_error == "stop":
                raise
            self.monitor.say(not_saved(error, self.run))
            return False
        finally:
            self.meter.count_save()
        return True
