"""What ends a training, what is kept of it, and what is told of what an end left behind."""

import json
import os
import signal
import time
from pathlib import Path

from copies import Copy
from stopped_runs import write_config
from toy import toy_config
from trainings import metrics, start, tmt_here

from transformer_mt.judging.runs.summary import summary_of
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.monitoring.monitor import Monitor
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.watching.live_run import LiveRun


def test_minutes_do_not_end_a_training_before_its_first_step(folder: Path) -> None:
    limits = ["training.max_minutes=0.00001", "training.max_steps=3", "training.warmup_steps=3"]
    result = tmt_here(folder, "train", "--config", "toy.yaml", "name=brief", *limits)
    assert result.returncode == 0
    assert "finished at step 1: max_minutes 1e-05 reached" in result.stdout
    assert (folder / "runs/brief/checkpoints/step_1").is_dir()
    assert "max_steps is 3; go on with, say: tmt train --resume runs/brief training.max_minutes=2e-05" in result.stdout
    result = tmt_here(folder, "train", "--resume", "runs/brief", "training.max_minutes=5")
    assert "finished at step 3: max_steps 3 reached\nbest: step 3, nll " in result.stdout
    (score,) = (line["nll"] for line in metrics(folder / "runs/brief") if line.get("step") == 3 and "ppl" in line)
    assert f"best: step 3, nll {score:.2f}\ntranslate with" in result.stdout


def test_what_was_set_for_later_than_the_end_is_told(folder: Path) -> None:
    """Under max_epochs no config can be refused for it: the number of steps is known at the end alone."""
    later = ["training.consistency={kind: rdrop, start_step: 5000}", "training.warmup_steps=4000"]
    result = tmt_here(
        folder, "train", "--config", "toy.yaml", "name=late", "training.max_steps=null", "training.max_epochs=1", *later
    )
    assert result.returncode == 0, result.stderr
    told = result.stdout[result.stdout.index("\nbest: step") :].splitlines()[2:4]
    assert told[0].startswith("training.warmup_steps is 4,000, so that the learning rate was still rising at the end")
    assert told[1].startswith("training.consistency.start_step is 5,000, so that consistency never began; lower it")
    reached = tmt_here(folder, "train", "--config", "toy.yaml", "name=reached", "training.warmup_steps=1")
    assert "training.warmup_steps is" not in reached.stdout


def test_an_end_before_the_wanted_direction_came_alone_is_told(folder: Path) -> None:
    """By steps it may end with the last epoch of both directions; one step more is of the wanted one alone."""
    name = ["train", "--config", "toy.yaml", "name=both", "--resume", "auto"]
    turned = ["data.both_directions_epochs=1", "tokenizer.joint=true", "training.checkpoint_every_steps=1",
              "training.keep_checkpoints=40", "training.proofs=off"]  # fmt: skip
    whole = tmt_here(folder, *name, *turned, "training.max_steps=30")
    assert whole.returncode == 0, whole.stdout
    states = [json.loads(path.read_text()) for path in (folder / "runs/both/checkpoints").glob("step_*/state.json")]
    (end,) = (state["step"] for state in states if (state["epoch"], state["micro_batch"]) == (1, 0))
    said = (
        "data.both_directions_epochs is 1, so that the wanted direction never came alone; lower it, or train for longer"
    )
    assert said not in whole.stdout
    for last, is_told in ((end - 1, True), (end, True), (end, True), (end + 1, False)):  # once it is finished already
        result = tmt_here(folder, *name, *turned, "name=both_shorter", f"training.max_steps={last}")
        assert f"finished at step {last}: max_steps" in result.stdout
        assert (f"\n{said}\n" in result.stdout) == is_told


def test_only_the_newest_and_the_best_are_kept(folder: Path) -> None:
    assert tmt_here(folder, "train", "--config", "toy.yaml", "name=few", "training.keep_checkpoints=2").returncode == 0
    run = folder / "runs" / "few"
    state = json.loads((run / "checkpoints" / "step_40" / "state.json").read_text())
    values = {line["step"]: line["nll"] for line in metrics(run) if line["kind"] == "validation"}
    assert state["best_step"] == min(values, key=lambda step: values[step])
    names = {path.name for path in (run / "checkpoints").iterdir()}
    newest = sorted({*range(5, 41, 5), *best_so_far(values)})[-2:]
    assert names == {f"step_{step}" for step in {*newest, state["best_step"]}}


def best_so_far(values: dict[int, float]) -> list[int]:
    """The steps that were saved because no validation before them was as good."""
    found, best = [], float("inf")
    for step, value in sorted(values.items()):
        if value < best:
            found.append(step)
            best = value
    return found


def test_patience_ends_the_training(folder: Path) -> None:
    result = tmt_here(
        folder, "train", "--config", "toy.yaml", "name=patient", "training.factor=50.0", "training.max_steps=200",
        "validation.patience=2", "validation.every_steps=2",
    )  # fmt: skip
    assert result.returncode == 0
    assert "nll has not improved in 2 validations" in result.stdout
    values = [line["nll"] for line in metrics(folder / "runs" / "patient") if line["kind"] == "validation"]
    assert min(values) == values[-3]


