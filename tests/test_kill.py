"""A training that is killed again and again, wherever a kill may land, is the training that never was."""

import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from toy import toy_mapping, write_toy_corpus
from trainings import assert_same_run, metrics, start, start_anew, tensorboard_events, tmt_here

from transformer_mt.storage.files import remove
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.resuming.checkpoints import check_manifest, recover, write_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="SIGKILL and fork are POSIX")

STEPS_PER_KILL = 12
VALIDATE_EVERY = 4
# Lines of metrics, validations and checkpoints that seldom fall on the same step, so that sums are cut in two.
TRAINING = {"checkpoint_every_steps": 5, "max_tokens": 48, "log_every_steps": 2, "keep_checkpoints": 2}
KINDS: dict[str, dict[str, Any]] = {
    "words": {},
    "bpe-dropout-accumulation": {
        "tokenizer": {"kind": "bpe", "vocab_size": 300, "joint": True},
        "model": {"dropout": 0.3},
        "training": {"grad_accum": 2, "max_tokens": 64},
    },
    "decoder-only": {
        "tokenizer": {"joint": True},
        "model": {"architecture": "decoder_only", "num_encoder_layers": 0, "num_decoder_layers": 2},
        "training": {"max_tokens": 64},
    },
}
# What kills are aimed at. The process kills itself only for `call`: at a file-system call of a save, or of a deletion.
AIMS_OF_5 = ["start", "step", "validation", "save", "call"]
AIMS_OF_25 = ["start"] * 4 + ["step"] * 6 + ["validation"] * 5 + ["save"] * 5 + ["call"] * 5

SELF_KILL = """
import os, runpy, signal, sys
number, seen = int(sys.argv.pop(1)), 0
def hook(event, arguments):
    global seen
    if arguments and any(part in str(arguments[0]) for part in (".tmp-step_", ".aside-step_")):
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
runpy.run_module("transformer_mt", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("seed", [1])
def test_killed_5_times_it_is_the_same_run(seed: int, tmp_path: Path) -> None:
    assert_same_when_killed(tmp_path, "words", AIMS_OF_5, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_25_times_it_is_the_same_run(kind: str, tmp_path: Path) -> None:
    landed = assert_same_when_killed(tmp_path, kind, AIMS_OF_25, seed=random.randrange(10**6))
    assert landed["in a save"] >= 3, landed
    assert len(landed) >= 4, landed


def assert_same_when_killed(folder: Path, kind: str, aims: list[str], seed: int) -> Counter[str]:
    """Train straight; train with a kill an aim; compare. Returns how often a kill landed where."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    write_toy_corpus(folder / "data")
    last = STEPS_PER_KILL * len(aims)
    sections = {**KINDS[kind], "training": {**TRAINING, "max_steps": last, **KINDS[kind].get("training", {})}}
    mapping = toy_mapping(folder / "data", validation={"every_steps": VALIDATE_EVERY}, **sections)
    (folder / "same.yaml").write_text(yaml.safe_dump(mapping))
    seconds = train_straight(folder)
    landed: Counter[str] = Counter()
    name = "killed"
    for aim in dice.sample(aims, len(aims)):
        place = kill_once(folder, name, aim, dice, seconds)
        print(f"aimed at {aim}: {place}")
        if place == "finished":  # the machine was busy elsewhere while the training went on: another one, then
            assert_same_run(folder / "runs/straight", folder / "runs" / name, last)
            name += "_again"
            place = kill_once(folder, name, aim, dice, seconds)
        landed[place] += 1
    result = tmt_here(folder, "train", "--config", "same.yaml", "--resume", "auto", f"name={name}")
    assert result.returncode == 0
    assert "going on from step" in result.stdout
    assert landed.total() == len(aims)
    assert landed["finished"] == 0
    assert_same_run(folder / "runs/straight", folder / "runs" / name, last)
    events = tensorboard_events(folder / "runs" / name)
    for tag, kind in (("train/loss", "train"), ("validation/nll", "validation")):
        steps = [line["step"] for line in metrics(folder / "runs/straight") if line["kind"] == kind]
        assert [scalar.step for scalar in events.Scalars(tag)] == steps, "TensorBoard shows each step once"
    print(dict(landed))
    return landed


def train_straight(folder: Path) -> float:
    """The run that is never killed; returns the seconds until its first step, so that kills can be strewn over them."""
    process = start(folder, "train", "--config", "same.yaml", "name=straight")
    begun = time.monotonic()
    watch = Watch(folder / "runs/straight")
    while not watch.newest_step() and process.poll() is None:
        time.sleep(0.01)
    seconds = time.monotonic() - begun
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return seconds


