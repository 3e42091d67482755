"""What a training says of its updates and their time. The oracle is sums by hand, and a clock that only tests move."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from toy import toy_config
from trainings import metrics_with_clock

from transformer_mt.data.preparation import prepare_data
from transformer_mt.evaluation.nll import tokens_at_once
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import batch_feed as feed
from transformer_mt.training import loop
from transformer_mt.training.monitoring import meter
from transformer_mt.training.monitoring.monitor import Monitor
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.running_update import UpdateResult
from transformer_mt.training.updates import Updater
from transformer_mt.training.validation import Validator


@dataclass
class Clock:
    """Seconds of its own, for the loop and the feed."""

    patch: pytest.MonkeyPatch
    now: float = 0.0

    def takes(self, place: object, name: str, seconds: float) -> None:
        """Let this function take so long."""
        work = getattr(place, name)

        def timed(*arguments):
            self.now += seconds
            return work(*arguments)

        self.patch.setattr(place, name, timed)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(monkeypatch)
    for module in (meter, feed):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def test_a_line_is_of_the_updates_since_the_last_and_of_their_time_alone(
    corpus: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After step 7 comes a validation, after step 10 a checkpoint; each takes longer than all steps together."""
    results: list[UpdateResult] = []
    batches: list[list[tuple[int, int]]] = []  # of each update, the positions of its micro-batches and what is filled
    update = Updater.update

    def noted(self: Updater, split, micro_batches, *arguments):
        running = update(self, split, micro_batches, *arguments)
        results.append(running.result())
        lengths = [(split.src_lengths[rows], split.tgt_lengths[rows]) for rows in micro_batches]
        batches.append([(len(src) * int(src.max() + tgt.max()), int(src.sum() + tgt.sum())) for src, tgt in lengths])
        return running

    monkeypatch.setattr(Updater, "update", noted)
    clock.takes(Updater, "update", 2)
    clock.takes(feed.Feed, "_in_turn", 0.25)
    clock.takes(Validator, "validate", 100)
    clock.takes(loop, "save_checkpoint", 1000)
    monkeypatch.setattr(loop, "is_better", lambda *_: False)  # what is the best so far is saved at once
    training = {"grad_accum": 2, "max_steps": 12, "log_every_steps": 4}
    config = toy_config(corpus, model={"num_experts": 2}, training=training)
    start_or_resume(config, RunFolder(tmp_path / "run"), resume=False)
    lines = [line for line in metrics_with_clock(tmp_path / "run") if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [4, 8, 12]
    for line, others in zip(lines, (0, 100, 1100), strict=True):
        since = slice(line["step"] - 4, line["step"])
        own, cut = results[since], [batch for update in batches[since] for batch in update]
        tokens, cells = sum(result.num_tokens for result in own), sum(cells for cells, _ in cut)
        waited = 0.25 * len(cut)
        expected = {
            "loss": sum(result.loss for result in own) / tokens,
            "nll": sum(result.nll for result in own) / tokens,
            "load_balancing": sum(result.load_balancing or 0 for result in own) / tokens,
            "lr": own[-1].lr,
            "grad_norm": own[-1].grad_norm,
            "padding": 1 - sum(filled for _, filled in cut) / cells,
            "num_tokens": sum(result.num_tokens for result in results[: line["step"]]),
            "tokens_per_second": tokens / (4 * 2 + waited),
            "data_wait": waited / (4 * 2 + waited),
            "elapsed_seconds": 2 * line["step"] + 0.25 * sum(map(len, batches[: line["step"]])) + others,
        }
        assert {name: line[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("limits", "seconds", "saves"),
    [
        ({"max_steps": 30, "max_minutes": 100}, 2.0, 4 / 15),
        ({"max_steps": 50, "max_minutes": 1}, 2.0, 0.0),
        ({"max_steps": None, "max_epochs": 3}, 3.0, 4 / 15),
    ],
)
def test_the_time_left_is_that_to_the_limit_that_comes_first(
    corpus: Path,
    tmp_path: Path,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    limits: dict,
    seconds: float,
    saves: float,
) -> None:
    """Where each step takes as long as those before it, and a save comes every 15 steps; `saves` is what a step's share
    in one takes, where it is steps that end the training. What is tried before the first step does not count.
    """
    clock.takes(Updater, "update", seconds)
    clock.takes(loop, "probe", 10)
    clock.takes(loop, "save_checkpoint", 4)
    training = {"max_tokens": 60, "grad_accum": 2, "log_every_steps": 100, "checkpoint_every_steps": 15, **limits}
    config = toy_config(corpus, training=training, validation={"every_steps": 22})
    plan = prepare_data(config).train.plan(tokens_at_once(config), config.seed, 0)
    assert plan.num_micro_batches is not None
    assert plan.num_micro_batches % 2 == 1, "the last update of an epoch should be of one micro-batch"
    shown: list[str] = []  # by the bar, after each step
    monkeypatch.setattr(Monitor, "advance", lambda monitor, left: shown.append(left))
    outcome = start_or_resume(config, RunFolder(tmp_path / "run"), resume=False)
    left = (outcome.step - 20) * (seconds + saves)
    assert shown[19] == f"about {left:.0f} s left"
    said = capsys.readouterr().out
    assert f"{seconds:.2f} seconds a step over the first 20: about {left:.0f} s left\n" in said
    left = (outcome.step - 22) * (seconds + saves)
    assert re.search(rf"step 22 \(.* min, about {left:.0f} s left\): nll", said)
