"""Updates ordered before it is known that the one before was finite, as on a GPU. The oracle is the training that waits
for each: the same files, and the same end where a number is not finite.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import planted
import pytest
import torch
import trainings
from marks import slow
from safetensors.torch import load_file
from torchrun import run_together
from toy import toy_config

from transformer_mt.data.preparation import prepare_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import running_update, updates
from transformer_mt.training.monitoring import meter
from transformer_mt.training.run import start_or_resume

WAITING, AHEAD = (), ("cpu",)
Train = Callable[..., RunFolder]


@pytest.fixture
def train(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """A training in which validations, checkpoints and lines of metrics come at steps of their own, by an updater that
    runs ahead of `devices`.
    """

    def start(name: str, devices: tuple[str, ...], data: dict | None = None, **training: object) -> RunFolder:
        monkeypatch.setattr(updates, "RUNS_AHEAD", devices)
        run = RunFolder(tmp_path / name)
        model = {"dropout": 0.2, "num_experts": 2}
        config = toy_config(corpus, data=data or {}, model=model, training={"grad_accum": 2, **training})
        start_or_resume(config, run, resume=True)
        return run

    return start


@pytest.mark.parametrize("precision", ["fp32", slow("bf16")])
def test_it_is_the_training_that_waits(train: Train, precision: str) -> None:
    """Also where it stops at a step that writes no metrics, and is resumed there."""
    straight = train("waiting", WAITING, precision=precision)
    ahead = train("ahead", AHEAD, precision=precision)
    for step in (10, 20):  # a checkpoint without a validation, and with one
        trainings.assert_same_run(straight.path, ahead.path, step)
    for max_steps in (8, 20):
        resumed = train("resumed", AHEAD, precision=precision, max_steps=max_steps)
    assert resumed.steps()[-1] == 20
    for file in ("model.safetensors", "optimizer.safetensors"):
        one, two = (run.step(20) / file for run in (straight, resumed))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(("what", "step"), [("loss", 11), ("gradient", 12), ("gradient", 14), ("gradient", 20)])
def test_one_that_is_not_finite_is_found_and_nothing_moves_from_it_on(
    train: Train, monkeypatch: pytest.MonkeyPatch, what: str, step: int
) -> None:
    """In a step after which nothing is asked for, in one that writes metrics, before a validation, and in the last."""
    ordered: list[int] = []
    update = updates.Updater.update

    def noted(self, split, micro_batches, step: int, *arguments):
        ordered.append(step)
        return update(self, split, micro_batches, step, *arguments)

    monkeypatch.setattr(updates.Updater, "update", noted)
    monkeypatch.setattr(updates, "add_gradient", planted.not_finite_at(step, what, seed=3))
    ends, runs = [], []
    for name, devices in (("waiting", WAITING), ("ahead", AHEAD)):
        ordered.clear()
        with pytest.raises(UserError, match=f"is (inf|nan) at step {step} ") as caught:
            train(name, devices)
        runs.append(RunFolder(Path(str(caught.value).split("--run ")[1].split("\n")[0])))
        ends.append(str(caught.value).replace(f"/{name}/", "/run/").replace(f"/{name}\n", "/run\n"))
        is_asked_at_once = devices is WAITING or step in (12, 14, 20)
        assert ordered[-1] == step + (not is_asked_at_once)
    assert ends[0] == ends[1]
    assert runs[0].steps() == runs[1].steps()
    assert step >= 14 or runs[0].steps() == [7, 10]
    for file in (f"debug/step_{step}_weights.safetensors", f"checkpoints/step_{runs[0].steps()[-1]}/model.safetensors"):
        assert (runs[0].path / file).read_bytes() == (runs[1].path / file).read_bytes()


@pytest.mark.parametrize("sharding", [slow("none"), "full"])
def test_what_is_not_finite_in_one_process_moves_nothing_in_any(corpus: Path, tmp_path: Path, sharding: str) -> None:
    """The weights and moments after three updates are those after the first, of one process that made no other."""
    status, said = run_together(2, tmp_path, str(corpus), sharding, str(tmp_path), program=planted.__file__)
    assert (status, said.count(planted.STOPPED)) == (0, 2)
    config = toy_config(corpus)
    data = prepare_data(config)
    torch.manual_seed(0)
    model = build_model(config, data.src_tokenizer, data.tgt_tokenizer)
    alone = updates.Updater(model, config.training, config.seed, "fp32", planted.CPU)
    alone.update(data.train, planted.MICRO_BATCHES, 1, "")
    weights, moments = alone.tensors()
    for rank in (0, 1) if sharding == "none" else (0,):
        left = load_file(tmp_path / f"left_{rank}.safetensors")
        assert left.keys() == {**weights, **moments}.keys()
        for name, tensor in {**weights, **moments}.items():
            torch.testing.assert_close(left[name], tensor.detach(), rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("step", [4, 5, 10])
def test_pairs_of_a_stream_are_known_until_the_result_is(
    train: Train, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Also where the update that is not finite was the last of a window, or of an epoch, and the next is ordered."""
    monkeypatch.setattr(updates, "add_gradient", planted.not_finite_at(step, "gradient", seed=3))
    ends = []
    for name, devices in (("waiting", WAITING), ("ahead", AHEAD)):
        with pytest.raises(UserError, match=f"gradient norm is inf at step {step} ") as caught:
            train(name, devices, data={"streaming": True, "shuffle_window": 40}, grad_accum=3)
        ends.append(str(caught.value).replace(f"/{name}/", "/run/").replace(f"/{name}\n", "/run\n"))
    assert ends[0] == ends[1]
    assert "train.en" in ends[0]


