"""Measures of importance beside finite differences, `tmt score` and ranks by hand; and the choices of a model."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from translators import ONE_STREAM, SMALL, WITHOUT_HEADS, make_translator

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID
from transformer_mt.decoding.search.options import search_options
from transformer_mt.explaining.gradients import gradient_times_input
from transformer_mt.explaining.importance import GRADIENT, LEAVE_ONE_OUT, ROLLOUT, importance, rank_correlation
from transformer_mt.explaining.runners_up import choices
from transformer_mt.explaining.source_words import SourceWords

TEXT = "three one two nine."
MODELS: dict[str, dict[str, Any]] = {
    "pre": SMALL,
    "post, learned": {**SMALL, "norm_position": "post", "positions": "learned"},  # rotations are in fp32
    "one stream": {**SMALL, **ONE_STREAM},
    "rnn": {**WITHOUT_HEADS, "architecture": "rnn"},
}


def log_prob(model: nn.Module, src: Tensor, tgt: list[int]) -> float:
    logits = model(src, torch.tensor([[BOS_ID, *tgt]]))[0].log_softmax(dim=-1).detach()
    return sum(float(logits[i, token]) for i, token in enumerate([*tgt, EOS_ID]))


@pytest.mark.parametrize("name", MODELS)
def test_gradient_times_input_is_what_a_larger_embedding_does(name: str) -> None:
    """Finite differences in fp64: the output of the source's embedding is scaled at one position at a time."""
    translator = make_translator(MODELS[name])
    model = translator.model.double()
    side: Any = getattr(model, "encoder", model.decoder)
    embedding = side.embedder.embedding
    src, tgt = torch.tensor([[5, 6, 7, 5, EOS_ID]]), [8, 9, 6]

    def scaled(position: int, by: float) -> float:
        calls: list[int] = []

        def scale(module: nn.Module, inputs: tuple, output: Tensor) -> Tensor | None:
            calls.append(1)
            if len(calls) > 1:  # the target's, where both sides share one module
                return None
            factors = torch.ones(output.size(1), dtype=output.dtype)
            factors[position] = by
            return output * factors[:, None]

        handle = embedding.register_forward_hook(scale)
        with torch.no_grad():
            found = log_prob(model, src, tgt)
        handle.remove()
        return found

    found = gradient_times_input(translator.model, src, torch.tensor([[BOS_ID, *tgt]]), torch.tensor([[*tgt, EOS_ID]]))
    step = 1e-5
    differences = [(scaled(i, 1 + step) - scaled(i, 1 - step)) / (2 * step) for i in range(src.size(1))]
    np.testing.assert_allclose(found.numpy(), differences, rtol=1e-6, atol=1e-8)
    assert np.abs(differences).min() > 1e-6  # each token does something


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_gradients_on_a_gpu_are_those_of_the_cpu(name: str) -> None:
    """Through a recurrent network too, which cuDNN goes back through in training mode alone."""
    model = make_translator(MODELS[name]).model
    ids = [torch.tensor([row]) for row in ([5, 6, 7, 5, EOS_ID], [BOS_ID, 8, 9, 6], [8, 9, 6, EOS_ID])]
    expected = gradient_times_input(model, *ids)
    found = gradient_times_input(model.cuda(), *(row.cuda() for row in ids))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_leave_one_out_is_the_score_of_the_shortened_source(name: str) -> None:
    translator = make_translator(MODELS[name])
    src, tgt = translator.src_tokenizer.encode(TEXT), translator.tgt_tokenizer.encode("uno dos.")
    found = importance(translator, SourceWords.of(TEXT, translator.src_tokenizer), src, tgt)
    assert found.words == ["three", "one", "two", "nine", "."]
    shorter = ["one two nine.", "three two nine.", "three one nine.", "three one two.", "three one two nine"]
    whole, *others = translator.score([TEXT, *shorter], ["uno dos."] * 6)
    assert found.log_prob == pytest.approx(whole.log_prob, abs=1e-5)
    drops = [whole.log_prob - other.log_prob for other in others]
    assert found.measures[LEAVE_ONE_OUT].scores == pytest.approx(drops, abs=1e-5)
    assert found.measures[LEAVE_ONE_OUT].correlation == pytest.approx(1.0)
    for measure in found.measures.values():
        first, second = sorted(range(5), key=lambda word, of=measure: -of.scores[word])[:2]
        assert measure.drops[0] == pytest.approx(drops[first], abs=1e-5)
        words = SourceWords.of(TEXT, translator.src_tokenizer)
        (both,) = translator.score([words.without([first, second])], ["uno dos."])
        assert measure.drops[1] == pytest.approx(whole.log_prob - both.log_prob, abs=1e-5)
        assert len(measure.drops) == 3
    assert (ROLLOUT in found.missing) == (name == "rnn")
    assert set(found.measures) | set(found.missing) == {LEAVE_ONE_OUT, GRADIENT, ROLLOUT}


