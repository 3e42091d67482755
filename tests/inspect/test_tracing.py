"""A trace holds exactly the numbers that the model computes, for every kind of model."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from toy import ENGLISH, SPANISH
from translators import MODELS_BY_NAME, SMALL, make_translator, model_names

from transformer_mt.config.presets import MODELS
from transformer_mt.decoding import translator as translator_module
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.inspect.part_sizes import parameters_by_part, residual_census
from transformer_mt.inspect.sentence_pair import sentence_pair
from transformer_mt.inspect.stack_trace import RecurrentTrace, SublayerTrace
from transformer_mt.inspect.trace import Trace, trace
from transformer_mt.inspect.trace_json import trace_json
from transformer_mt.model.parts.attention import MultiHeadAttention
from transformer_mt.model.parts.experts import MixtureOfExperts
from transformer_mt.model.recurrent.rnn import Rnn

SENTENCE = "one two three four."


def is_recurrent(model: dict) -> bool:
    return model.get("architecture") == "rnn"


@cache
def traced_of(name: str) -> tuple[Translator, Trace]:
    """Made once for all tests, none of which changes anything of it."""
    translator = make_translator(MODELS_BY_NAME[name])
    return translator, trace(translator, SENTENCE)


@pytest.fixture(params=model_names())
def traced(request: pytest.FixtureRequest) -> tuple[Translator, Trace]:
    return traced_of(request.param)


@pytest.fixture(params=model_names(lambda model: not is_recurrent(model)))
def stacked(request: pytest.FixtureRequest) -> tuple[Translator, Trace]:
    """The same of the models that have layers."""
    return traced_of(request.param)


@pytest.fixture(params=model_names(is_recurrent))
def recurrent(request: pytest.FixtureRequest) -> tuple[Translator, Trace]:
    """The same of those that have states."""
    return traced_of(request.param)


def pair(translator: Translator, found: Trace) -> tuple[Tensor, Tensor]:
    """src and tgt_in, by the tokenizers and the translation's own tokens."""
    src = [*translator.src_tokenizer.encode(SENTENCE), 3]
    taken = [step.taken.id for step in found.steps]
    return torch.tensor([src]), torch.tensor([[2, *taken[:-1]]])


@torch.no_grad()
def test_the_traced_logits_are_the_untraced(traced) -> None:
    translator, found = traced
    src, tgt_in = pair(translator, found)
    assert torch.equal(translator.model(src, tgt_in)[0], found.logits)
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in translator.model.modules())
    ids = [stack.ids for stack in found.stacks]
    sides = [src[0].tolist(), tgt_in[0].tolist()]
    assert ids == (sides if len(ids) == 2 else [sides[0] + sides[1]])


@torch.no_grad()
def test_every_vector_follows_from_the_one_before(stacked) -> None:
    translator, found = stacked
    model = translator.model
    for stack in found.stacks:
        x = stack.scaled
        assert torch.equal(stack.embedding * math.sqrt(16), x)
        if stack.position is not None:
            x = x + stack.position
        assert torch.equal(x, stack.sum)
        for index, layer in enumerate(stack.layers):
            for sublayer in layer:
                norm = model.get_submodule(f"{stack.name}.layers.{index}.{sublayer.name}_residual.norm")
                assert torch.equal(sublayer.input, x)
                assert torch.equal(sublayer.input + sublayer.added, sublayer.sum)
                assert sublayer.norm_position == model.config.norm_position
                pre = sublayer.norm_position == "pre"
                assert torch.equal(sublayer.normed, norm(sublayer.input if pre else sublayer.sum))
                x = sublayer.sum if pre else sublayer.normed
                assert torch.equal(sublayer.output, x)
        assert stack.final_norm == (model.config.norm_position == "pre")
        assert torch.equal(stack.output, model.get_submodule(f"{stack.name}.norm")(x))
    assert torch.equal(model.output(found.stacks[-1].output[-len(found.logits) :]), found.logits)


