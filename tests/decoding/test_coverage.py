"""The coverage penalty against its formula in words, and against every translation that there is."""

import itertools
import math
from typing import Any

import pytest
from toy import toy_pairs
from translators import MODELS_BY_NAME, ONE_STREAM, SMALL, make_translator, model_names

from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.decoding.coverage import coverages
from transformer_mt.decoding.ensemble import Ensemble
from transformer_mt.decoding.fast_layers.packed_weights import packed
from transformer_mt.decoding.scoring import token_log_probs
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.inspect.attention import ATTENTIONS, pair_attention

TEXTS = [src for src, _ in toy_pairs(6, seed=5)]
TWO_STACKS = {**SMALL, "num_encoder_layers": 1}
KINDS = {"two stacks": TWO_STACKS, "one stream": {**SMALL, **ONE_STREAM}}


def id_pairs(translator: Translator) -> list[tuple[list[int], list[int]]]:
    """Sources and some translations of other lengths, as ids."""
    src = translator.src_tokenizer.encode_batch(TEXTS)
    tgt = translator.tgt_tokenizer.encode_batch([text for _, text in toy_pairs(6, seed=9)])
    return list(zip(src, [[], *tgt[1:]], strict=True))


def hides_words(model: dict[str, Any]) -> bool:
    """Whether a window hides source words from the target. The logarithm of such a sum is bounded below."""
    return model.get("attention_window") is not None and model.get("architecture") == "decoder_only"


def by_words(translator: Translator, src: list[int], tgt: list[int]) -> float:
    """The formula of a pair by itself, with loops over the weights that `tmt attention` draws."""
    kind = ATTENTIONS[translator.model.config.architecture][-1].name
    attentions = pair_attention(translator.model, src, tgt, translator.src_tokenizer, translator.tgt_tokenizer)
    (weights,) = (one.weights[-1] for one in attentions if one.kind.name == kind)
    rows = range(weights.size(1) - len(tgt) - 1, weights.size(1))
    total = 0.0
    for column in range(len(src) + 1):
        looked = sum(float(weights[:, row, column].mean()) for row in rows)
        total += math.log(min(looked, 1.0))
    return total


@pytest.mark.parametrize("name", model_names(lambda model: not hides_words(model)))
def test_it_is_the_formula_whatever_else_is_in_the_batch(name: str) -> None:
    translator = make_translator(MODELS_BY_NAME[name])
    pairs = id_pairs(translator)
    assert coverages(translator.model, pairs) == pytest.approx(
        [by_words(translator, *pair) for pair in pairs], abs=1e-4
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_weights_attend_alike(kind: str, precision: str) -> None:
    translator = make_translator(KINDS[kind])
    pairs = id_pairs(translator)
    found = coverages(packed(translator.model, precision), pairs)
    assert found == pytest.approx(coverages(translator.model, pairs), abs=1e-4 if precision == "fp32" else 0.3)


def test_an_ensemble_attends_as_its_models_do_on_average() -> None:
    translator = make_translator(TWO_STACKS)
    pairs = id_pairs(translator)
    alone = coverages(translator.model, pairs)
    assert coverages(Ensemble([translator.model, translator.model]), pairs) == pytest.approx(alone, abs=1e-5)


def test_what_the_window_hides_is_finite() -> None:
    translator = make_translator(MODELS_BY_NAME["short window, one stream"])
    assert all(map(math.isfinite, coverages(translator.model, id_pairs(translator))))


def every_hypothesis(translator: Translator, src: list[int], limit: int) -> list[tuple[list[int], float]]:
    """All that the search may write, with its log-probability."""
    tokens = range(EOS_ID + 1, translator.tgt_tokenizer.vocab_size)
    rows = [list(row) for length in range(limit) for row in itertools.product(tokens, repeat=length)]
    log_probs = token_log_probs(translator.model, [(src, row) for row in rows])
    return [(row, math.fsum(each)) for row, each in zip(rows, log_probs, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wide_beam_finds_the_best_of_all_translations(kind: str) -> None:
    translator = make_translator(KINDS[kind], pairs=[("a b c", "x y z")], noise=1.0)
    changes: dict[str, Any] = {"beam_size": 600, "max_length": 3, "length_penalty": 0.5, "n_best": 5}
    plain = search_options(translator.config.decoding, **changes)
    (row,) = translator.src_tokenizer.encode_batch(["a b c"])
    parts = {
        tuple(tokens): (log_prob / plain.norm(len(tokens) + 1), by_words(translator, row, tokens))
        for tokens, log_prob in every_hypothesis(translator, row, 4)
    }
    for penalty in (0.2, 3.0):
        options = search_options(translator.config.decoding, coverage_penalty=penalty, **changes)
        scores = {tokens: normed + penalty * coverage for tokens, (normed, coverage) in parts.items()}
        best = sorted(scores, key=lambda tokens: -scores[tokens])[:5]
        found = translator.search([row], options)[0]
        assert [tuple(h.tokens) for h in found] == best
        assert [h.score for h in found] == pytest.approx([scores[tokens] for tokens in best], abs=1e-4)
    assert [h.tokens for h in translator.search([row], plain)[0]] != [h.tokens for h in found]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_score_is_that_of_tmt_score_and_alone_as_in_a_batch(beam_size: int) -> None:
    translator = make_translator(TWO_STACKS)
    options = search_options(translator.config.decoding, beam_size=beam_size, coverage_penalty=0.7)
    together = translator.translate_lines(TEXTS, options)
    alone = [translator.translate_lines([text], options)[0] for text in TEXTS]
    assert [line.text for line in together] == [line.text for line in alone]
    given = [(line.source, line.text) for line in together if line.text]
    scored = translator.score(*zip(*given, strict=True), coverage_penalty=0.7)
    # A text may be read as other tokens than those that the search wrote it with.
    same = [
        (line.hypotheses[0].score, other.score)
        for line, other in zip([line for line in together if line.text], scored, strict=True)
        if line.hypotheses[0].tokens == list(other.tokens)
    ]
    assert same
    for searched, given_score in same:
        assert searched == pytest.approx(given_score, abs=1e-4)


@pytest.mark.parametrize("search", [{"beam_size": 4}, {"mbr": "chrf", "mbr_candidates": 3}, {"temperature": 2.0}, {}])
def test_a_translation_is_the_same_whether_or_not_scores_are_wanted(search: dict[str, Any]) -> None:
    translator = make_translator(TWO_STACKS, noise=0.5, decoding={"beam_size": 6 if "mbr" in search else 1})
    given = {**search, "coverage_penalty": 100.0}
    scored = translator.translate_lines(TEXTS, search_options(translator.config.decoding, **given))
    assert translator.translate(TEXTS, **given) == [line.text for line in scored]
    if "beam_size" in search:
        assert translator.translate(TEXTS, **search) != translator.translate(TEXTS, **given)
