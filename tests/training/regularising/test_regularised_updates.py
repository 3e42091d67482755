"""Updates under each regulariser: against torch, against a count, and against the plain update where they are one."""

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from marks import slow
from torch import Tensor, nn
from toy import toy_config
from updating import REGULARISERS, gradients, make_updater

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.data.encoding import EncodedCorpus
from transformer_mt.data.id_file import IdColumn
from transformer_mt.data.preparation import PreparedData, Split
from transformer_mt.model.loss import cross_entropy_sums, output_loss_sums
from transformer_mt.model.recurrent.rnn import Rnn
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.begin import write_beginnings
from transformer_mt.training.debugging.diagnosis import diagnose
from transformer_mt.training.debugging.not_finite import NotFiniteError
from transformer_mt.training.debugging.replay_file import replay_file
from transformer_mt.training.memory.probe import probe
from transformer_mt.training.regularising.unigram import unigram
from transformer_mt.training.regularising.weight_decay import decaying
from transformer_mt.training.updates import Updater

ALL = {
    "model": {"dropout": 0.2, "src_word_dropout": 0.2, "tgt_word_dropout": 0.1, "layer_drop": 0.3},
    "training": REGULARISERS,
}


# Weight decay


@pytest.mark.parametrize("tied", ["decoder", "none"])
def test_steps_are_those_of_torchs_adamw(corpus: Path, data: PreparedData, tied: str) -> None:
    """On the same gradients, one parameter at a time. Only matrices of linear maps decay, unless they embed too."""
    config = toy_config(
        corpus, model={"tie_embeddings": tied, "positions": "learned"}, training={"weight_decay": 0.3, "factor": 50.0}
    )
    updater = make_updater(config, data)
    names = {name for name, _ in updater.model.named_parameters()}
    still = {name for name in names if "norm" in name or "embedding" in name or name.endswith("bias")}
    still |= {"output.weight"} if tied == "decoder" else set()
    assert len(names - still) > 10
    others = {name: nn.Parameter(p.detach().clone()) for name, p in updater.model.named_parameters()}
    theirs = {
        name: torch.optim.AdamW([p], 0.0, (0.9, 0.98), 1e-9, 0.0 if name in still else 0.3, fused=False)
        for name, p in others.items()
    }
    for step in (1, 2, 3):
        lr = updater.update(data.train, [np.arange(8 * step, 8 * step + 8)], step, "").result().lr
        for name, parameter in updater.model.named_parameters():
            assert parameter.grad is not None
            others[name].grad = parameter.grad.clone()
            theirs[name].param_groups[0]["lr"] = lr
            theirs[name].step()
            torch.testing.assert_close(parameter, others[name], atol=1e-6, rtol=1e-6, msg=name)


def test_the_moments_of_both_groups_come_back(corpus: Path, data: PreparedData) -> None:
    config = toy_config(corpus, training={"weight_decay": 0.3})
    first, second = make_updater(config, data), make_updater(config, data)
    first.update(data.train, [np.arange(8)], 1, "")
    second.restore(*({name: t.clone() for name, t in tensors.items()} for tensors in first.tensors()))
    for updater in (first, second):
        updater.update(data.train, [np.arange(8, 16)], 2, "")
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(first.optimizer.state[a]["exp_avg_sq"], second.optimizer.state[b]["exp_avg_sq"])


# Smoothing


def test_the_prior_is_each_tokens_share_of_the_targets(corpus: Path, data: PreparedData) -> None:
    counts: Counter[int] = Counter()
    for line in (corpus / "train.es").read_text(encoding="utf-8").splitlines():
        counts.update([*data.tgt_tokenizer.encode(line), 3])
    prior = unigram(data.train, data.tgt_tokenizer.vocab_size)
    total = sum(counts.values())
    assert prior.tolist() == pytest.approx([counts[i] / total for i in range(data.tgt_tokenizer.vocab_size)])