@torch.no_grad()
def test_the_vectors_of_a_recurrent_network_follow_from_each_other(recurrent) -> None:
    """The states of the cells are those of the whole pass, since the readout of them is what it chose from."""
    translator, found = recurrent
    model = translator.model
    assert isinstance(model, Rnn)
    encoder, decoder = found.stacks
    assert isinstance(encoder, RecurrentTrace)
    assert isinstance(decoder, RecurrentTrace)
    for stack in (encoder, decoder):
        assert torch.equal(stack.embedding * math.sqrt(stack.embedding.size(1)), stack.scaled)
        assert stack.layers == []
    assert torch.equal(torch.cat(list(encoder.states.values()), dim=1), encoder.output)
    assert encoder.weights is None
    assert decoder.weights is not None
    context, states = decoder.states["context"], [*decoder.states.values()][:-1]
    torch.testing.assert_close(decoder.weights[0] @ encoder.output, context)
    assert len(states) == 2 * (2 if model.config.recurrent.cell == "lstm" else 1)
    top = decoder.states["state of layer 1"]
    if model.config.recurrent.attention == "bahdanau":
        output = model.decoder.readout(torch.cat((top, decoder.scaled, context), dim=1)).unflatten(1, (-1, 2)).amax(-1)
    else:
        output = model.decoder.readout(torch.cat((context, top), dim=1)).tanh()
    torch.testing.assert_close(output, decoder.output, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model.output(decoder.output), found.logits, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_the_weights_make_what_attention_adds(traced) -> None:
    """softmax(QK) V, put together from the traced weights: not the fused kernel that the model runs."""
    translator, found = traced
    for stack in found.stacks:
        for index, layer in enumerate(stack.layers):
            for sublayer in layer:
                attention = translator.model.get_submodule(f"{stack.name}.layers.{index}.{sublayer.name}")
                if not isinstance(attention, MultiHeadAttention):
                    assert sublayer.weights is None
                    continue
                assert sublayer.weights is not None
                torch.testing.assert_close(sublayer.weights.sum(-1), torch.ones(sublayer.weights.shape[:2]))
                seen = found.stacks[0].output if sublayer.name == "cross_attn" else given(sublayer)
                _, values = attention.project_key_value(seen[None])
                values = values.repeat_interleave(attention.num_heads // attention.num_kv_heads, dim=1)
                added = attention.join_heads(sublayer.weights @ values)[0]
                torch.testing.assert_close(added, sublayer.added, atol=1e-5, rtol=1e-4)


def given(sublayer: SublayerTrace) -> Tensor:
    """What the sublayer itself reads."""
    return sublayer.normed if sublayer.norm_position == "pre" else sublayer.input


@torch.no_grad()
def test_the_experts_named_make_what_the_mixture_adds(traced) -> None:
    translator, found = traced
    config = translator.model.config
    mixtures = 0
    for stack in found.stacks:
        for index, layer in enumerate(stack.layers):
            mixture = translator.model.get_submodule(f"{stack.name}.layers.{index}.feed_forward")
            experts = layer[-1].experts
            assert (experts is not None) == (config.num_experts > 1)
            if isinstance(mixture, MixtureOfExperts) and experts is not None:
                mixtures += 1
                assert experts.chosen.shape == (len(stack.ids), config.experts_per_token)
                for token, vector in enumerate(given(layer[-1])):
                    parts = zip(experts.chosen[token].tolist(), experts.weights[token], strict=True)
                    total = torch.stack([weight * mixture.experts[expert](vector) for expert, weight in parts]).sum(0)
                    torch.testing.assert_close(total, layer[-1].added[token], atol=1e-5, rtol=1e-4)
    assert (mixtures > 0) == (config.num_experts > 1)


def test_what_is_added_to_the_embedding(stacked) -> None:
    translator, found = stacked
    kind = translator.model.config.positions
    assert found.positions == kind
    for stack in found.stacks:
        if kind == "sinusoidal":
            for position in (0, 1, 3):
                angle = position / 10000 ** (6 / 16)
                expected = torch.tensor([math.sin(angle), math.cos(angle)])
                torch.testing.assert_close(stack.position[position, 6:8], expected)
        elif kind == "learned":
            table = translator.model.get_parameter(f"{stack.name}.embedder.positions.embedding.weight")
            assert torch.equal(stack.position, table[: len(stack.ids)])
        else:
            assert stack.position is None


def test_the_steps_are_those_of_the_search_that_translates(traced) -> None:
    translator, found = traced
    assert found.beam_size == translator.config.decoding.beam_size == 2
    (translated,) = translator.translate_lines([SENTENCE])
    assert found.translation == translated.text
    assert [step.taken.token for step in found.steps] == [*translated.hypotheses[0].tokens, "</s>"]
    assert [step.fed for step in found.steps] == ["<s>", *translated.hypotheses[0].tokens]
    log_prob = sum(math.log(step.taken.probability) for step in found.steps)
    assert log_prob == pytest.approx(translated.hypotheses[0].log_prob, abs=1e-3)
    for step, logits in zip(found.steps, found.logits, strict=True):
        best = logits.exp() / logits.exp().sum()
        torch.testing.assert_close(torch.tensor([c.probability for c in step.best]), best.sort(descending=True)[0][:5])


def test_where_a_step_looks(traced) -> None:
    """The largest of the mean over heads; and nowhere once the window has left the source behind."""
    translator, found = traced
    if isinstance(decoder := found.stacks[-1], RecurrentTrace):
        weights = decoder.weights
    else:
        last = decoder.layers[-1]
        weights = last[1].weights if len(last) == 3 else last[0].weights
    assert weights is not None
    src_len = len(found.src_tokens)
    for number, step in enumerate(found.steps):
        row = weights.mean(0)[-len(found.steps) + number, :src_len].tolist()
        if step.source_position is None:
            assert max(row) == 0
            assert translator.model.config.attention_window == 3
        else:
            assert row[step.source_position] == max(row) == pytest.approx(step.source_weight)


def test_json_has_every_number(traced) -> None:
    _, found = traced
    read = json.loads(trace_json(found))
    assert torch.equal(torch.tensor(read["logits"]), found.logits)
    assert [step["taken"]["id"] for step in read["steps"]] == [step.taken.id for step in found.steps]
    assert read["flops"] == found.flops
    for stack, stack_read in zip(found.stacks, read["stacks"], strict=True):
        assert torch.equal(torch.tensor(stack_read["output"]), stack.output)
        assert (stack_read["position"] is None) == (stack.position is None)
        for layer, layer_read in zip(stack.layers, stack_read["layers"], strict=True):
            for sublayer, sublayer_read in zip(layer, layer_read, strict=True):
                for name, value in vars(sublayer).items():
                    if isinstance(value, Tensor):
                        assert torch.equal(torch.tensor(sublayer_read[name]), value), name


@pytest.mark.parametrize("name", ["transformer-base", "mixtral", "rnn-search"])
def test_each_number_of_the_json_is_the_shortest_of_its_32_bits(name: str) -> None:
    """Of layers, of experts, and of states."""
    texts: list[str] = []
    json.loads(trace_json(traced_of(name)[1]), parse_float=texts.append)
    assert len(texts) > 1000
    assert [float(text) for text in texts] == [float(str(np.float32(text))) for text in texts]


def test_an_infinite_number_is_refused_by_json() -> None:
    _, found = traced_of("transformer-base")
    logits = found.logits.clone()
    logits[0, 0] = -torch.inf
    with pytest.raises(UserError, match="infinite, which JSON cannot write"):
        trace_json(replace(found, logits=logits))


def test_parameters_sum_to_the_model(traced) -> None:
    translator, found = traced
    assert sum(found.parameters.values()) == sum(p.numel() for p in translator.model.parameters())
    assert found.flops.keys() <= found.parameters.keys()


def test_parameters_by_hand() -> None:
    """d_model 16, d_ff 24, biases; 16 words in one table, which all three share."""
    model = {**SMALL, "num_encoder_layers": 1, "num_decoder_layers": 1, "tie_embeddings": "all"}
    translator = make_translator(model)
    attention, feed_forward, norm = 4 * (16 * 16 + 16), 2 * 16 * 24 + 24 + 16, 32
    counts, shared = parameters_by_part(translator.model)
    assert counts == {
        "encoder.embedding": translator.src_tokenizer.vocab_size * 16, "encoder.self_attn": attention,
        "encoder.feed_forward": feed_forward, "encoder.norm": 3 * norm,
        "decoder.embedding": 0, "decoder.self_attn": attention, "decoder.cross_attn": attention,
        "decoder.feed_forward": feed_forward, "decoder.norm": 4 * norm, "output": 0,
    }  # fmt: skip
    assert shared == {"decoder.embedding": "encoder.embedding", "output": "encoder.embedding"}


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("transformer-base", {"encoder": [2] * 6, "decoder": [3] * 6}),  # 12 + 18 = 30
        ("gpt2-small", {"decoder": [2] * 12}),
    ],
)
def test_residual_census(preset: str, expected: dict[str, list[int]]) -> None:
    depth = {"num_decoder_layers": MODELS[preset]["num_decoder_layers"]}
    translator = make_translator({**MODELS[preset], **SMALL, **depth})
    assert residual_census(translator.model) == expected


