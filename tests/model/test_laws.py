"""Laws that every model keeps under every option: causality, padding and batch invariance, cache against full pass."""

import itertools
from collections.abc import Iterable

import pytest
import torch
from plain_model import PLAIN, VOCAB, random_ids
from safetensors.torch import load_file, save_file

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import PAD_ID
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.layers import RESIDUALS
from transformer_mt.model.loss import batch_loss
from transformer_mt.model.parts.feed_forward import ACTIVATIONS
from transformer_mt.model.parts.norms import NORMS
from transformer_mt.model.parts.positions import POSITIONS
from transformer_mt.model.recurrent.cells import CELLS
from transformer_mt.model.recurrent.decoder import RNN_ATTENTIONS

SHAPES: dict[str, dict] = {
    "encoder_decoder": PLAIN,
    "decoder_only": {**PLAIN, "num_encoder_layers": 0},
    "encoder_only": {**PLAIN, "num_decoder_layers": 0},
    "rnn": {key: PLAIN[key] for key in ("d_model", "num_encoder_layers", "num_decoder_layers", "max_len")},
}


def unlike_plain(options: Iterable[dict]) -> list[dict]:
    """Without those that say no more than what holds anyway."""
    plain = ModelConfig(**PLAIN)
    return [option for option in options if ModelConfig(**{**PLAIN, **option}) != plain]


# Every value of every option, and every combination of those that touch each other.
SINGLE: list[dict] = [
    {},
    *unlike_plain({"norm": norm, "norm_position": place} for norm in NORMS for place in RESIDUALS),
    *unlike_plain({"activation": activation} for activation in ACTIVATIONS),
    {"norm": "rmsnorm", "bias": False},
    {"activation": "swiglu", "bias": False},
    {"scale_attention": False},
    {"tie_embeddings": "none"},
    {"tie_embeddings": "all", "norm_position": "post"},
    {"num_experts": 4, "experts_per_token": 2},
    {"num_experts": 3, "experts_per_token": 1, "activation": "swiglu"},
]
TOUCHING: list[dict] = unlike_plain(
    {"positions": positions, "num_kv_heads": num_kv_heads, "attention_window": window}
    for positions, num_kv_heads, window in itertools.product(POSITIONS, [None, 2, 1], [None, 3])
)
# Of these, the ones by which a model has other kinds of parameters: fewer key heads make some smaller, no more.
POSITIONED: list[dict] = unlike_plain({"positions": positions} for positions in POSITIONS)
EVERYTHING: list[dict] = [
    {"norm": "rmsnorm", "activation": "swiglu", "bias": False, "positions": "rotary", "num_kv_heads": 2,
     "attention_window": 3, "num_experts": 4, "experts_per_token": 2},
    {"norm": "rmsnorm", "bias": False, "positions": "relative_bias", "num_kv_heads": 1, "scale_attention": False,
     "attention_window": 4, "num_experts": 2, "norm_position": "post", "tie_embeddings": "all"},
]  # fmt: skip
# Of an RNN: every cell under every attention, and both ways of feeding it.
RECURRENT: list[dict] = (
    [
        {"rnn": {"cell": cell, "attention": attention, "input_feeding": feeding}}
        for cell, attention, feeding in itertools.product(CELLS, RNN_ATTENTIONS, [True, False])
        if feeding or attention != "bahdanau"
    ]
    + [
        {"rnn": {"attention": attention, "d_embedding": 20, "d_readout": 14}, "tie_embeddings": "none", "bias": bias}
        for attention, bias in itertools.product(RNN_ATTENTIONS, [True, False])
    ]
    + [{"num_encoder_layers": 1, "num_decoder_layers": 1, "tie_embeddings": "all"}]
)


def every_option(options: list[dict], all_models: bool = False):
    """Of the models that translate; where `all_models`, of those that fill in hidden words too."""
    assert SHAPES.keys() == ARCHITECTURES.keys()
    cases = [
        pytest.param(name, option, id=f"{name}-{'-'.join(f'{k}={v}' for k, v in option.items()) or 'plain'}")
        for name in SHAPES
        if ARCHITECTURES[name].translates or all_models
        for option in (RECURRENT if name == "rnn" else options)
    ]
    return pytest.mark.parametrize(("architecture", "options"), cases)


def make_model(architecture: str, options: dict) -> TranslationModel:
    """Away from the point where it starts: there biases are 0 and norms 1, where a mistake can hide."""
    config = ModelConfig(**{"architecture": architecture, **SHAPES[architecture], **options})
    torch.manual_seed(0)
    model = ARCHITECTURES[architecture](config, VOCAB, VOCAB)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@every_option(SINGLE + TOUCHING + EVERYTHING)
def test_gradient_reaches_no_later_token(architecture: str, options: dict) -> None:
    model = make_model(architecture, options)
    vectors = {}

    def keep(_module, _inputs, output):
        vectors["x"] = output.detach().requires_grad_()
        return vectors["x"]

    model.get_submodule("decoder.embedder").register_forward_hook(keep)
    logits = model(random_ids(1, 5), random_ids(1, 7))
    before = vectors["x"].size(1) - 7  # a decoder-only stream begins with the source
    for t in range(7):
        (gradient,) = torch.autograd.grad(logits[0, t].square().sum(), vectors["x"], retain_graph=True)
        reached = gradient[0].abs().sum(dim=-1) > 0
        assert not reached[before + t + 1 :].any()
        window = options.get("attention_window") or 100
        # Each of the three layers looks window - 1 positions back.
        assert reached[max(0, before + t - 3 * (window - 1)) : before + t + 1].all()
        assert not reached[: max(0, before + t - 3 * (window - 1))].any()