def test_a_signal_in_the_last_validation_is_no_end(folder: Path) -> None:
    """The training is over only when its last validation is; until then there is something to go on with."""
    write_config(folder, "long.yaml", validation={"every_steps": 1000})
    with (folder / "data/valid.en").open() as en, (folder / "data/valid.es").open() as es:
        pairs = [en.read() * 300, es.read() * 300]
    (folder / "data/many.en").write_text(pairs[0])
    (folder / "data/many.es").write_text(pairs[1])
    arguments = ["train", "--config", "long.yaml", "name=last", "data.validation=[{src: many.en, tgt: many.es}]",
                 "training.max_steps=9", "validation.num_translated=6000"]  # fmt: skip
    process = start(folder, *arguments)
    metrics_file = folder / "runs/last/metrics.jsonl"
    while not (metrics_file.exists() and '"step": 9' in metrics_file.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "saved at step 9; go on with: tmt train --resume runs/last" in output
    run = folder / "runs/last"
    assert summary_of(run).state == "stopped"
    assert "finished" not in LiveRun(RunFolder(run)).look().parts["state"]
    result = tmt_here(folder, "train", "--resume", "runs/last")
    assert result.returncode == 0
    assert "max_steps 9 reached" in result.stdout
    assert summary_of(run).state == "finished"
    assert "finished: max_steps 9 reached" in LiveRun(RunFolder(run)).look().parts["state"]
    assert [line["step"] for line in metrics(folder / "runs/last") if line["kind"] == "validation"] == [9]
    state = json.loads((folder / "runs/last/checkpoints/step_9/state.json").read_text())
    assert state["last_validation_step"] == state["best_step"] == 9


def test_a_validation_that_is_not_finite_stops_before_it_is_saved(folder: Path) -> None:
    result = tmt_here(
        folder, "train", "--config", "toy.yaml", "name=wild", "training.factor=1e30", "training.keep_checkpoints=1",
        "training.checkpoint_every_steps=1", "validation.every_steps=1", "training.clip_norm=null",
    )  # fmt: skip
    assert result.returncode == 2
    assert "at step 1" in result.stdout
    assert "so the training stops" in result.stdout
    assert not list((folder / "runs/wild/checkpoints").glob("step_*"))


def test_an_average_that_was_left_behind_is_named(folder: Path) -> None:
    name = ["train", "--config", "toy.yaml", "--resume", "auto", "name=stale"]
    assert tmt_here(folder, *name, "training.max_steps=10").returncode == 0
    assert tmt_here(folder, "average", "runs/stale", "--last", "2").returncode == 0
    use = ["translate", "--run", "runs/stale", "--checkpoint", "average", "one."]
    assert "note" not in tmt_here(folder, *use).stdout
    assert tmt_here(folder, *name, "training.max_steps=15").returncode == 0
    assert "note: the average is of the steps " in tmt_here(folder, *use).stdout


def test_tensorboard_reads_what_a_resumed_training_writes_last(tmp_path: Path) -> None:
    """It goes by names: a second, a host, a process. The earlier file is of this second and of a later process. One
    that a person renamed has none of them.
    """
    (tmp_path / "events.out.tfevents.old.1").write_bytes(b"")
    (tmp_path / f"events.out.tfevents.{int(time.time()) + 1:010d}.zzz.1.0").write_bytes(b"")
    Monitor(RunFolder(tmp_path), toy_config(tmp_path), TrainingState(step=5)).close()
    assert ".zzz." in sorted(tmp_path.glob("events.*"))[0].name


def test_a_clock_that_was_set_back_is_told_for_tensorboard(folder: Path) -> None:
    name = ["train", "--config", "toy.yaml", "--resume", "auto", "name=future"]
    assert tmt_here(folder, *name, "training.max_steps=5").returncode == 0
    (file,) = (folder / "runs/future").glob("events.out.tfevents.*")
    file.rename(file.with_name(f"events.out.tfevents.{int(time.time()) + 1000:010d}.host.1.0"))
    assert "files of this run are from the future" in tmt_here(folder, *name, "training.max_steps=10").stdout


def test_a_reader_that_dies_of_the_same_ctrl_c_costs_nothing(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    arguments = ["train", "--config", "toy.yaml", "name=teed", "training.checkpoint_every_steps=1000"]
    process = Copy(folder, *arguments, environment=os.environ, together=True, stdout=pipe)
    with pipe.open() as reader:
        while "three" not in reader.readline():  # the report, so that training is about to begin
            assert process.poll() is None
        metrics_file = folder / "runs/teed/metrics.jsonl"
        while not (metrics_file.exists() and metrics_file.read_text()):
            assert process.poll() is None
            time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) in (0, 130)
    assert list((folder / "runs/teed/checkpoints").glob("step_*"))
