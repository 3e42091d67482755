"""A micro-batch that does not fit is split: the same gradient, every pair once; the largest is tried before step 1.

The allocator's error is planted by hooks, in the forward and in the middle of the backward pass. The oracle is the
same update in one piece.
"""

import re
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy import toy_config
from trainings import metrics
from updating import gradients, make_updater

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches.batching import plan_batches
from transformer_mt.data.preparation import PreparedData
from transformer_mt.decoding.load_model import build_model
from transformer_mt.errors import UserError
from transformer_mt.evaluation.nll import tokens_at_once
from transformer_mt.machine.memory import is_out_of_memory
from transformer_mt.model.unpadded import Tokens, Unpadded
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import run as run_module
from transformer_mt.training.memory.memory_parts import Part
from transformer_mt.training.memory.probe import probe
from transformer_mt.training.micro_batch import computed_with, dropout_seed
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.updates import Updater

ERRORS: dict[str, Callable[[], Exception]] = {
    "cuda": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "cpu": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 34359738368 bytes. Error code 12 (Cannot allocate memory)"
    ),
    "numpy": lambda: MemoryError("Unable to allocate 8.00 GiB"),
}
PLACES = ("forward", "backward")


class Memory:
    """A model's memory that has room for `limit` sentences. Keeps the sources that went through since it last ran
    out, and counts how often it did.
    """

    def __init__(self, model: nn.Module, limit: int, place: str = "forward", error: str = "cuda") -> None:
        self.limit, self.place, self.error = limit, place, ERRORS[error]
        self.num_failures = 0
        self.seen: list[list[list[int]]] = []
        self.sizes: list[int] = []
        model.get_submodule("encoder").register_forward_hook(self._hook)

    def _hook(self, module: nn.Module, inputs: tuple[Tokens, ...], memory: Tensor) -> None:
        if not module.training:
            return
        src = sentences(inputs[0])
        self.seen.append(src)
        self.sizes.append(len(src))
        if self.sizes[-1] > self.limit:
            if self.place == "forward":
                self._run_out()
            memory.register_hook(lambda _: self._run_out())  # the decoder's gradients are added by then

    def _run_out(self) -> None:
        self.num_failures += 1
        self.seen.clear()
        raise self.error()


