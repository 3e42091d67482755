"""A given translation has the log-probability by which a search finds it."""

import math
from collections.abc import Sequence

import pytest
import torch
from toy import all_entries, toy_pairs
from translators import MODELS_BY_NAME, ONE_STREAM, SMALL, make_translator, model_names, rules

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.data.batches.batching import pad_rows
from transformer_mt.data.longest_line import LONGEST_LINE
from transformer_mt.decoding.fast_layers.packed_weights import packed
from transformer_mt.decoding.lines.line_stream import chunk_pairs
from transformer_mt.decoding.scoring import IdPair, Scorer, token_log_probs
from transformer_mt.decoding.search.greedy import Hypothesis
from transformer_mt.decoding.search.options import LengthNorm, search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.model.interface import TranslationModel

NORM = LengthNorm("gnmt", 0.6)
TEXTS = [src for src, _ in toy_pairs(12, seed=5)]
TINY = {**SMALL, "num_encoder_layers": 1}
KINDS = {"two stacks": TINY, "one stream": {**TINY, **ONE_STREAM}}


def searched(translator: Translator, beam_size: int) -> list[tuple[IdPair, Hypothesis]]:
    """Sources and all hypotheses that the search finds of them, as ids."""
    rows = translator.src_tokenizer.encode_batch(TEXTS)
    found = translator.search(rows, rules(beam_size, beam_size, NORM))
    return [((row, h.tokens), h) for row, hypotheses in zip(rows, found, strict=True) for h in hypotheses]


def scores_of(translator: Translator, pairs: Sequence[IdPair], batch_size: int = 5) -> list[list[float]]:
    found = dict(translator.scorer.score_ids(dict(enumerate(pairs)), batch_size))
    return [found[i] for i in range(len(pairs))]


def assert_scored_as_found(name: str, beam_size: int) -> None:
    translator = make_translator(MODELS_BY_NAME[name])
    found = searched(translator, beam_size)
    assert len({len(hypothesis.tokens) for _, hypothesis in found}) > 1
    for log_probs, (_, hypothesis) in zip(scores_of(translator, [ids for ids, _ in found]), found, strict=True):
        assert len(log_probs) == len(hypothesis.tokens) + 1
        assert sum(log_probs) == pytest.approx(hypothesis.log_prob, rel=1e-5)
        assert sum(log_probs) / NORM(len(log_probs)) == pytest.approx(hypothesis.score, rel=1e-5)


@pytest.mark.parametrize("name", model_names())
def test_it_is_what_the_search_found(name: str) -> None:
    assert_scored_as_found(name, beam_size=3)


@pytest.mark.parametrize("name", ["transformer-base", "gpt2-small", "rnn-search"])
def test_it_is_what_a_greedy_search_found(name: str) -> None:
    """Which adds up its log-probabilities in one way for all models: one of each architecture is enough."""
    assert_scored_as_found(name, beam_size=1)


