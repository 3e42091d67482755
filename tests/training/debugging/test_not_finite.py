"""An update that is not finite: where it went wrong is found and kept, and a replay of the file is the update itself.

The oracle is the place where something was planted, and the update's own numbers.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from toy import toy_config
from trainings import assert_same_run, metrics
from updating import make_updater

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches.batching import Rows
from transformer_mt.data.preparation import PreparedData, prepare_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.errors import UserError
from transformer_mt.storage.checkpoint_files import WEIGHTS
from transformer_mt.storage.files import make_folder
from transformer_mt.storage.manifest import write_manifest
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import run as run_module
from transformer_mt.training.begin import write_beginnings
from transformer_mt.training.compiling import CompiledStep
from transformer_mt.training.debugging.diagnosis import diagnose
from transformer_mt.training.debugging.not_finite import NotFiniteError
from transformer_mt.training.debugging.replay_file import replay_file, replay_lines
from transformer_mt.training.loop import Trainer
from transformer_mt.training.memory.memory_parts import Part
from transformer_mt.training.micro_batch import computed_with
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.updates import Updater

MICRO_BATCHES = [np.arange(8), np.arange(8, 19)]


@pytest.fixture(scope="module", params=[2, 1], ids=["padded", "unpadded"])
def config(corpus: Path, request: pytest.FixtureRequest) -> RunConfig:
    """A config of heads that are 8 wide, too narrow for numba's attention, and one of heads that are not."""
    model = {"dropout": 0.3, "num_heads": request.param}
    return toy_config(corpus, model=model, training={"grad_accum": 2, "clip_norm": None})


@pytest.fixture(scope="module")
def data(config: RunConfig) -> PreparedData:
    return prepare_data(config)


# For what the numbers of the update have no part in.
PADDED_ALONE = pytest.mark.parametrize("config", [2], ids=["padded"], indirect=True)