# The update


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("limit", "error"), [(1, "cuda"), (3, "cpu"), (5, "numpy")])
@pytest.mark.parametrize("num_heads", [2, 1], ids=["padded", "unpadded"])
def test_a_split_update_has_the_gradient_of_the_whole(
    corpus: Path, data: PreparedData, limit: int, error: str, place: str, num_heads: int
) -> None:
    config = toy_config(corpus, model={"dropout": 0.0, "num_heads": num_heads}, training={"clip_norm": None})
    micro_batches = [np.arange(8), np.arange(8, 10), np.arange(10, 21)]
    whole, split = make_updater(config, data), make_updater(config, data)
    assert computed_with(whole.model, "fp32")["unpadded"] == (num_heads == 1)
    memory = Memory(split.model, limit, place, error)
    first = whole.update(data.train, micro_batches, 1, "").result()
    second = split.update(data.train, micro_batches, 1, "").result()
    assert memory.num_failures > 0
    for a, b in zip(gradients(whole), gradients(split), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    assert first.num_tokens == second.num_tokens
    assert first.loss == pytest.approx(second.loss, rel=1e-5)
    assert first.nll == pytest.approx(second.nll, rel=1e-5)
    assert (first.num_split, second.num_split) == (0, 3 if limit == 1 else 2)
    every_pair = [row.tolist() for rows in micro_batches for row in data.train.batch(rows).src]
    assert sorted(map(real, every_pair)) == sorted(real(row) for rows in memory.seen for row in rows)
    assert max(memory.sizes[-len(memory.seen) :]) <= limit


def sentences(tokens: Tokens) -> list[list[int]]:
    """What the encoder was asked about, with or without padding."""
    if not isinstance(tokens, Unpadded):
        return tokens.ids.tolist()
    return [row.tolist() for row in tokens.ids[0, : tokens.num_tokens].split(tokens.lengths.tolist())]


def real(row: list[int]) -> list[int]:
    """A row of ids without its padding."""
    return [token for token in row if token != 0]


def test_experts_keep_the_gradient_of_the_cross_entropy(corpus: Path, data: PreparedData) -> None:
    """Each token goes to its experts by itself; only the load-balancing term sees which tokens are together."""
    experts = {"num_experts": 3, "experts_per_token": 2, "load_balancing_weight": 0.0}
    config = toy_config(corpus, model={"dropout": 0.0, **experts}, training={"clip_norm": None})
    whole, split = make_updater(config, data), make_updater(config, data)
    Memory(split.model, 4)
    first = whole.update(data.train, [np.arange(9)], 1, "").result()
    second = split.update(data.train, [np.arange(9)], 1, "").result()
    for a, b in zip(gradients(whole), gradients(split), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    assert first.load_balancing is not None
    assert second.load_balancing == pytest.approx(first.load_balancing, rel=0.3)


def test_what_failed_once_is_split_in_advance(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus)
    updater = make_updater(config, data)
    memory = Memory(updater.model, 4)
    updater.update(data.train, [np.arange(16)], 1, "")
    failures = memory.num_failures
    assert failures >= 2, "16 and 8 do not fit"
    assert updater.update(data.train, [np.arange(16)], 2, "").result().num_split == 1
    assert updater.update(data.train, [np.arange(16, 20)], 3, "").result().num_split == 0
    assert memory.num_failures == failures


def test_memory_that_is_held_for_speed_is_given_up_before_anything_is_split(corpus: Path, data: PreparedData) -> None:
    """As a GPU's graphs hold some: without it the whole fits, and stays whole."""
    updater = make_updater(toy_config(corpus), data)
    memory = Memory(updater.model, 4)
    released = []

    def release() -> bool:
        memory.limit = 16
        released.append(memory.num_failures)
        return len(released) == 1

    updater.smaller_parts.release = release
    for step in (1, 2):
        assert updater.update(data.train, [np.arange(16)], step, "").result().num_split == 0
    assert released == [1]
    assert memory.num_failures == 1
    memory.limit = 8
    assert updater.update(data.train, [np.arange(16)], 3, "").result().num_split == 1
    assert released == [1, 2]


def test_parts_draw_dropout_of_their_own_and_always_the_same(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus, model={"dropout": 0.3})
    updaters = []
    for place in PLACES:
        updater = make_updater(config, data)
        Memory(updater.model, 3, place)
        updater.update(data.train, [np.arange(8), np.arange(8, 20)], 1, "")
        updaters.append(updater)
    for a, b in zip(*map(gradients, updaters), strict=True):
        assert torch.equal(a, b), "where the memory ran out makes no difference"
    parts = [part for whole in (Part(0, np.arange(8)), Part(1, np.arange(8))) for part in tree(whole)]
    assert len(parts) == 2 * 15
    assert len({dropout_seed(1, 1, part.index, part.number) for part in parts}) == len(parts)
    assert dropout_seed(1, 1, 0, 1) == dropout_seed(1, 1, 0)


def tree(part: Part) -> list[Part]:
    """A part, its halves, their halves, and so on."""
    below = part.halves() if len(part.rows) > 1 else ()
    return [part, *(piece for half in below for piece in tree(half))]


@pytest.mark.parametrize("place", PLACES)
def test_one_pair_that_does_not_fit_stops(corpus: Path, data: PreparedData, place: str) -> None:
    config = toy_config(corpus)
    updater = make_updater(config, data)
    before = [p.clone() for p in updater.model.parameters()]
    Memory(updater.model, 0, place)
    with pytest.raises(UserError, match=r"memory of cpu .*one pair.*model.max_len"):
        updater.update(data.train, [np.arange(8)], 1, "")
    assert all(torch.equal(a, b) for a, b in zip(before, updater.model.parameters(), strict=True))


def test_other_errors_are_no_lack_of_memory(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus)
    updater = make_updater(config, data)
    memory = Memory(updater.model, 4)
    memory.error = lambda: RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="shapes"):
        updater.update(data.train, [np.arange(8)], 1, "")


def test_the_allocators_own_errors_are_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.float32)
    assert is_out_of_memory(caught.value)
    with pytest.raises(MemoryError) as refused:
        np.zeros(2**58)
    assert is_out_of_memory(refused.value)


# The probe


def plan(config: RunConfig, data: PreparedData) -> list[np.ndarray]:
    return plan_batches(data.train.src_lengths, data.train.tgt_lengths, tokens_at_once(config), config.seed, 0)


@pytest.mark.parametrize("max_tokens", [16, 40, 100, 400])
def test_nothing_planned_is_larger_than_what_is_probed(corpus: Path, data: PreparedData, max_tokens: int) -> None:
    config = toy_config(corpus, training={"max_tokens": max_tokens})
    updater = make_updater(config, data)
    memory = Memory(updater.model, 10**6)
    batches = [data.train.batch(rows) for rows in plan(config, data)]
    assert probe(updater, data.train, plan(config, data), False) is None
    (probed,) = [batch for batch in batches if batch.src.tolist() == memory.seen[0]]
    assert len(memory.seen) == 1
    positions = probed.src.numel() + probed.tgt_out.numel()
    for batch in batches:
        assert batch.src.numel() + batch.tgt_out.numel() <= positions or batch.num_tokens <= probed.num_tokens