@torch.inference_mode()
def step_by_step(model: TranslationModel, ids: IdPair) -> list[float]:
    """The tokens of one pair fed to the cache one at a time."""
    cache = model.start(pad_rows([[*ids[0], EOS_ID]]))
    inputs, outputs = [BOS_ID, *ids[1]], [*ids[1], EOS_ID]
    logits = [model.decode_step(torch.tensor([token]), cache)[0] for token in inputs]
    return [step.double().log_softmax(0)[token].item() for step, token in zip(logits, outputs, strict=True)]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_token_has_what_a_step_gives_it(kind: str, precision: str) -> None:
    """In bf16 an unlucky rounding, and in int8 also keys and values of 8 bits in the search, change some digits."""
    translator = make_translator({**KINDS[kind], "tie_embeddings": "none"})
    model = packed(translator.model, precision)
    pairs = [([4, 5, 6], []), ([7], [8, 9, 8]), ([5, 9, 8, 7, 6], [4]), ([6, 5], list(range(4, 20)))]
    tolerance = {"fp32": 1e-5, "bf16": 0.03, "int8": 0.05}[precision]
    for found, ids in zip(token_log_probs(model, pairs), pairs, strict=True):
        assert found == pytest.approx(step_by_step(model, ids), abs=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_mates_and_their_number_change_nothing(kind: str) -> None:
    translator = make_translator(KINDS[kind])
    pairs = [ids for ids, _ in searched(translator, 2)]
    alone = scores_of(translator, pairs, batch_size=1)
    for batch_size in (2, 64):
        for one, other in zip(alone, scores_of(translator, pairs, batch_size), strict=True):
            assert other == pytest.approx(one, abs=1e-5)


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
@pytest.mark.parametrize("joint", [True, False])
def test_texts_have_the_scores_of_their_tokens(kind: str, joint: bool) -> None:
    tokenizer = {"kind": kind, "vocab_size": 400, "joint": joint, **all_entries(kind)}
    translator = make_translator({**TINY, "max_len": 64}, tokenizer=tokenizer)
    texts, translations = [list(side) for side in zip(*toy_pairs(20), strict=True)]
    scored = translator.score(texts, translations, length_penalty=1.0, length_norm="average", batch_size=3)
    src, tgt = translator.src_tokenizer.encode_batch(texts), translator.tgt_tokenizer.encode_batch(translations)
    ids = list(zip(src, tgt, strict=True))
    for one, translation, log_probs in zip(scored, translations, scores_of(translator, ids), strict=True):
        assert one.log_probs == pytest.approx(log_probs, abs=1e-5)
        assert one.log_prob == pytest.approx(sum(log_probs))
        assert one.score == pytest.approx(one.log_prob / len(log_probs))
        assert [word.word for word in one.words] == translation.split()
        assert sum(word.log_prob for word in one.words) + one.log_probs[-1] == pytest.approx(one.log_prob)
        assert len(one.tokens) == len(log_probs) - 1


def test_a_word_has_the_sum_of_its_pieces() -> None:
    translator = make_translator(TINY, tokenizer={"kind": "bpe", "vocab_size": 300})
    (scored,) = translator.score(["one."], ["  zwölf\u2003e\u0301-x "])
    lengths = [len(translator.tgt_tokenizer.encode(word)) for word in ("zwölf", "é-x")]
    assert min(lengths) > 1
    parts = torch.tensor(scored.log_probs).split([*lengths, 1])
    assert [(word.word, word.log_prob) for word in scored.words] == [
        ("zwölf", pytest.approx(parts[0].sum().item())),
        ("é-x", pytest.approx(parts[1].sum().item())),
    ]


def test_what_has_no_score_says_why() -> None:
    translator = make_translator(TINY)
    long, beyond = "one " * 24, "x" * (LONGEST_LINE + 1)
    pairs = {
        ("one.", "uno."): "",
        ("", "uno."): "the source is blank",
        ("one.", " \u3000"): "the translation is blank",
        ("one.", long): "the translation is longer than the model's 24 positions",
        (long, "uno."): "the source is longer than the model's 24 positions",
        ("one.", beyond): f"the translation is longer than {LONGEST_LINE:,} bytes",
        ("one.", "one " * 23): "",
    }
    scored = translator.score(*zip(*pairs, strict=True))
    assert [one.problem for one in scored] == list(pairs.values())
    assert all(math.isnan(one.score) == bool(one.problem) for one in scored)


def test_unknown_words_of_both_sides_are_there() -> None:
    (scored,) = make_translator(TINY).score(["one zebra."], ["uno cebra, dos."], beam_size=None)  # None is not given
    assert scored.unknown_words == ("zebra", "cebra", ",")
    assert [word.word for word in scored.words] == ["uno", "cebra,", "dos."]


def test_wrong_lists_get_one_clear_sentence() -> None:
    translator = make_translator(TINY)
    with pytest.raises(UserError, match=r"score got 2 texts and 1 translations\."):
        translator.score(["one.", "two."], ["uno."])
    with pytest.raises(UserError, match=r"score takes a list of translations, and got one alone\. .*: \['uno\.'\]"):
        translator.score(["one."], "uno.")
    with pytest.raises(UserError, match=r"Translation 2 of 2 is of type NoneType\. Give it as str"):
        translator.score(["one.", "two."], ["uno.", None])  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"beam_size: a search obeys this, and .* It obeys to, length_penalty, "):
        translator.score(["one."], ["uno."], beam_size=4)
    with pytest.raises(UserError, match=r"length_penalti"):
        translator.score(["one."], ["uno."], length_penalti=1.0)


@torch.no_grad()
def test_output_that_is_no_number_is_refused() -> None:
    translator = make_translator(TINY)
    translator.model.output.weight.fill_(math.nan)
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    scorer = Scorer(packed(translator.model, "fp32"), *tokenizers, translator.languages)
    with pytest.raises(UserError, match="not a number"):
        scorer.score([("one.", "uno.")], search_options(translator.config.decoding))


@pytest.mark.parametrize("cuts", [([3], [3]), ([1, 2], [2, 1]), ([1, 1, 1], [3]), ([2], [1, 2]), ([3], [2])])
def test_line_n_of_one_stands_beside_line_n_of_the_other(cuts: tuple[list[int], list[int]]) -> None:
    def cut(side: int) -> list[list[str]]:
        numbers = iter(range(sum(cuts[side])))
        return [[f"{side} {next(numbers)}" for _ in range(size)] for size in cuts[side]]

    pairs: list[tuple[str, str]] = []
    told = ""
    try:
        for chunk in chunk_pairs(iter(cut(0)), iter(cut(1)), ("a.txt", "b.txt")):
            pairs += chunk
    except UserError as error:
        told = str(error)
    num_src, num_ref = map(sum, cuts)
    assert pairs == [(f"0 {i}", f"1 {i}") for i in range(min(num_src, num_ref))]
    ends, goes_on = ("b.txt", "a.txt") if num_src > num_ref else ("a.txt", "b.txt")
    assert told.startswith(f"{ends} ends after line {len(pairs)}, and {goes_on} goes on.") == (num_src != num_ref)