def kill_once(folder: Path, name: str, aim: str, dice: random.Random, seconds: float) -> str:
    """Start or resume, kill at about the place that is aimed at, and say where the kill landed."""
    run = folder / "runs" / name
    watch = Watch(run)
    train = ("train", "--config", "same.yaml", "--resume", "auto", f"name={name}")
    if aim == "call":
        process = start_anew(folder, *train, program=("-c", SELF_KILL, str(dice.randint(1, 24))))
    else:
        process = start(folder, *train)
    num_steps, share = dice.randint(1, 8), dice.random()
    reached: dict[str, tuple[Callable[[], object], float]] = {
        "start": (lambda: True, share * seconds),
        "step": (lambda: watch.newest_step() >= watch.base + num_steps, 0.01 * share),
        "validation": (watch.validation_is_due, 0.05 * share),
        "save": (watch.new_leftovers, 0.003 * share),
        "call": (lambda: False, 0.0),
    }
    arrived, delay = reached[aim]
    while process.poll() is None and not arrived():
        time.sleep(0.0005)
    time.sleep(delay)
    process.kill()
    output, _ = process.communicate(timeout=60)
    if process.returncode == 0:
        return "finished"
    assert process.returncode == -signal.SIGKILL, output
    return watch.where()


class Watch:
    """What can be seen from outside of a training that is about to start in a run's folder."""

    def __init__(self, run: Path) -> None:
        self.run = RunFolder(run)
        self.base = max(self.run.steps(), default=0)
        self.inode_before = self._inode()
        self.leftovers_before = self._leftovers()

    def newest_step(self) -> int:
        """The step of the newest line of metrics that this start has written."""
        return self._last_line()[1]

    def validation_is_due(self) -> bool:
        kind, step = self._last_line()
        return kind == "train" and step > 0 and step % VALIDATE_EVERY == 0

    def new_leftovers(self) -> set[str]:
        """Checkpoints half written or half deleted, or set aside."""
        return self._leftovers() - self.leftovers_before

    def where(self) -> str:
        """Where a kill landed, judged by what it left behind."""
        newest = max(self.run.steps(), default=0)
        for name in self.new_leftovers():
            found = re.match(r"\.(?:tmp|aside)-step_(\d+)", name)
            assert found, name
            return "in a save" if int(found[1]) > newest else "in a deletion"
        if self._inode() in (None, self.inode_before):
            return "at the start"
        return "in a validation" if self.validation_is_due() else "between or in steps"

    def _inode(self) -> int | None:
        try:
            return self.run.metrics.stat().st_ino
        except FileNotFoundError:
            return None

    def _leftovers(self) -> set[str]:
        return {path.name for path in self.run.checkpoints.glob(".*")}

    def _last_line(self) -> tuple[str, int]:
        """Kind and step. A start first replaces the file by what the checkpoint knows of."""
        if self._inode() in (None, self.inode_before):
            return "none", 0
        lines = self.run.metrics.read_text().split("\n")[:-1]
        if not lines:
            return "none", 0
        entry = json.loads(lines[-1])
        return entry["kind"], entry["step"]


# A save by itself, killed before each of its file-system calls


def dies_at(number: int, work: Callable[[], object]) -> bool:
    """Do `work` in a forked process that kills itself before its file-system call `number`; False if it has fewer."""
    child = os.fork()
    if child == 0:
        seen = 0

        def hook(event: str, arguments: tuple) -> None:
            nonlocal seen
            if event.startswith(("os.", "open", "shutil.")) and event != "os.fork":
                seen += 1
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def write_text(content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "one.txt").write_text(content)
        (folder / "two.txt").write_text(content)

    return write


def content(folder: Path) -> str:
    check_manifest(folder, ["one.txt", "two.txt"], "Write it again.")
    one, two = ((folder / name).read_text() for name in ("one.txt", "two.txt"))
    assert one == two
    return one


@pytest.mark.parametrize("exists", [False, True])
def test_a_save_killed_at_any_call_leaves_the_old_or_the_new(exists: bool, tmp_path: Path) -> None:
    """The second time with the same step there already: it is set aside between two renames."""
    number, found = 1, []
    while True:
        run = RunFolder(tmp_path / str(number))
        write_folder(run.step(5), write_text("before"))
        if exists:
            write_folder(run.step(9), write_text("old"))
        died = dies_at(number, lambda run=run: write_folder(run.step(9), write_text("new")))
        recover(run)
        assert sorted(path.name for path in run.checkpoints.iterdir() if path.name[0] == ".") == []
        assert content(run.step(5)) == "before"
        found.append(content(run.step(9)) if 9 in run.steps() else "nothing")
        if not died:
            break
        number += 1
    assert number > 10, "a save is more than that"
    old = "old" if exists else "nothing"
    turned = found.index("new")
    assert found == [old] * turned + ["new"] * (len(found) - turned)
    assert 0 < turned < len(found) - 1


def test_a_deletion_killed_at_any_call_leaves_all_or_nothing(tmp_path: Path) -> None:
    number, died = 1, True
    while died:
        run = RunFolder(tmp_path / str(number))
        write_folder(run.step(5), write_text("old"))
        died = dies_at(number, lambda run=run: remove(run.step(5)))
        recover(run)
        assert [path.name for path in run.checkpoints.iterdir()] == ["step_5"] * (5 in run.steps())
        assert 5 not in run.steps() or content(run.step(5)) == "old"
        number += 1
    assert number > 4
