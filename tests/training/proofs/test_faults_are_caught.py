"""Each proof catches a fault that is planted in the model, names the module, and is silent without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy import TRANSLATING, toy_config

from transformer_mt.config.presets import MODELS
from transformer_mt.data.preparation import prepare_data
from transformer_mt.decoding.load_model import build_model
from transformer_mt.errors import UserError
from transformer_mt.model import stack, transformer
from transformer_mt.model.cache import LayerCache
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.parts import attention
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.unpadded import BlockDiagonal
from transformer_mt.training.proofs.prove import PROOFS, prove
from transformer_mt.training.updates import Updater

CPU = torch.device("cpu")
SMALL = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_kv_heads": None, "num_encoder_layers": 2,
         "num_decoder_layers": 2, "dropout": 0.1, "max_len": 16}  # fmt: skip


def make_updater(corpus: Path, precision: str = "fp32", training: dict | None = None, **model: Any) -> tuple:
    """An updater, and its split."""
    values = {**SMALL, **model}
    data = {"source_as": "picture"} if values.get("patches") else {}
    joint = values.get("architecture") == "decoder_only" or values.get("tie_embeddings") == "all"
    tokenizer = {"kind": "word", "vocab_size": 100, "min_frequency": 1, "joint": joint}
    config = toy_config(corpus, model=values, tokenizer=tokenizer, training=training or {}, data=data)
    prepared = prepare_data(config)
    torch.manual_seed(0)
    model_ = build_model(config, prepared.src_tokenizer, prepared.tgt_tokenizer)
    return Updater(model_, config.training, config.seed, precision, CPU), prepared.train


def told(updater: Updater, split) -> str:
    """What the proofs say where they stop nothing."""
    return prove(updater, split, split.plan(64, 0, 0).known(), stops=False)


def assert_fails(updater: Updater, split, proof: str, where: str, when: str = "") -> None:
    said = told(updater, split)
    assert f"(the proof of {proof}): {when}" in said
    assert f"This begins in {where}." in said


# Without a fault


def preset_case(name: str) -> dict[str, Any]:
    """A preset at a small size."""
    values = MODELS[name]
    small = {key: value for key, value in SMALL.items() if key != "dropout"}
    if values["num_kv_heads"]:
        small["num_kv_heads"] = 1
    if values["architecture"] == "decoder_only":
        small["num_encoder_layers"] = 0
    if values["rnn"]:
        small["rnn"] = {**values["rnn"], "d_embedding": None, "d_readout": None}
    if values["patches"]:
        small |= {"patches": {"height": 8, "width": 6}, "max_len": 40}
    return {**values, **small}


# Under bf16 outputs are compared in fp32 too, so that fp32 alone is for one model of each kind. At a small size
# transformer-big is transformer-base.
IN_BOTH = ("transformer-base", "mixtral", "rnn-small", "vit-small")
BY_DEFAULT = [*((name, "bf16") for name in TRANSLATING if name != "transformer-big"), *((n, "fp32") for n in IN_BOTH)]


@pytest.mark.parametrize(
    ("preset", "precision"),
    [
        pytest.param(name, precision, marks=[] if (name, precision) in BY_DEFAULT else pytest.mark.slow)
        for name in TRANSLATING
        for precision in ("fp32", "bf16")
    ],
)
def test_all_hold_of_every_preset(corpus: Path, preset: str, precision: str) -> None:
    updater, split = make_updater(corpus, precision, **preset_case(preset))
    before = {name: tensor.clone() for name, tensor in updater.model.state_dict().items()}
    torch.manual_seed(5)
    said = told(updater, split)
    assert said.startswith("proofs: causality, padding, cache, batch order, gradients and loss hold, on 4 pairs (")
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), drawn)
    assert all(torch.equal(before[name], tensor) for name, tensor in updater.model.state_dict().items())
    assert all(parameter.grad is None for parameter in updater.model.parameters())
    assert updater.model.config.dropout == MODELS[preset]["dropout"]


def test_frozen_parts_need_no_gradient(corpus: Path) -> None:
    updater, split = make_updater(corpus, training={"freeze": ["encoder"]})
    assert told(updater, split).startswith("proofs: ")


def test_word_dropout_and_layer_drop_are_off_in_the_copy_alone(corpus: Path) -> None:
    updater, split = make_updater(corpus, layer_drop=0.5, src_word_dropout=0.5, tgt_word_dropout=0.5)
    assert told(updater, split).startswith("proofs: ")
    assert updater.model.config.tgt_word_dropout == 0.5
    assert updater.model.encoder.layer_drop == 0.5


@pytest.mark.parametrize(("architecture", "num_encoder_layers"), [("encoder_decoder", 2), ("decoder_only", 0)])
def test_experts_that_were_given_nothing_that_counts(corpus: Path, architecture: str, num_encoder_layers: int) -> None:
    """Of many experts some get padding alone; and in the last layer of a stream its source, on which no logit depends.
    Half of all trainings with four experts or eight were refused for it.
    """
    shape: dict[str, Any] = {"architecture": architecture, "num_encoder_layers": num_encoder_layers}
    updater, split = make_updater(corpus, **shape, num_experts=64, experts_per_token=2)
    assert told(updater, split).startswith("proofs: ")


# A mask shifted by one


def shifted_causal_mask(length: int, device=None) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).tril(1)[None, None]


def test_a_causal_mask_shifted_by_one(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "causal_mask", shifted_causal_mask)
    updater, split = make_updater(corpus, positions="relative_bias")  # under which no kernel makes its own mask
    assert_fails(updater, split, "causality", "decoder.layers.0.self_attn", "in training a position")


def test_a_causal_mask_shifted_by_one_in_a_stream(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = stack.Stack.context

    def shifted(self, mask, query_at, *rest, **more):
        if isinstance(mask, Tensor) and mask.size(-2) == mask.size(-1) > 1:
            mask = mask | mask.roll(1, dims=-2)  # each position sees what the next one sees
        return context(self, mask, query_at, *rest, **more)

    monkeypatch.setattr(stack.Stack, "context", shifted)
    updater, split = make_updater(corpus, architecture="decoder_only", num_encoder_layers=0)
    assert_fails(updater, split, "causality", "decoder.layers.0.self_attn")


def test_a_way_of_training_alone_that_sees_all(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    between = BlockDiagonal.between
    monkeypatch.setattr(BlockDiagonal, "between", lambda queries, keys, causal=False: between(queries, keys))
    updater, split = make_updater(corpus, d_model=32)  # whose heads are wide enough for the compiled passes
    if not updater.model.goes_unpadded():
        pytest.skip("without numba, training has no way of its own")
    assert_fails(updater, split, "causality", "decoder.layers.0.self_attn", "in training a position")


# The padding's mask dropped


@pytest.mark.parametrize("positions", ["sinusoidal", "relative_bias"])
def test_a_dropped_mask_of_padding(corpus: Path, monkeypatch: pytest.MonkeyPatch, positions: str) -> None:
    def all_real(ids: Tensor) -> Tensor:
        return torch.ones_like(ids, dtype=torch.bool)[:, None, None]

    monkeypatch.setattr(transformer, "padding_mask", all_real)
    updater, split = make_updater(corpus, positions=positions)
    assert_fails(updater, split, "padding", "encoder.layers.0.self_attn")


# A cache that forgets a key


@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder_only"])
def test_a_cache_that_forgets_a_key(corpus: Path, monkeypatch: pytest.MonkeyPatch, architecture: str) -> None:
    write = LayerCache.write

    def forgetful(self, start: int, k: Tensor, v: Tensor):
        keys, values = write(self, start, k, v)
        if start > 0:
            self.k[:, :, start - 1] = 0
        return keys, values

    monkeypatch.setattr(LayerCache, "write", forgetful)
    num_encoder_layers = 0 if architecture == "decoder_only" else 2
    updater, split = make_updater(corpus, architecture=architecture, num_encoder_layers=num_encoder_layers)
    assert_fails(updater, split, "cache", "decoder.layers.0.self_attn", "a search")


def test_a_recurrent_step_with_another_state(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformer_mt.model.recurrent.decoder import RecurrentDecoder

    step = RecurrentDecoder.step

    def forgetful(self, tokens, cache):
        cache.states = tuple(state * 0.5 for state in cache.states)
        return step(self, tokens, cache)

    monkeypatch.setattr(RecurrentDecoder, "step", forgetful)
    updater, split = make_updater(corpus, **preset_case("rnn-small"))
    assert_fails(updater, split, "cache", "decoder")


# Sentences that see each other


class BatchNorm(nn.Module):
    """Centred over all tokens of the batch in training."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=tuple(range(x.dim() - 1)), keepdim=True) if self.training else x


