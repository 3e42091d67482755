"""`training.max_tokens: auto`: the largest micro-batches that fit, an update that stays what it was, exact resuming.

The memory is planted, as in `test_out_of_memory.py`: it has room for so many sentences. The oracles are
the number below the one that was chosen, and the same training with the numbers written into its config.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from test_out_of_memory import Memory, memory_of
from toy import toy_config
from updating import make_updater

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.batches.batching import Rows, plan_batches
from transformer_mt.data.preparation import PreparedData
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.storage.weights import read_tensors
from transformer_mt.training.memory import choose_max_tokens as module
from transformer_mt.training.memory.choose_max_tokens import choose_max_tokens, fewest
from transformer_mt.training.memory.probe import rehearse_largest
from transformer_mt.training.run import start_or_resume

UPDATE = 400  # positions of an update
LONGEST = toy_config(Path()).model.max_len


def auto(corpus: Path, **training: object) -> RunConfig:
    model = {"dropout": 0.2}
    return toy_config(corpus, model=model, training={"max_tokens": "auto", "update_tokens": UPDATE, **training})


@pytest.mark.parametrize("most", range(1, 20))
def test_the_fewest_that_fit_are_found_with_few_tries(most: int) -> None:
    for least in range(1, most + 2):  # one more than `most`: nothing fits
        found, tried = found_and_tried(least, most)
        assert found == min(least, most)
        assert len(tried) == len(set(tried)) <= 2 * most.bit_length() + 1


def found_and_tried(least: int, most: int) -> tuple[int, list[int]]:
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number >= least

    return fewest(fits, most), tried


@pytest.mark.parametrize("sentences", [2, 4, 9, 30, 1000])
def test_the_largest_micro_batches_that_fit_are_chosen(corpus: Path, data: PreparedData, sentences: int) -> None:
    config = auto(corpus)
    updater = make_updater(config, data)
    memory = Memory(updater.model, sentences)

    def plan(max_tokens: int) -> list[Rows]:
        return plan_batches(data.train.src_lengths, data.train.tgt_lengths, max_tokens, config.seed, 0)

    def largest_fits(grad_accum: int) -> bool:
        return len(updater.limit.largest(data.train, plan(UPDATE // grad_accum))) <= sentences

    generator = torch.get_rng_state()
    chosen = choose_max_tokens(updater, data.train, plan, UPDATE, LONGEST)
    assert largest_fits(chosen.grad_accum) or chosen.grad_accum == UPDATE // LONGEST
    assert chosen.grad_accum == 1 or not largest_fits(chosen.grad_accum - 1)
    assert chosen.max_tokens == UPDATE // chosen.grad_accum
    assert torch.equal(generator, torch.get_rng_state())
    assert np.isinf(updater.limit.smallest_failed), "what was tried splits nothing later"
    assert all(p.grad is None for p in updater.model.parameters())
    assert (memory.num_failures > 0) == (chosen.grad_accum > 1)


def test_what_is_to_stay_free_is_part_of_the_try(corpus: Path, data: PreparedData) -> None:
    updater = make_updater(auto(corpus), data)
    rows = [np.arange(4)]
    assert rehearse_largest(updater, data.train, rows, False)
    assert not rehearse_largest(updater, data.train, rows, False, spare_bytes=2**60), "no machine has that"


def test_a_cpu_goes_by_the_machines_memory(corpus: Path, data: PreparedData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux would end a process that tried. What is estimated is a quarter of the memory at most."""
    config = auto(corpus)
    updater = make_updater(config, data)
    memory = Memory(updater.model, 10**6)

    def plan(max_tokens: int) -> list[Rows]:
        return plan_batches(data.train.src_lengths, data.train.tgt_lengths, max_tokens, config.seed, 0)

    of_a_third = 4 * int(updater.limit.demand(data.train, plan(UPDATE // 3)).max())
    monkeypatch.setattr(module, "memory_of_machine", lambda: 4 * of_a_third)
    assert choose_max_tokens(updater, data.train, plan, UPDATE, LONGEST).grad_accum == 3
    assert memory.num_failures == 0


def test_shares_that_hold_no_pair_are_refused(corpus: Path, data: PreparedData) -> None:
    updater = make_updater(auto(corpus), data)
    with pytest.raises(UserError, match=rf"update_tokens is {LONGEST - 1}.*Raise update_tokens, or start fewer"):
        choose_max_tokens(updater, data.train, lambda _: [], LONGEST - 1, LONGEST)


def test_it_trains_as_with_the_numbers_written_down_and_goes_on_exactly(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where there is more memory when it goes on: the order of the data depends on the choice."""
    steps = {"log_every_steps": 1, "checkpoint_every_steps": 3}
    with memory_of(monkeypatch, 9):
        start_or_resume(auto(corpus, max_steps=3, **steps), RunFolder(tmp_path / "auto"), resume=False)
    said = capsys.readouterr().out
    state = json.loads((tmp_path / "auto/checkpoints/step_3/state.json").read_text())
    max_tokens, grad_accum = state["max_tokens"], state["micro_batches_per_update"]
    assert grad_accum > 1
    assert max_tokens == UPDATE // grad_accum
    assert f"training.max_tokens is {max_tokens} and training.grad_accum {grad_accum}, the largest" in said
    start_or_resume(auto(corpus, max_steps=6, **steps), RunFolder(tmp_path / "auto"), resume=True)
    said = capsys.readouterr().out
    assert f"training.max_tokens is {max_tokens} as before, and training.grad_accum {grad_accum} for 1 process" in said
    assert "the largest micro-batches" not in said

    numbers = {"max_tokens": max_tokens, "grad_accum": grad_accum, "update_tokens": None, **steps}
    with memory_of(monkeypatch, 9):
        start_or_resume(auto(corpus, max_steps=3, **numbers), RunFolder(tmp_path / "written"), resume=False)
    start_or_resume(auto(corpus, max_steps=6, **numbers), RunFolder(tmp_path / "written"), resume=True)
    one, two = (read_tensors(tmp_path / name / "checkpoints/step_6/model.safetensors") for name in ("auto", "written"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)

    other = auto(corpus, max_steps=9, **steps, update_tokens=UPDATE + 1)
    with pytest.raises(UserError, match=f"training.update_tokens: was {UPDATE}, is {UPDATE + 1}"):
        start_or_resume(other, RunFolder(tmp_path / "auto"), resume=True)