def test_the_wait_for_a_result_is_in_the_time_of_the_steps(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before a validation, which begins after step 7. Here nothing else takes time."""
    clock = itertools.count()
    now = [0.0]
    result = running_update.RunningUpdate.result

    def waited(self: running_update.RunningUpdate) -> running_update.UpdateResult:
        now[0] = float(next(clock) + 1)
        return result(self)

    monkeypatch.setattr(running_update.RunningUpdate, "result", waited)
    monkeypatch.setattr(meter, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    run = train("ahead", AHEAD, max_steps=9, log_every_steps=9)
    (line,) = [line for line in trainings.metrics_with_clock(run.path) if line["kind"] == "train"]
    assert line["num_tokens"] / line["tokens_per_second"] == pytest.approx(9)
    assert line["elapsed_seconds"] == pytest.approx(9)


def test_numbers_are_read_when_their_own_device_has_sent_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy does not wait; the event stands behind it on the stream of the tensor's device, and is waited for."""
    ordered: list[object] = []

    class Event:
        def record(self, stream: object) -> None:
            ordered.append(("record", stream))

        def synchronize(self) -> None:
            ordered.append("synchronize")

    class OnGpu:
        """A tensor of cuda:1."""

        device, shape, dtype = torch.device("cuda:1"), (2,), torch.float32

    class Pinned:
        def copy_(self, tensor: object, non_blocking: bool) -> None:
            ordered.append(("copy", tensor, non_blocking))

        def tolist(self) -> list[float]:
            ordered.append("read")
            return [1.0, 2.0]

    def empty(shape: tuple[int, ...], dtype: torch.dtype, pin_memory: bool) -> Pinned:
        assert (shape, dtype, pin_memory) == ((2,), torch.float32, True)
        return Pinned()

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    tensor = OnGpu()
    with monkeypatch.context() as patched:
        patched.setattr(torch, "empty", empty)
        numbers = running_update.ToHost(tensor)  # pyright: ignore[reportArgumentType]
    assert ordered == [("copy", tensor, True), ("record", "stream of cuda:1")]
    assert numbers.tolist() == [1.0, 2.0]
    assert ordered[2:] == ["synchronize", "read"]