@pytest.fixture
def run(config: RunConfig, data: PreparedData, tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    write_beginnings(config, folder, data)
    return folder


def stop(updater: Updater, data: PreparedData, run: RunFolder, micro_batches: list[Rows] = MICRO_BATCHES) -> str:
    """The message of an update that is not finite, its files written."""
    with pytest.raises(NotFiniteError) as caught:
        updater.update(data.train, micro_batches, 4, "epoch 1, micro-batch 7")
    return str(diagnose(caught.value, updater, updater.model, run))


def plant_gradient(model: nn.Module, name: str) -> None:
    """The gradient that comes back to this module's output becomes infinite; the forward pass stays as it is."""

    def hook(module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        if module.training:
            output.register_hook(lambda gradient: gradient * torch.inf)

    model.get_submodule(name).register_forward_hook(hook)


# Where it went wrong


@pytest.mark.parametrize(
    "name",
    [
        "encoder.layers.0.feed_forward.in_proj",
        "decoder.layers.0.cross_attn.v_proj",
        "decoder.layers.0.self_attn.q_proj",
    ],
)
def test_the_first_module_of_the_forward_pass_is_named(
    config: RunConfig, data: PreparedData, run: RunFolder, name: str
) -> None:
    updater = make_updater(config, data)
    with torch.no_grad():
        updater.model.get_parameter(f"{name}.weight").mul_(2e38)  # finite, as are all weights
    message = stop(updater, data, run)
    assert message.startswith("The loss is nan at step 4 (epoch 1, micro-batch 7; its first pair is ")
    assert f"The first output that is not finite is that of {name}, in micro-batch 1 of 2, for " in message
    assert f"tmt debug batch {run.debug}/step_4.safetensors --run {run.path}" in message


def test_the_pairs_that_do_it_are_named(config: RunConfig, data: PreparedData, run: RunFolder) -> None:
    updater = make_updater(config, data)
    assert computed_with(updater.model, "fp32")["unpadded"] == (config.model.num_heads == 1)
    token = 7
    has = np.array([token in data.train.batch(np.array([row])).src[0].tolist() for row in range(60)])
    without, culprits = np.flatnonzero(~has), np.flatnonzero(has)[:2]
    with torch.no_grad():
        updater.model.get_parameter("encoder.embedder.embedding.weight")[token] = 3e38
    message = stop(updater, data, run, [without[:6], np.concatenate((without[6:9], culprits))])
    assert "that of encoder.embedder" in message
    assert f"2 of 2, for 2 of 5 pairs (the first: {data.train.corpus.where(int(culprits[0]))})." in message


def test_the_first_module_going_backwards_is_named(config: RunConfig, data: PreparedData, run: RunFolder) -> None:
    updater = make_updater(config, data)
    plant_gradient(updater.model, "encoder.layers.0.feed_forward")
    message = stop(updater, data, run)
    assert message.startswith("The gradient norm is nan at step 4")
    assert "The forward pass is finite; going backwards, the first gradient that is not" in message
    assert "that of the output of encoder.layers.0.feed_forward" in message


def test_a_parameter_of_which_only_the_gradient_is_wrong(config: RunConfig, data: PreparedData, run: RunFolder) -> None:
    updater = make_updater(config, data)
    updater.model.get_parameter("decoder.layers.0.cross_attn.k_proj.weight").register_hook(lambda g: g * torch.inf)
    assert "parameter whose gradient is not is decoder.layers.0.cross_attn.k_proj.weight" in stop(updater, data, run)


def test_weights_that_are_not_finite_are_named(config: RunConfig, data: PreparedData, run: RunFolder) -> None:
    updater = make_updater(config, data)
    with torch.no_grad():
        updater.model.get_parameter("decoder.layers.0.feed_forward.in_proj.bias")[3] = torch.nan
    message = stop(updater, data, run)
    assert "not finite already: decoder.layers.0.feed_forward.in_proj.bias is the first" in message
    assert any(line.startswith("> decoder.layers.0.feed_forward.in_proj.bias") for line in page(run))


def test_a_checkpoint_of_these_very_weights_is_named(config: RunConfig, data: PreparedData, run: RunFolder) -> None:
    def message_with(*steps: int) -> str:
        for step in steps:
            make_folder(run.step(step), lambda folder: write_manifest(folder, []))
        updater = make_updater(config, data)
        plant_gradient(updater.model, "encoder.layers.0.feed_forward")
        return stop(updater, data, run)

    assert "too late" not in message_with(2)
    message = message_with(3)
    assert f"{run.step(3)}, has these weights already" in message
    assert message.endswith(f"To go on from {run.step(2)}, move it away.")
    shutil.rmtree(run.step(2))
    assert message_with().endswith("It is the only one: train anew.")


def page(run: RunFolder) -> list[str]:
    return list(replay_lines(replay_file(run.debug / "step_4.safetensors", run), 100))


# The files


def test_the_replay_of_the_file_is_the_update_bit_for_bit(
    config: RunConfig, data: PreparedData, run: RunFolder
) -> None:
    sound = make_updater(config, data)
    sound.update(data.train, [np.arange(20, 30)], 3, "")  # the weights are of no checkpoint
    sound.limit.failed(data.train, Part(1, MICRO_BATCHES[1]))
    weights = {name: p.detach().clone() for name, p in sound.model.named_parameters()}
    expected = sound.update(data.train, MICRO_BATCHES, 4, "").result()
    assert expected.num_split == 1
    gradients = {name: p.grad for name, p in sound.model.named_parameters() if p.grad is not None}

    updater = make_updater(config, data)
    updater.update(data.train, [np.arange(20, 30)], 3, "")
    updater.limit.smallest_failed = sound.limit.smallest_failed
    plant_gradient(updater.model, "decoder")  # the live model alone: the replay of its file is sound
    stop(updater, data, run)
    saved = load_file(run.debug / "step_4_weights.safetensors")
    assert all(torch.equal(saved[name], weight) for name, weight in weights.items())
    found = replay_file(run.debug / "step_4.safetensors", run)
    assert found.notes == []
    assert len(found.replay.micro_batches) == 3
    assert float(np.sum([part.loss for part in found.replay.micro_batches], dtype=np.float32)) == expected.loss
    norms = {gradient.name: gradient.norm for gradient in found.replay.gradients}
    assert norms == {name: float(gradient.norm()) for name, gradient in gradients.items()}
    assert found.replay.grad_norm == pytest.approx(expected.grad_norm, rel=1e-6)
    assert "found now:  Computed once more, everything is finite." in page(run)


def test_what_the_file_holds(config: RunConfig, data: PreparedData, run: RunFolder) -> None:
    updater = make_updater(config, data)
    plant_gradient(updater.model, "decoder")
    stop(updater, data, run)
    assert sorted(path.name for path in run.debug.iterdir()) == ["step_4.safetensors", "step_4_weights.safetensors"]
    path = run.debug / "step_4.safetensors"
    tensors = load_file(path)
    for index, rows in enumerate(MICRO_BATCHES):
        batch = data.train.batch(rows)
        assert torch.equal(tensors[f"{index}.src"], batch.src)
        assert torch.equal(tensors[f"{index}.tgt_in"], batch.tgt_in)
        assert torch.equal(tensors[f"{index}.tgt_out"], batch.tgt_out)
    record = replay_file(path, run).record
    assert (record.step, record.seed, record.label_smoothing) == (4, 3, 0.1)
    assert record.computed_with == computed_with(updater.model, "fp32")
    assert record.parts[1].origins == [data.train.corpus.where(row) for row in range(8, 19)]


def test_that_a_compiled_update_dropped_other_elements_is_said(
    config: RunConfig, data: PreparedData, run: RunFolder
) -> None:
    updater = make_updater(config, data)
    plant_gradient(updater.model, "decoder")
    with pytest.raises(NotFiniteError) as caught:
        updater.update(data.train, MICRO_BATCHES, 4, "epoch 1, micro-batch 7")
    updater.compiled = CompiledStep(updater.model)
    updater.compiled.undo()
    message = str(diagnose(caught.value, updater, updater.model, run))
    assert "The update was compiled, and its dropout dropped other elements." in message
    assert replay_file(run.debug / "step_4.safetensors", run).notes == ["note: compiled was True and is False"]


@PADDED_ALONE
def test_without_its_weights_a_checkpoint_is_needed(config: RunConfig, data: PreparedData, run: RunFolder) -> None:
    updater = make_updater(config, data)
    plant_gradient(updater.model, "decoder")
    stop(updater, data, run)
    (run.debug / "step_4_weights.safetensors").unlink()
    with pytest.raises(UserError, match="has no checkpoint yet"):
        replay_file(run.debug / "step_4.safetensors", run)


@PADDED_ALONE
def test_a_checkpoint_that_stands_in_must_be_whole(config: RunConfig, data: PreparedData, run: RunFolder) -> None:
    updater = make_updater(config, data)

    def write(folder: Path) -> None:
        save_file(updater.tensors()[0], folder / WEIGHTS)
        write_manifest(folder, [WEIGHTS])

    make_folder(run.step(3), write)
    plant_gradient(updater.model, "decoder")
    stop(updater, data, run)
    beside, weights = run.debug / "step_4_weights.safetensors", run.step(3) / WEIGHTS
    beside.unlink()
    assert f"note: there is no {beside}" in replay_file(run.debug / "step_4.safetensors", run).notes[0]
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(UserError, match=f"{weights} is damaged: it was changed"):
        replay_file(run.debug / "step_4.safetensors", run)


@PADDED_ALONE
def test_a_disk_that_takes_nothing_is_said_and_hides_nothing(
    config: RunConfig, data: PreparedData, run: RunFolder
) -> None:
    run.debug.write_text("in the way")
    updater = make_updater(config, data)
    plant_gradient(updater.model, "decoder")
    message = stop(updater, data, run)
    assert message.startswith("The gradient norm is nan at step 4")
    assert "The update could not be kept: File exists." in message


@PADDED_ALONE
def test_weights_that_do_not_fit_the_disk_are_left_out(
    config: RunConfig, data: PreparedData, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tensors: dict[str, torch.Tensor], path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformer_mt.training.debugging.update_record.save_tensors", full)
    updater = make_updater(config, data)
    plant_gradient(updater.model, "decoder")
    assert "its weights could not be kept (No space left on device)" in stop(updater, data, run)
    assert [path.name for path in run.debug.iterdir()] == ["step_4.safetensors"]


@pytest.fixture(scope="module")
def recorded(config: RunConfig, data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with an update that was kept."""
    run = RunFolder(tmp_path_factory.mktemp("recorded"))
    write_beginnings(config, run, data)
    updater = make_updater(config, data)
    plant_gradient(updater.model, "decoder")
    stop(updater, data, run)
    return run


@PADDED_ALONE
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "There is no file"),
        (lambda path: path.write_bytes(b""), "is damaged, or no safetensors file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is damaged, or no safetensors file"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'\\"seed\\"', b'\\"sead\\"')), "of another version"),
        (lambda path: save_file(load_file(path), path), "holds no update"),
        (lambda path: save_file({"0.src": torch.ones(1)}, path, {"tmt_update": "{}"}), "of another version"),
        (lambda path: path.with_name("step_4_weights.safetensors").write_bytes(b"x"), "weights.safetensors is damaged"),
        (lambda path: change(path, "1.src", lambda ids: ids + 500), "is not an update of"),
        (lambda path: change(path, "1.src", lambda ids: ids[1:]), "is damaged"),
        (lambda path: change(path, "1.src", lambda ids: ids - 9), "is damaged"),
        (lambda path: change(path, "1.tgt_in", lambda ids: ids[:, 1:].contiguous()), "is damaged"),
    ],
)
def test_a_file_that_is_none_is_one_sentence(recorded: RunFolder, tmp_path: Path, damage, message: str) -> None:
    run = RunFolder(Path(shutil.copytree(recorded.path, tmp_path / "run")))
    path = run.debug / "step_4.safetensors"
    damage(path)
    with pytest.raises(UserError, match=message):
        replay_file(path, run)


def change(path: Path, name: str, how) -> None:
    """Another tensor under the same header."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        header = file.metadata()
    tensors = load_file(path)
    save_file({**tensors, name: how(tensors[name])}, path, header)


# fp16


def overflow_in(steps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of these updates is not finite."""
    step, update = 0, Updater.update

    def build(*arguments):
        model = build_model(*arguments)
        model.output.weight.register_hook(lambda g: g * torch.inf if step in steps else g)
        return model

    def noted(self: Updater, *arguments):
        nonlocal step
        step = arguments[2]
        return update(self, *arguments)

    monkeypatch.setattr(run_module, "build_model", build)
    monkeypatch.setattr(Updater, "update", noted)


def test_fp16_skips_counts_and_lowers_the_scale(
    config: RunConfig, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps of eight have a gradient that is not finite: each is skipped, and halves the scale."""
    training = {"precision": "fp16", "max_steps": 8, "log_every_steps": 4, "grad_accum": 1}
    config = config.model_copy(update={"training": config.training.model_copy(update=training)})
    overflow_in((2, 3, 7), monkeypatch)
    trainers = []
    update, train = Updater.update, Trainer.train

    def counting(self: Updater, *arguments):
        before = [p.clone() for p in self.model.parameters()]
        running = update(self, *arguments)
        same = all(torch.equal(a, b) for a, b in zip(before, self.model.parameters(), strict=True))
        assert running.result().skipped == same == (arguments[2] in (2, 3, 7))
        return running

    def kept(self: Trainer):
        trainers.append(self)
        return train(self)

    monkeypatch.setattr(Updater, "update", counting)
    monkeypatch.setattr(Trainer, "train", kept)
    start_or_resume(config, RunFolder(tmp_path / "run"), resume=False)
    assert [line["skipped_steps"] for line in metrics(tmp_path / "run") if line["kind"] == "train"] == [2, 1]
    assert trainers[0].updater.scaler.get_scale() == 65536 / 2**3
    assert not (tmp_path / "run/debug").exists()


def test_fp16_goes_on_at_the_scale_it_had(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overflow_in((2, 3, 7), monkeypatch)
    straight, parts = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "parts")
    for run, max_steps in ((straight, 8), (parts, 4), (parts, 8)):
        training = {"precision": "fp16", "max_steps": max_steps, "checkpoint_every_steps": 4}
        start_or_resume(toy_config(corpus, training=training, validation={"every_steps": 4}), run, resume=True)
    assert_same_run(straight.path, parts.path, 8)
    scales = [TrainingState.read(parts.step(step) / "state.json").loss_scale for step in (4, 8)]
    assert [scale and scale["scale"] for scale in scales] == [65536 / 2**2, 65536 / 2**3]