def test_one_long_target_does_not_set_the_memory_of_the_count() -> None:
    lengths = np.ones(4096, np.int32)
    lengths[7] = 2000
    column = IdColumn(np.full(lengths.sum(), 5, np.int32), lengths)
    split = Split("train", cast(Any, None), EncodedCorpus(column, column, 0, 0), np.arange(4096))
    tracemalloc.start()
    try:
        prior = unigram(split, 6)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert prior.tolist() == pytest.approx([0, 0, 0, 4096 / 10191, 0, 6095 / 10191])
    assert peak < 100 * 6095


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_smoothing_by_a_prior_is_the_sum_over_the_words(bias: bool, chunked: bool) -> None:
    torch.manual_seed(0)
    dtype = torch.float64 if chunked else torch.float32
    output, hidden = nn.Linear(8, 30, bias, dtype=dtype), torch.randn(20, 8, dtype=dtype, requires_grad=True)
    targets, prior = torch.randint(30, (20,)), torch.rand(30, dtype=dtype)
    prior /= prior.sum()
    inputs = [hidden, *output.parameters()]
    log_probs = output(hidden).log_softmax(-1)
    smooth = sum(-prior[word] * log_probs[row, word] for row in range(20) for word in range(30))
    expected = 0.8 * F.nll_loss(log_probs, targets, reduction="sum") + 0.2 * smooth
    if chunked:
        sums = output_loss_sums(output, hidden, targets, 0.2, prior=prior)
    else:
        sums = output_loss_sums(output, hidden, targets, 0.2, lambda *given: cross_entropy_sums(*given), prior)
    torch.testing.assert_close(sums.loss, expected)
    ours, theirs = (torch.autograd.grad(3 * loss, inputs) for loss in (sums.loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


# Two passes


def test_before_its_first_step_two_passes_are_one_bit_for_bit(corpus: Path, data: PreparedData) -> None:
    sections = {"training": {"consistency": {"kind": "rdrop", "start_step": 3}}}
    plain, late = (make_updater(toy_config(corpus, **more), data) for more in ({}, sections))
    results = []
    for step in (1, 2, 3):
        results.append([u.update(data.train, [np.arange(8)], step, "").result() for u in (plain, late)])
        same = all(map(torch.equal, plain.model.parameters(), late.model.parameters()))
        assert same == (step < 3)
    assert [(a == b, a.divergence, b.divergence is None) for a, b in results] == [
        (True, None, True), (True, None, True), (False, None, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "num_heads"),
    [
        pytest.param("simcut", 1, id="simcut-unpadded"),
        pytest.param("rdrop", 2, id="rdrop-padded"),
        slow("simcut", 2, id="simcut-padded"),
        slow("rdrop", 1, id="rdrop-unpadded"),
    ],
)
def test_the_divergence_makes_predictions_agree(corpus: Path, data: PreparedData, kind: str, num_heads: int) -> None:
    """After some steps it is lower than in a training whose loss hardly has it, and the nll is no part of that."""
    found = []
    for alpha in (1e-6, 20.0):
        training = {"consistency": {"kind": kind, "alpha": alpha}, "factor": 0.5}
        updater = make_updater(
            toy_config(corpus, model={"dropout": 0.3, "num_heads": num_heads}, training=training), data
        )
        results = [updater.update(data.train, [np.arange(40)], step, "").result() for step in range(1, 31)]
        found.append(np.mean([(r.divergence or 0) / r.num_tokens for r in results[-5:]]))
    assert 0 < found[1] < 0.5 * found[0]


def test_micro_batches_add_up(corpus: Path, data: PreparedData) -> None:
    """Without chance: two passes that are equal, smoothing by the prior, one batch or three."""
    training = {**REGULARISERS, "consistency": {"kind": "simcut", "cut": 1e-9}}
    config = toy_config(corpus, model={"dropout": 0.0}, training=training)
    whole, parts = make_updater(config, data), make_updater(config, data)
    first = whole.update(data.train, [np.arange(9)], 1, "").result()
    second = parts.update(data.train, np.split(np.arange(9), [2, 5]), 1, "").result()
    assert first.loss == pytest.approx(second.loss, rel=1e-5)
    for a, b in zip(gradients(whole), gradients(parts), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


# Where memory runs out


def only_room_for(updater: Updater, num_rows: int) -> list[int]:
    """A memory that has room for so many sentences in the encoder. Returns the list of sizes that went through."""
    sizes: list[int] = []

    def hook(module: nn.Module, inputs: tuple[Any, ...], memory: Tensor) -> None:
        sizes.append(len(inputs[0].ids))
        if sizes[-1] > num_rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    updater.model.get_submodule("encoder").register_forward_hook(hook)
    return sizes


def test_what_has_room_once_and_not_twice_is_split_when_it_comes_to_two_passes(
    corpus: Path, data: PreparedData
) -> None:
    """Before, all of it is computed at once, though the first try found that twice would not fit."""
    training = {"consistency": {"kind": "simcut", "cut": 1e-9, "start_step": 2}, "clip_norm": None, "factor": 1e-6}
    config = toy_config(corpus, model={"dropout": 0.0}, training=training)
    whole, small = make_updater(config, data), make_updater(config, data)
    rows = [np.arange(8)]
    sizes = only_room_for(small, 10)
    assert probe(small, data.train, rows, False) is not None
    assert sizes == [16, 8]
    results = [
        (u.update(data.train, rows, 1, "").result(), u.update(data.train, rows, 2, "").result()) for u in (whole, small)
    ]
    assert [[result.num_split for result in both] for both in results] == [[0, 0], [0, 1]]
    assert sizes == [16, 8, 8, 8, 8]
    for a, b in zip(gradients(whole), gradients(small), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


# What is kept of an update that is not finite


def test_the_replay_of_a_regularised_update_is_the_update_bit_for_bit(
    corpus: Path, data: PreparedData, tmp_path: Path
) -> None:
    config = toy_config(corpus, **ALL)
    run = RunFolder(tmp_path / "run")
    write_beginnings(config, run, data)
    rows = [np.arange(8), np.arange(8, 19)]
    sound, updater = make_updater(config, data), make_updater(config, data)
    expected = sound.update(data.train, rows, 4, "").result()
    norms = {name: float(p.grad.norm()) for name, p in sound.model.named_parameters() if p.grad is not None}

    def plant(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda gradient: gradient * torch.inf)

    handle = updater.model.get_submodule("decoder").register_forward_hook(plant)
    with pytest.raises(NotFiniteError) as caught:
        updater.update(data.train, rows, 4, "")
    handle.remove()
    diagnose(caught.value, updater, updater.model, run)
    found = replay_file(run.debug / "step_4.safetensors", run)
    assert found.record.consistency == config.training.consistency
    assert float(np.sum([part.loss for part in found.replay.micro_batches], dtype=np.float32)) == expected.loss
    assert {gradient.name: gradient.norm for gradient in found.replay.gradients} == norms


def test_the_pairs_of_either_pass_are_named(corpus: Path, data: PreparedData, tmp_path: Path) -> None:
    config = toy_config(corpus, training={"consistency": {"kind": "rdrop"}})
    run = RunFolder(tmp_path / "run")
    write_beginnings(config, run, data)
    updater, token = make_updater(config, data), 7
    has = [row for row in range(60) if token in data.train.batch(np.array([row])).src[0].tolist()]
    without = [row for row in range(60) if row not in has]
    with torch.no_grad():
        updater.model.get_parameter("encoder.embedder.embedding.weight")[token] = 3e38
    with pytest.raises(NotFiniteError) as caught:
        updater.update(data.train, [np.array([*without[:3], *has[:2]])], 4, "")
    message = str(diagnose(caught.value, updater, updater.model, run))
    assert f"for 2 of 5 pairs (the first: {data.train.corpus.where(has[0])})" in message


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("training.consistency.alpha", {"training": {"consistency": {"kind": "rdrop", "alpha": 1e38}}}),
        ("model.load_balancing_weight", {"model": {"num_experts": 2, "load_balancing_weight": 1e38}}),
    ],
)
def test_a_weight_that_makes_the_loss_infinite_is_named_before_the_rate(
    key: str, sections: dict[str, Any], corpus: Path, data: PreparedData, tmp_path: Path
) -> None:
    config = toy_config(corpus, **sections)
    updater = make_updater(config, data)
    with pytest.raises(NotFiniteError) as caught:
        updater.update(data.train, [np.arange(8)], 1, "")
    message = str(diagnose(caught.value, updater, updater.model, RunFolder(tmp_path / "run")))
    assert message.startswith("The loss is inf at step 1")
    assert f"\nFirst lower {key}, which is 1e+38 and by default " in message
    assert "Lower the learning rate" in message


def test_the_matrices_of_recurrent_cells_decay() -> None:
    model = Rnn(ModelConfig(architecture="rnn", d_model=8, num_encoder_layers=2, num_decoder_layers=1), 9, 9)
    decayed = decaying(model)
    kept = {name for name, parameter in model.named_parameters() if id(parameter) not in decayed}
    assert kept == {name for name, p in model.named_parameters() if p.dim() == 1 or "embedding" in name}
