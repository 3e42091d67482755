"""SimCut and R-Drop against the formula, written with torch's own kl_div over two separate passes."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.config.sections.consistency import CONSISTENCIES, ConsistencyConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.data.batches.batching import pad_rows
from transformer_mt.model import consistency as consistency_module
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.consistency import consistent_batch_loss, output_pair_sums, pair_weights
from transformer_mt.model.cpu import chunked_pairs, kernels
from transformer_mt.model.cpu.chunked_pairs import PairWeights, pair_gradients
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import LossSums, batch_loss
from transformer_mt.model.parts.word_dropout import WordFactors, kept, with_cuts, word_factors

VOCAB = 30
SIMCUT, RDROP = ConsistencyConfig(kind="simcut", cut=0.4), ConsistencyConfig(kind="rdrop", alpha=2.0)
ONE_STREAM = {"architecture": "decoder_only", "num_encoder_layers": 0, "tie_embeddings": "all"}
MODELS: list[dict[str, Any]] = [
    {"num_heads": 4},
    {"num_heads": 1, "positions": "rotary"},  # unpadded, in float32
    ONE_STREAM,
    {"num_experts": 3, "experts_per_token": 2, "tie_embeddings": "none"},
]


RNN: dict[str, Any] = {"architecture": "rnn", "d_ff": 2048, "num_heads": 8}


def make_model(changes: dict[str, Any], dtype: torch.dtype = torch.float64) -> TranslationModel:
    values = {"d_model": 16, "d_ff": 24, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    torch.manual_seed(0)
    config = ModelConfig(**{**values, "dropout": 0.0, "max_len": 32, **changes})
    return ARCHITECTURES[config.architecture](config, VOCAB, VOCAB).to(dtype).train()


def make_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Three pairs: src, tgt_in, tgt_out. Leaves torch's global generator alone."""
    numbers = np.random.default_rng(1)
    src, tgt_in, tgt_out = (
        pad_rows([numbers.integers(4, VOCAB, n) for n in lengths]) for lengths in ([5, 1, 9], [3, 8, 1], [3, 8, 1])
    )
    return src, tgt_in, tgt_out


def gradients(loss: Tensor, model: nn.Module) -> list[Tensor]:
    return [g.zero_() if g is None else g for g in torch.autograd.grad(loss, list(model.parameters()))]


