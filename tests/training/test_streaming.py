"""Training on a stream: the training that a corpus gives, resumed to the pair, by any number of processes."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from torchrun import run_together
from toy import toy_config, toy_mapping, write_toy_corpus
from trainings import assert_same_run, metrics

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.preparation import prepare_data, prepare_training_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.memory.memory_parts import MemoryLimit, Part
from transformer_mt.training.run import start_or_resume

STEPS = 24
WINDOW = 25  # about five micro-batches, so that updates of two and epochs end everywhere in windows
TRAINING = {"grad_accum": 2, "max_steps": STEPS, "checkpoint_every_steps": 1, "keep_checkpoints": STEPS}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_toy_corpus(tmp_path_factory.mktemp("streaming") / "data")


def config_of(corpus: Path, window: int | None, **training: object) -> RunConfig:
    """With a window the training split is streamed."""
    data = {"cache_dir": str(corpus.parent / "cache")}
    if window is not None:
        data |= {"streaming": True, "shuffle_window": window}
    return toy_config(corpus, data=data, model={"dropout": 0.2}, training={**TRAINING, **training})


def train(config: RunConfig, run: Path, resume: bool = False) -> Path:
    assert start_or_resume(config, RunFolder(run), resume).exit_status == 0
    return run


@pytest.fixture(scope="module")
def straight(corpus: Path) -> Path:
    return train(config_of(corpus, WINDOW), corpus.parent / "runs" / "straight")


def state_of(run: Path, step: int) -> dict:
    return json.loads((run / "checkpoints" / f"step_{step}" / "state.json").read_text())


def test_a_window_as_large_as_the_corpus_is_the_training_on_the_corpus(corpus: Path) -> None:
    """Bit for bit: losses, validations, weights, moments."""
    short = {"max_steps": 10, "keep_checkpoints": 1}
    runs = [train(config_of(corpus, w, **short), corpus.parent / "runs" / f"w{w}") for w in (None, 1000)]
    assert metrics(runs[0]) == metrics(runs[1])
    assert state_of(runs[0], 10)["epoch"] >= 1
    for file in ("model.safetensors", "optimizer.safetensors"):
        one, two = ((run / "checkpoints" / "step_10" / file).read_bytes() for run in runs)
        assert one == two


def test_killed_after_any_checkpoint_and_resumed_it_is_the_same_run(corpus: Path, straight: Path) -> None:
    """In the middle of a window, at its end, and in a later epoch; what had come after the checkpoint is cut off."""
    states = {step: state_of(straight, step) for step in range(1, STEPS)}
    inside = next(s for s, state in states.items() if state["micro_batch"] > state["stream"]["micro_batch"] > 0)
    boundary = next(s for s, state in states.items() if state["micro_batch"] == state["stream"]["micro_batch"] > 0)
    late = next(s for s, state in states.items() if state["epoch"] == 1 and state["stream"]["window"] > 0)
    for step in {inside, boundary, late}:
        killed = straight.with_name(f"killed_{step}")
        shutil.copytree(straight, killed)
        for later in range(step + 1, STEPS + 1):
            shutil.rmtree(killed / "checkpoints" / f"step_{later}", ignore_errors=True)
        for pointer in ("best", "last"):
            (killed / "checkpoints" / pointer).unlink(missing_ok=True)
        train(config_of(corpus, WINDOW), killed, resume=True)
        assert_same_run(straight, killed, STEPS)


def test_an_epoch_is_over_after_every_pair(straight: Path, corpus: Path) -> None:
    """By the target tokens of its pairs."""
    per_epoch = int(prepare_data(config_of(corpus, None)).train.tgt_lengths.sum())
    tokens = {state["epoch"]: state["num_tokens"] for state in (state_of(straight, s) for s in range(1, STEPS))
              if state["micro_batch"] == 0}  # fmt: skip
    assert len(tokens) >= 2
    assert tokens == {epoch: epoch * per_epoch for epoch in tokens}


@pytest.mark.slow
def test_two_processes_train_as_one_that_accumulates(corpus: Path, straight: Path) -> None:
    """Losses and validations; `straight` has as many micro-batches an update."""
    folder = corpus.parent
    mapping = toy_mapping(
        corpus,
        data={**toy_mapping(corpus)["data"], "streaming": True, "shuffle_window": WINDOW,
              "cache_dir": str(folder / "cache")},
        model={"dropout": 0.2},
        training={**TRAINING, "grad_accum": 1},
    )  # fmt: skip
    (folder / "two.yaml").write_text(yaml.safe_dump(mapping))
    status, said = run_together(2, folder, "train", "--config", "two.yaml", "name=two")
    assert status == 0
    assert said.count("epoch 1 is over: 120 pairs were read") == 1
    for one, two in zip(metrics(straight), metrics(folder / "runs" / "two"), strict=True):
        for line in (one, two):  # exp makes more of a difference
            if "ppl" in line:
                assert line.pop("ppl") == pytest.approx(math.exp(line["nll"]), rel=1e-9)
        assert one == pytest.approx(two, abs=1e-4)


def test_max_epochs_ends_a_stream(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(config_of(corpus, 50, max_steps=None, max_epochs=1, keep_checkpoints=1), corpus.parent / "runs" / "one")
    last = max(int(path.name.removeprefix("step_")) for path in (run / "checkpoints").glob("step_*"))
    assert state_of(run, last)["epoch"] == 1
    assert "epoch 1 is over: 120 pairs were read" in capsys.readouterr().out


def test_a_source_that_is_gone_after_its_last_epoch_costs_no_weights(corpus: Path, tmp_path: Path) -> None:
    """A system deletes a file when its last reader closes it. With the file again the run can be made longer."""
    data = Path(shutil.copytree(corpus, tmp_path / "data"))

    def config_for(num_epochs: int) -> RunConfig:
        return toy_config(
            data,
            data={"cache_dir": str(corpus.parent / "cache"), "streaming": True, "shuffle_window": WINDOW},
            model={"dropout": 0.2},
            training={**TRAINING, "max_steps": None, "max_epochs": num_epochs},
            validation={"every_steps": None, "every_epochs": 1},
        )

    straight = train(config_for(2), tmp_path / "straight")
    ends = [step for step in range(1, STEPS) if (straight / f"checkpoints/step_{step}").is_dir()]
    last = next(step for step in ends if state_of(straight, step)["epoch"] == 1)
    gone, text = data / "train.en", (data / "train.en").read_bytes()
    outcome = start_or_resume(config_for(1), RunFolder(tmp_path / "run"), False, watch=lambda _: gone.unlink(True))
    assert (outcome.step, outcome.reason) == (last, "max_epochs 1 reached")
    gone.write_bytes(text)
    train(config_for(2), tmp_path / "run", resume=True)
    assert_same_run(straight, tmp_path / "run", ends[-1])


def test_a_run_is_not_made_a_stream_or_given_another_window(corpus: Path, straight: Path) -> None:
    before = (straight / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"data\.streaming: was True, is False"):
        train(config_of(corpus, None), straight, resume=True)
    with pytest.raises(UserError, match=r"data\.shuffle_window: was 25, is 26"):
        train(config_of(corpus, 26), straight, resume=True)
    assert (straight / "metrics.jsonl").read_bytes() == before


def test_other_text_is_refused(corpus: Path, straight: Path, tmp_path: Path) -> None:
    """A line more shows in the size; a word changed behind the first window, where the run goes on."""
    run = tmp_path / "run"
    shutil.copytree(straight, run)
    step = next(s for s in range(1, STEPS) if state_of(run, s)["stream"]["window"] == 2)
    for later in range(step + 1, STEPS + 1):
        shutil.rmtree(run / "checkpoints" / f"step_{later}", ignore_errors=True)
    other = tmp_path / "data"
    shutil.copytree(corpus, other)
    text = (other / "train.en").read_text()
    (other / "train.en").write_text(text + "one.\n")
    with pytest.raises(UserError, match=r"train: was a stream \(fingerprint .*is a stream"):
        train(config_of(other, WINDOW), run, resume=True)
    lines = text.split("\n")
    lines[60] = lines[60].replace(lines[60].split()[0], "two" if lines[60].split()[0] != "two" else "one", 1)
    lines[61] = lines[61] + " " * (len(text) - len("\n".join(lines)))
    (other / "train.en").write_text("\n".join(lines).ljust(len(text))[: len(text)])
    with pytest.raises(UserError, match=r"The data changed since this run was begun"):
        train(config_of(other, WINDOW), run, resume=True)


def test_memory_is_asked_of_a_stream_as_of_a_corpus(corpus: Path) -> None:
    """What is larger and how it is split, of micro-batches that come from several windows."""
    config = config_of(corpus, WINDOW)
    data, whole = prepare_training_data(config), prepare_data(config_of(corpus, None))
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer)
    limit = MemoryLimit(config.model, model.output.out_features)
    batches = data.train.plan(64, 3, 0).take(0, 12)
    lines = [np.array([int(data.train.where(int(row)).rpartition(" ")[2]) - 1 for row in rows]) for rows in batches]
    assert {int(line) // WINDOW for rows in lines for line in rows} >= {0, 1}
    assert limit.demand(data.train, batches).tolist() == limit.demand(whole.train, lines).tolist()
    limit.smallest_failed = int(limit.demand(whole.train, lines).max())
    largest = int(limit.demand(whole.train, lines).argmax())
    pieces = [
        list(limit.pieces(split, Part(0, rows[largest])))
        for split, rows in ((data.train, batches), (whole.train, lines))
    ]
    assert [len(part.rows) for part in pieces[0]] == [len(part.rows) for part in pieces[1]] != [len(batches[largest])]