def test_a_source_of_one_word() -> None:
    translator = make_translator(SMALL)
    src, tgt = translator.src_tokenizer.encode("two"), translator.tgt_tokenizer.encode("dos")
    found = importance(translator, SourceWords.of("two", translator.src_tokenizer), src, tgt)
    nothing = log_prob(translator.model, torch.tensor([[EOS_ID]]), tgt)
    assert found.measures[LEAVE_ONE_OUT].scores == pytest.approx([found.log_prob - nothing], abs=1e-4)
    assert found.measures[LEAVE_ONE_OUT].correlation is None


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),  # 1 - 6 * 2 / (4 * 15)
        ([1, 2, 3, 4], [9, 7, 5, 1], -1.0),
        ([1, 2, 2, 3], [1, 2, 3, 4], 4.5 / (4.5 * 5) ** 0.5),  # ranks 0, 1.5, 1.5, 3 beside 0, 1, 2, 3
        ([1, 1, 1], [1, 2, 3], None),
        ([1, 2], [1, 2], None),
    ],
)
def test_rank_correlation(first: list[float], second: list[float], wanted: float | None) -> None:
    assert rank_correlation(first, second) == (None if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize("name", MODELS)
def test_the_first_choice_is_that_of_greedy_search(name: str) -> None:
    translator = make_translator(MODELS[name])
    src = translator.src_tokenizer.encode(TEXT)
    ((found,),) = translator.search([src], search_options(translator.config.decoding, beam_size=1, allow_unk=True))
    along = choices(translator, src, found.tokens, translator.tgt_tokenizer.vocab_size)
    taken = [*found.tokens, EOS_ID]
    assert [choice.taken.id for choice in along] == taken
    for choice, token in zip(along, found.tokens, strict=False):
        assert next(one.id for one in choice.best if one.id not in (PAD_ID, BOS_ID)) == token  # never searched for
        assert choice.best[choice.rank - 1].id == token
    for choice in along:
        assert sum(one.probability for one in choice.best) == pytest.approx(1.0)
    (scored,) = translator.scorer.score_ids({0: (src, found.tokens)}, 1)
    assert [np.log(choice.taken.probability) for choice in along] == pytest.approx(scored[1], abs=1e-5)


BPE = {"tokenizer": {"kind": "bpe", "vocab_size": 300}}


@pytest.mark.parametrize(
    ("sections", "text", "words"),
    [
        ({}, "One  unknowable  word, two.", ["One", "unknowable", "word", ",", "two", "."]),
        (BPE, "One  unknowable  word, two.", ["One", "unknowable", "word", ",", "two", "."]),
        (BPE, "我有猫。 two", ["我", "有", "猫", "。", "two"]),
        ({"tokenizer": {"lowercase": True}}, "One two", ["one", "two"]),
    ],
)
def test_the_words_of_a_source(sections: dict[str, Any], text: str, words: list[str]) -> None:
    tokenizer = make_translator(SMALL, **sections).src_tokenizer
    found = SourceWords.of(text, tokenizer)
    assert found.words == words
    ids = tokenizer.encode(text)
    assert found.shares.shape == (len(ids), len(words))
    np.testing.assert_allclose(found.shares.sum(axis=1), 1.0)
    of_tokens = np.arange(len(ids) + 1, dtype=float)
    assert sum(found.sums(of_tokens)) == pytest.approx(of_tokens[:-1].sum())  # all but that of EOS
    assert (found.shares.sum(axis=0) > 0).all()
    assert found.without(range(len(words))) == ""
    assert found.without([]) == " ".join(text.split()).lower() if "One" not in words else " ".join(text.split())


def test_what_is_left_of_a_source() -> None:
    found = SourceWords.of("One, two three.", make_translator(SMALL).src_tokenizer)
    assert found.without([0]) == ", two three."
    assert found.without([1]) == "One two three."
    assert found.without([2, 4]) == "One, three"
    assert found.without([3]) == "One, two."
    assert found.without([0, 2, 3]) == ",."
    found = SourceWords.of("(one two)", make_translator(SMALL).src_tokenizer)
    assert [found.without([word]) for word in range(4)] == ["one two)", "(two)", "(one)", "(one two"]