def by_the_formula(
    model: TranslationModel, consistency: ConsistencyConfig, smoothing: float, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, nll of the first pass and divergence, of two passes apart, with the words taken out that the seed says."""
    src, tgt_in, tgt_out = make_batch()
    torch.manual_seed(seed)
    both = src.repeat(2, 1), tgt_in.repeat(2, 1)
    drawn = word_factors(model.config, *both)
    words = [torch.ones(side.shape) for side in both] if drawn is None else list(drawn)
    if consistency.cut_probability:  # of the second pass
        words = [torch.cat((w[:3], w[3:] * kept(w[3:], consistency.cut_probability))) for w in words]
    log_probs = []
    for rows in (slice(0, 3), slice(3, 6)):
        own = WordFactors(*(side[rows] for side in words))
        hidden = model.hidden_states(src, tgt_in, None, own)
        log_probs.append(model.output(hidden)[tgt_out != PAD_ID].log_softmax(-1))
    targets = tgt_out[tgt_out != PAD_ID]
    ce = [F.cross_entropy(p, targets, label_smoothing=smoothing, reduction="sum") for p in log_probs]
    p, q = log_probs
    forward, backward = (F.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((q, p), (p, q)))
    nll = F.nll_loss(p, targets, reduction="sum")
    if consistency.kind == "simcut":
        return ce[0] + consistency.weight * forward, nll, forward
    return (ce[0] + ce[1]) / 2 + consistency.weight * (forward + backward) / 2 / 2, nll, (forward + backward) / 2


WORDS = {"src_word_dropout": 0.3, "tgt_word_dropout": 0.2}  # of which the draws can be drawn again


@pytest.mark.parametrize(
    ("consistency", "words"), [(SIMCUT, {}), (SIMCUT, WORDS), (RDROP, WORDS)], ids=["simcut", "simcut_words", "rdrop"]
)
@pytest.mark.parametrize("changes", [*MODELS, RNN], ids=lambda changes: next(iter(changes)))
def test_loss_and_gradients_are_those_of_the_formula(
    changes: dict[str, Any], consistency: ConsistencyConfig, words: dict[str, float]
) -> None:
    """Under R-Drop word dropout makes the passes differ. Experts balance nothing."""
    is_unpadded = changes.get("num_heads") == 1
    dtype, close = (torch.float32, 1e-4) if is_unpadded else (torch.float64, 1e-9)
    balance = {"load_balancing_weight": 0.0} if "num_experts" in changes else {}
    model = make_model({**balance, **changes, **words}, dtype)
    src, tgt_in, tgt_out = make_batch()
    real, src_real = ((ids.flatten() != PAD_ID).nonzero()[:, 0] for ids in (tgt_out, src))
    torch.manual_seed(7)
    sums = consistent_batch_loss(model, src, tgt_in, tgt_out, 0.1, consistency, real, src_real=src_real)
    loss, nll, divergence = by_the_formula(model, consistency, 0.1, 7)
    assert divergence > 0.1
    torch.testing.assert_close((sums.loss, sums.nll, sums.divergence), (loss, nll, divergence))
    torch.testing.assert_close(gradients(sums.loss, model), gradients(loss, model), rtol=close, atol=close)


@pytest.mark.parametrize("kind", CONSISTENCIES)
@pytest.mark.parametrize("changes", MODELS, ids=lambda changes: next(iter(changes)))
def test_equal_passes_are_one(changes: dict[str, Any], kind: str) -> None:
    """Without dropout and cuts nothing differs, and loss and gradients are the plain ones; that of experts too."""
    model = make_model(changes, torch.float32)
    cut = {"cut": 0.0} if CONSISTENCIES[kind].cuts else {}
    sums = consistent_batch_loss(model, *make_batch(), 0.1, ConsistencyConfig.model_validate({"kind": kind, **cut}))
    plain = batch_loss(model, *make_batch(), 0.1)
    assert sums.divergence is not None
    assert abs(sums.divergence.item()) < 1e-5
    torch.testing.assert_close(
        (sums.loss, sums.nll, sums.load_balancing), (plain.loss, plain.nll, plain.load_balancing)
    )
    torch.testing.assert_close(gradients(sums.loss, model), gradients(plain.loss, model), rtol=1e-4, atol=1e-5)


def test_dropout_of_both_passes_differs_and_comes_again() -> None:
    model = make_model({"dropout": 0.3, "num_heads": 1}, torch.float32)
    found = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        found.append(consistent_batch_loss(model, *make_batch(), 0.1, RDROP))
    assert found[0].loss == found[1].loss != found[2].loss
    assert found[0].divergence == found[1].divergence > 1


def test_cuts_are_of_the_second_pass_alone_and_as_many_as_asked_for() -> None:
    ids = torch.ones(40, 500, dtype=torch.long)
    factors = with_cuts(None, ids, ids, 0.05)
    assert factors is not None
    for side in factors:
        assert (side[:20] == 1).all()
        assert set(side[20:].unique().tolist()) == {0, 1}
        assert (side[20:] == 0).double().mean().item() == pytest.approx(0.05, abs=5 * (0.05 * 0.95 / 10_000) ** 0.5)
    assert with_cuts(None, ids, ids, 0.0) is None


# The output projection


WEIGHTS = PairWeights(0.5, 0.7, 1.3, 0.4, 0.1, 0.6, 0.4)


def projected(bias: bool, dtype: torch.dtype = torch.float64) -> tuple[nn.Linear, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    prior = torch.rand(VOCAB, dtype=torch.float64)
    hidden = (5 * torch.randn(26, 8, dtype=dtype)).requires_grad_()
    return nn.Linear(8, VOCAB, bias, dtype=dtype), hidden, torch.randint(VOCAB, (13,)), prior / prior.sum()


def expected_sums(output: nn.Linear, hidden: Tensor, targets: Tensor, prior: Tensor | None, w: PairWeights) -> LossSums:
    p, q = output(hidden).log_softmax(-1).split(len(targets))
    q0 = torch.full((VOCAB,), 1 / VOCAB, dtype=p.dtype) if prior is None else prior.to(p.dtype)

    def ce(log_probs: Tensor) -> Tensor:
        return (1 - w.smoothing) * F.nll_loss(log_probs, targets, reduction="sum") - w.smoothing * (
            log_probs @ q0
        ).sum()

    forward, backward = (F.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((q, p), (p, q)))
    loss = w.first * ce(p) + w.second * ce(q) + w.forward * forward + w.backward * backward
    nll = F.nll_loss(p, targets, reduction="sum")
    return LossSums(loss, nll, divergence=w.forward_share * forward + w.backward_share * backward)


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("with_prior", [True, False])
def test_chunks_equal_the_formula_on_all_logits(
    monkeypatch: pytest.MonkeyPatch, with_prior: bool, bias: bool, chunked: bool
) -> None:
    """Those that a CPU makes, and the logits that other devices make at once."""
    monkeypatch.setattr(chunked_pairs, "CHUNK", 10)
    monkeypatch.setattr(consistency_module, "NUMBERS_AT_ONCE", 4 * VOCAB)
    if not chunked:  # as under fp16
        monkeypatch.setattr(consistency_module, "product_dtype", lambda hidden: torch.float16)
    output, hidden, targets, prior = projected(bias)
    prior, inputs = prior if with_prior else None, [hidden, *output.parameters()]
    sums = output_pair_sums(output, hidden, targets, WEIGHTS, prior)
    expected = expected_sums(output, hidden, targets, prior, WEIGHTS)
    torch.testing.assert_close(sums, expected, rtol=1e-9, atol=1e-9)
    ours, theirs = (torch.autograd.grad(3 * s.loss, inputs) for s in (sums, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chunked", [True, False])
def test_bf16_is_as_near_as_bf16_logits(monkeypatch: pytest.MonkeyPatch, chunked: bool) -> None:
    if not chunked:
        monkeypatch.setattr(consistency_module, "product_dtype", lambda hidden: torch.float16)
    output, hidden, targets, _ = projected(True, torch.float32)
    with torch.no_grad():
        hidden /= 5
    inputs = [hidden, *output.parameters()]
    with torch.autocast("cpu", torch.bfloat16):
        sums = output_pair_sums(output, hidden, targets, WEIGHTS)
        same = expected_sums(output, hidden, targets, None, WEIGHTS)
    exact = expected_sums(output, hidden, targets, None, WEIGHTS)
    assert sums.loss.item() == pytest.approx(exact.loss.item(), rel=5e-3)
    for ours, theirs, true in zip(*(torch.autograd.grad(s.loss, inputs) for s in (sums, same, exact)), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - true).norm() <= 1.5 * (theirs - true).norm() + 2e-3 * true.norm()


def test_fp16_holds_the_smooth_part_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sum is beyond the largest number of fp16."""
    monkeypatch.setattr(consistency_module, "product_dtype", lambda hidden: torch.float16)
    output, targets = nn.Linear(4, 1000), torch.randint(1000, (6000,), generator=torch.Generator().manual_seed(1))
    nn.init.constant_(output.bias, -12)
    prior, hidden = torch.full((1000,), 1e-3), torch.zeros(12_000, 4)
    expected = output_pair_sums(output, hidden, targets, WEIGHTS, prior).loss
    with torch.autocast("cpu", torch.float16):
        assert output_pair_sums(output, hidden, targets, WEIGHTS, prior).loss.item() == pytest.approx(
            expected.item(), rel=1e-3
        )


def test_a_width_of_its_own_on_a_gpu_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consistency_module, "product_dtype", lambda hidden: torch.float16)
    monkeypatch.setattr(consistency_module, "wants_alignment", lambda *_: True)
    output, hidden, targets, prior = projected(True, torch.float32)
    prior, inputs = prior.float(), [hidden, *output.parameters()]
    sums = output_pair_sums(output, hidden, targets, WEIGHTS, prior)
    expected = expected_sums(output, hidden, targets, prior, WEIGHTS)
    torch.testing.assert_close(sums, expected)
    ours, theirs = (torch.autograd.grad(s.loss, inputs) for s in (sums, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", kernels.DTYPES)
@pytest.mark.parametrize("width", [2, 31, 5000])
def test_numbas_pass_is_torchs(width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(width)
    first, second = ((6 * torch.randn(20, width, generator=generator)).to(dtype) for _ in range(2))
    second[3] = first[3]
    first[4] *= 30
    targets = torch.randint(width, (20,), generator=generator)
    others = first.clone(), second.clone()
    expected = pair_gradients(*others, targets, WEIGHTS)
    found = kernels.pair_gradients(first, second, targets, WEIGHTS)
    rtol, atol = (2e-2, 1e-2) if dtype == torch.bfloat16 else (1e-4, 1e-4)
    torch.testing.assert_close((first, second), others, rtol=rtol, atol=atol)
    torch.testing.assert_close([*map(torch.stack, found)], [*map(torch.stack, expected)], rtol=1e-4, atol=1e-3)
    assert not any(torch.equal(a, b) for a, b in zip((first, second), (second, first), strict=True))


def test_a_target_that_is_no_word_is_refused_by_numba() -> None:
    with pytest.raises(IndexError, match="31 words"):
        kernels.pair_gradients(torch.randn(1, 31), torch.randn(1, 31), torch.tensor([31]), WEIGHTS)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_logit_that_is_no_number_makes_no_loss(bad: float) -> None:
    first, second = torch.randn(2, 50), torch.randn(2, 50)
    second[1, 7] = bad
    sums = kernels.pair_gradients(first, second, torch.tensor([5, 1]), WEIGHTS)
    assert not sums[2][0].isfinite()


def test_the_weights_are_those_of_the_papers() -> None:
    """SimCut: CE(p) + 3 KL(p || q). R-Drop: half of CE(p) + CE(q) + 5 (KL(p || q) + KL(q || p)) / 2."""
    assert pair_weights(ConsistencyConfig(kind="simcut"), 0.1) == (1, 0, 3, 0, 0.1, 1, 0)
    assert pair_weights(ConsistencyConfig(kind="rdrop"), 0.1) == (0.5, 0.5, 1.25, 1.25, 0.1, 0.5, 0.5)
    assert ConsistencyConfig(kind="simcut").cut_probability == 0.05
    assert ConsistencyConfig(kind="rdrop").cut_probability == 0