class OfTheFirstSentence(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x[:1, :1] if self.training else x


def test_a_norm_over_the_batch(corpus: Path) -> None:
    updater, split = make_updater(corpus, architecture="decoder_only", num_encoder_layers=0)
    updater.model.decoder.norm = BatchNorm()
    said = told(updater, split)  # such a mean sees later positions and padding too, so an earlier proof falls
    assert "in training" in said
    assert "This begins in decoder.norm." in said


def test_a_sentence_that_sees_another(corpus: Path) -> None:
    updater, split = make_updater(corpus, architecture="decoder_only", num_encoder_layers=0)
    updater.model.decoder.norm = OfTheFirstSentence()
    assert_fails(updater, split, "batch order", "decoder.norm")


# Gradients


class Detached(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.linear(input, self.weight.detach(), self.bias)


class Cut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> Tensor:
        return -gradients[0]


class FlippedWeight(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.linear(input, Turned.apply(self.weight), self.bias)


def replaced(model: TranslationModel, place: str, make: Callable[..., nn.Linear]) -> None:
    old = model.get_submodule(place)
    new = make(old.in_features, old.out_features, bias=old.bias is not None)
    new.load_state_dict(old.state_dict())
    model.set_submodule(place, new)


@pytest.mark.parametrize("place", ["encoder.layers.1.self_attn.v_proj", "decoder.layers.0.cross_attn.q_proj"])
def test_a_detached_parameter(corpus: Path, place: str) -> None:
    updater, split = make_updater(corpus)
    replaced(updater.model, place, Detached)
    assert_fails(updater, split, "gradients", place, f"{place}.weight gets no gradient.")


@pytest.mark.parametrize("place", ["encoder.layers.0", "decoder.layers.1"])
def test_a_detached_parameter_of_an_expert(corpus: Path, place: str) -> None:
    updater, split = make_updater(corpus, num_experts=2)
    replaced(updater.model, of_expert := f"{place}.feed_forward.experts.1.out_proj", Detached)
    assert_fails(updater, split, "gradients", of_expert, f"{of_expert}.weight gets no gradient.")


@pytest.mark.parametrize(("num_experts", "last"), [(1, ""), (2, ".experts")])
def test_a_detached_stack(corpus: Path, num_experts: int, last: str) -> None:
    updater, split = make_updater(corpus, num_experts=num_experts)
    updater.model.encoder.norm = Cut()
    said = told(updater, split)
    assert "gets no gradient, nor do" in said
    assert f"This begins in encoder.layers.1.feed_forward{last}." in said


@pytest.mark.parametrize("place", ["decoder.layers.1.cross_attn.v_proj", "encoder.layers.0.self_attn.out_proj"])
def test_a_gradient_of_the_wrong_sign(corpus: Path, place: str) -> None:
    updater, split = make_updater(corpus)
    replaced(updater.model, place, FlippedWeight)
    assert_fails(updater, split, "loss", place.rpartition(".")[0], "a small step")


def test_a_gradient_that_is_turned_for_all_that_comes_before(corpus: Path) -> None:
    updater, split = make_updater(corpus)
    attend = MultiHeadAttention.attend
    wrong = updater.model.decoder.layers[1].cross_attn

    class Wrong(MultiHeadAttention):
        def attend(self, q, *rest, **more):
            return Turned.apply(attend(self, q, *rest, **more))

    wrong.__class__ = Wrong
    assert_fails(updater, split, "loss", "decoder.layers.1.cross_attn", "a small step")


# What a failure does


def test_a_failure_stops_and_says_what_to_do(corpus: Path) -> None:
    updater, split = make_updater(corpus)
    updater.model.decoder.norm = OfTheFirstSentence()
    with pytest.raises(UserError) as error:
        prove(updater, split, split.plan(64, 0, 0).known(), stops=True)
    assert str(error.value).endswith("Mend that, or train nevertheless with training.proofs: warn.")


def test_every_proof_has_a_planted_fault() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f'split, "{name}"' in text for name in PROOFS)


def test_without_room_for_a_copy_nothing_is_proved(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(attention.MultiHeadAttention, "attend", no_room)
    updater, split = make_updater(corpus)
    assert told(updater, split).startswith("proofs: none, for memory has no room")
