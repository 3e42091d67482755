"""The proofs in a training: one line, no trace, once a run, and what `training.proofs` changes."""

from pathlib import Path

import pytest
from pages import section, tables
from torch import Tensor
from trainings import assert_same_run, train_here

from transformer_mt.model.cache import LayerCache
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.proofs.prove import PROOFS

HOLD = "proofs: causality, padding, cache, batch order, gradients and loss hold, on 4 pairs ("


def test_the_table_of_the_docs_has_every_proof_and_its_law() -> None:
    (table,) = tables(section("docs/training.md", "Proofs before the first step"))
    assert [row[:2] for row in table[1:]] == [[name, proof.law] for name, proof in PROOFS.items()]


@pytest.mark.parametrize(
    "options",
    [(), ("model.num_experts=3", "training.precision=bf16"), ("data.streaming=true", "model.tgt_word_dropout=0.2")],
)
def test_one_line_and_no_trace(folder: Path, options: tuple[str, ...]) -> None:
    status, output = train_here(folder, "name=with", *options)
    assert status == 0, output
    assert output.count(HOLD) == 1
    status, output = train_here(folder, "name=without", "training.proofs=off", *options)
    assert status == 0, output
    assert "proofs: off, as training.proofs says" in output
    assert HOLD not in output
    assert_same_run(folder / "runs" / "with", folder / "runs" / "without", 3)


def test_a_run_that_goes_on_proves_nothing_again(folder: Path) -> None:
    status, output = train_here(folder)
    assert status == 0, output
    status, output = train_here(folder, "--resume", "auto", "training.max_steps=5", "training.proofs=warn")
    assert status == 0, output
    assert "going on from step 3" in output
    assert "proofs: " not in output


def test_a_failure_stops_before_the_first_step_unless_it_is_to_warn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = LayerCache.write

    def forgetful(self: LayerCache, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = write(self, start, k, v)
        keys[:, :, :start] = 0
        return keys, values

    monkeypatch.setattr(LayerCache, "write", forgetful)
    status, output = train_here(folder)
    assert status == 2
    said = "It does not hold that cache and full pass agree (the proof of cache): a search, which decodes step by step "
    assert said in output
    assert "This begins in decoder.layers.0.self_attn. Mend that" in output
    assert RunFolder(folder / "runs" / "toy").steps() == []
    status, output = train_here(folder, "--resume", "auto", "training.proofs=warn")
    assert status == 0, output
    assert f"warning: {said}" in output