def test_the_probe_changes_nothing_bit_for_bit(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus, model={"dropout": 0.3}, training={"grad_accum": 2})
    results = []
    for probed in (False, True):
        updater = make_updater(config, data)
        for step in (1, 2, 3):  # before the first step, and as a resumed run does it
            if probed and step != 2:
                generator = torch.get_rng_state()
                assert probe(updater, data.train, plan(config, data), True) is None
                assert torch.equal(generator, torch.get_rng_state())
                assert all(p.grad is None for p in updater.model.parameters())
            results.append(updater.update(data.train, plan(config, data)[2 * step : 2 * step + 2], step, "").result())
        results.append([p.clone() for p in updater.model.parameters()])
    assert results[:3] == results[4:7]
    assert all(torch.equal(a, b) for a, b in zip(results[3], results[7], strict=True))


@pytest.mark.parametrize("place", PLACES)
def test_the_probe_finds_the_size_that_fits(corpus: Path, data: PreparedData, place: str) -> None:
    config = toy_config(corpus)
    updater = make_updater(config, data)
    memory = Memory(updater.model, 3, place)
    largest = probe(updater, data.train, plan(config, data), False)
    assert largest is not None
    assert len(largest) > 3
    assert len(memory.seen) == 1, "one piece that fits is enough to know"
    failures = memory.num_failures
    updater.update(data.train, [largest], 1, "")
    assert memory.num_failures == failures


def test_a_probe_that_no_pair_passes_says_what_to_do(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus)
    updater = make_updater(config, data)
    Memory(updater.model, 0)
    with pytest.raises(UserError, match=r"one pair.*model.max_len.*smaller model"):
        probe(updater, data.train, plan(config, data), False)


# A whole training


@contextmanager
def memory_of(monkeypatch: pytest.MonkeyPatch, limit: int):
    """While inside, trainings have room for `limit` sentences."""

    def build(*arguments):
        model = build_model(*arguments)
        Memory(model, limit, "backward")
        return model

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "build_model", build)
        yield


def test_a_training_that_must_split_says_so_once_and_counts(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = toy_config(corpus, model={"dropout": 0.0}, training={"max_steps": 6})
    lines = {}
    for name, limit in (("roomy", 10**6), ("narrow", 5)):
        with memory_of(monkeypatch, limit):
            start_or_resume(config, RunFolder(tmp_path / name), resume=False)
        lines[name] = [line for line in metrics(tmp_path / name) if line["kind"] == "train"]
        said = capsys.readouterr().out
        assert said.count("does not fit") == said.count("training.max_tokens") == (name == "narrow")
    assert not any("split_micro_batches" in line for line in lines["roomy"])
    assert sum(line.get("split_micro_batches", 0) for line in lines["narrow"]) > 0
    for one, two in zip(lines["roomy"], lines["narrow"], strict=True):
        assert one["num_tokens"] == two["num_tokens"]
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-4)


def test_memory_that_runs_out_later_is_said_then(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = toy_config(corpus, training={"max_steps": 6})
    memories = []

    def build(*arguments):
        model = build_model(*arguments)
        memories.append(Memory(model, 10**6))
        return model

    update = Updater.update

    def shrinking(self: Updater, split, micro_batches, step, place, batch_of):
        memories[0].limit = 4 if step > 2 else 10**6
        return update(self, split, micro_batches, step, place, batch_of)

    monkeypatch.setattr(run_module, "build_model", build)
    monkeypatch.setattr(Updater, "update", shrinking)
    start_or_resume(config, RunFolder(tmp_path / "run"), resume=False)
    said = capsys.readouterr().out
    assert re.findall(r"a micro-batch of step (\d) does not fit", said) == ["3"]
    assert said.count("does not fit") == 1


def test_a_resumed_run_splits_what_the_run_has_split(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, whose draws depend on the parts. There is room again after step 3, and still the run splits."""
    memories: list[Memory] = []
    update = Updater.update

    def widening(self: Updater, split, micro_batches, step, place, batch_of):
        memories[-1].limit = 5 if step <= 3 else 10**6
        return update(self, split, micro_batches, step, place, batch_of)

    def build(limit: int, *arguments):
        model = build_model(*arguments)
        memories.append(Memory(model, limit))
        return model

    monkeypatch.setattr(Updater, "update", widening)
    legs = {"straight": [(6, 5)], "resumed": [(3, 5), (6, 10**6)]}
    for name, ends in legs.items():
        for end, limit in ends:
            monkeypatch.setattr(run_module, "build_model", partial(build, limit))
            config = toy_config(corpus, model={"dropout": 0.2}, training={"max_steps": end})
            start_or_resume(config, RunFolder(tmp_path / name), resume=True)
    straight, resumed = (RunFolder(tmp_path / name).step(6) / "model.safetensors" for name in legs)
    assert straight.read_bytes() == resumed.read_bytes()