@pytest.mark.parametrize("sentence", ["", "  ", "\u2028"])
def test_a_blank_sentence_is_refused(sentence: str) -> None:
    with pytest.raises(UserError, match="blank"):
        trace(make_translator(SMALL), sentence)


def test_a_sentence_that_is_too_long_is_refused() -> None:
    translator = make_translator(SMALL)
    assert len(trace(translator, " ".join(["one"] * 23)).src_tokens) == 24
    with pytest.raises(UserError, match="has 24 tokens, and the model reads 23"):
        trace(translator, " ".join(["one"] * 24))


def test_a_sentence_of_which_every_translation_holds_a_phrase_to_avoid_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tmt translate` leaves such a line blank; there is nothing to trace, to draw or to explain."""
    monkeypatch.setattr(translator_module, "SEARCHES_TO_AVOID", 1)  # as where each search finds another phrase
    (tmp_path / "avoid.txt").write_text("\n".join([*ENGLISH, *SPANISH, "."]))
    translator = make_translator(SMALL, decoding={"avoid": str(tmp_path / "avoid.txt"), "min_length": 1})
    assert translator.translate([SENTENCE]) == [""]
    for look in (lambda: trace(translator, SENTENCE), lambda: sentence_pair(translator, SENTENCE, None, 128)):
        with pytest.raises(UserError, match=r"no translation of the sentence without a phrase of .*avoid.txt"):
            look()


def test_the_search_is_that_of_tmt_translate_where_it_writes_several_translations() -> None:
    """Its beam holds them all, and a wider beam may find another translation."""
    found = {}
    for n_best in (1, 6):
        translator = make_translator(SMALL, decoding={"beam_size": 1, "lines": {"n_best": n_best}})
        traced = trace(translator, SENTENCE)
        assert traced.beam_size == n_best
        best = translator.translate_lines([SENTENCE], search_options(translator.config.decoding, n_best=n_best))[0]
        _, target = sentence_pair(translator, SENTENCE, None, 128)
        assert traced.translation == best.text == translator.tgt_tokenizer.decode(target)
        found[n_best] = best.text
    assert found[1] != found[6]