@every_option(SINGLE + TOUCHING + EVERYTHING, all_models=True)
def test_padding_batch_mates_and_order_change_nothing(architecture: str, options: dict) -> None:
    model = make_model(architecture, options)
    sources = [random_ids(n, seed=n) for n in (3, 9, 6)]
    targets = [random_ids(n, seed=n + 50) for n in (8, 2, 5)] if model.translates else sources
    alone = [model(s[None], t[None])[0] for s, t in zip(sources, targets, strict=True)]
    for order in ([0, 1, 2], [2, 0, 1]):
        src = torch.full((3, 20), PAD_ID)
        tgt = torch.full((3, 11), PAD_ID)
        for row, i in enumerate(order):
            src[row, : len(sources[i])], tgt[row, : len(targets[i])] = sources[i], targets[i]
        together = model(src, tgt)
        assert together.isfinite().all()
        for row, i in enumerate(order):
            torch.testing.assert_close(together[row, : len(targets[i])], alone[i], atol=1e-5, rtol=1e-5)


@every_option(SINGLE + TOUCHING + EVERYTHING)
def test_cached_steps_equal_the_full_pass(architecture: str, options: dict) -> None:
    model = make_model(architecture, options)
    src = random_ids(3, 9)
    src[1, 5:] = PAD_ID
    src[2, 1:] = PAD_ID
    tgt = random_ids(3, 8, seed=2)
    full = model(src, tgt)
    cache = model.start(src)
    for t in range(8):
        torch.testing.assert_close(model.decode_step(tgt[:, t], cache), full[:, t], atol=2e-5, rtol=1e-5)


@every_option([{}, *TOUCHING, *EVERYTHING])
def test_cache_follows_a_reordered_search(architecture: str, options: dict) -> None:
    """Two rows a sentence, then rows swapped and one sentence gone: still equal to the full pass on each prefix."""
    model = make_model(architecture, options)
    src = random_ids(3, 6)
    src[0, 4:] = PAD_ID
    cache = model.start(src)
    model.decode_step(torch.tensor([4, 5, 6]), cache)
    cache.reorder(torch.tensor([0, 0, 1, 1, 2, 2]))
    model.decode_step(torch.tensor([7, 8, 9, 10, 11, 12]), cache)
    cache.reorder(torch.tensor([5, 4, 1, 1]), sentences=torch.tensor([2, 0]))
    logits = model.decode_step(torch.tensor([13, 14, 15, 16]), cache)
    prefixes = torch.tensor([[6, 12, 13], [6, 11, 14], [4, 8, 15], [4, 8, 16]])
    full = model(src[[2, 2, 0, 0]], prefixes)[:, -1]
    torch.testing.assert_close(logits, full, atol=2e-5, rtol=1e-5)


@every_option(SINGLE + TOUCHING + EVERYTHING, all_models=True)
def test_training_moves_every_parameter_and_stays_finite(architecture: str, options: dict) -> None:
    """Padding that no token is near must not turn gradients into nan."""
    model = make_model(architecture, {**options, "dropout": 0.2}).train()
    src, tgt = random_ids(6, 20), random_ids(6, 12, seed=2)
    src[1:, 2:] = PAD_ID
    tgt[1:, 1:] = PAD_ID
    tgt = tgt if model.translates else src  # in place, so that every expert has something to do
    loss = batch_loss(model, src, tgt, tgt, 0.1)
    loss.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A key's bias adds the same to every score of a query, so the softmax does not see it.
        if not name.endswith("k_proj.bias"):
            assert parameter.grad.any(), name


@every_option(SINGLE + POSITIONED + EVERYTHING)
def test_what_is_saved_and_loaded_answers_bit_for_bit(architecture: str, options: dict, tmp_path) -> None:
    model, other = make_model(architecture, options), make_model(architecture, options)
    names = dict(model.named_parameters())
    save_file({name: parameter.detach() for name, parameter in names.items()}, tmp_path / "weights.safetensors")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
        for name, tensor in load_file(tmp_path / "weights.safetensors").items():
            other.get_parameter(name).copy_(tensor)
    src, tgt = random_ids(2, 5), random_ids(2, 4)
    assert torch.equal(model(src, tgt), other(src, tgt))


@every_option(SINGLE + POSITIONED + EVERYTHING, all_models=True)
def test_bf16_is_fp32_but_for_rounding(architecture: str, options: dict) -> None:
    """Whatever its dtype on the way, no option mixes up types, and gradients and cached steps stay near fp32's."""
    model = make_model(architecture, {**options, "dropout": 0.0})
    src, tgt = random_ids(2, 9), random_ids(2, 6, seed=2)
    src[1, 4:] = PAD_ID
    tgt = tgt if model.translates else src
    exact = model(src, tgt)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = [model(src, tgt)]
        if model.translates:
            cache = model.start(src)
            rounded.append(torch.stack([model.decode_step(tgt[:, t], cache) for t in range(6)], dim=1))
        loss = batch_loss(make_model(architecture, {**options, "dropout": 0.2}).train(), src, tgt, tgt, 0.1).loss
    scale = exact.abs().max().item()
    for other in rounded:
        assert (other.float() - exact).abs().mean().item() < 0.02 * scale
    loss.backward()
    assert loss.isfinite()
