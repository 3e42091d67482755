"""Samples of whole texts: the same whatever they are translated with, and scored as the model itself scores them."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threads import torch_threads
from toy import toy_pairs
from translators import ONE_STREAM, SMALL, make_translator

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.ensemble import MODES
from transformer_mt.decoding.lines.line_stream import translate_chunks
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.load_ensemble import Loaded, combined
from transformer_mt.decoding.scoring import token_log_probs
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translated, Translator

TWO_STACKS = {"num_encoder_layers": 1, **SMALL}
STREAM = {**SMALL, **ONE_STREAM}
FEW_PAIRS = [("a b", "c"), ("b a", "d"), ("a", "c d")]  # a vocabulary of four words
TEXTS = [*(src for src, _ in toy_pairs(14, seed=5)), "", "one two", "one two", "three"]
KINDS = [{"sampling_topk": 0}, {"sampling_topk": 5, "temperature": 1.5}, {"sampling_topp": 0.8}]
MODELS = ["two stacks", "one stream", *MODES]


def translator_of(model: str, pairs: list[tuple[str, str]] | None = None, precision: str = "fp32") -> Translator:
    """Of two stacks, of one stream, or of both as an ensemble."""
    named = {"two stacks": TWO_STACKS, "one stream": STREAM}
    members = [make_translator(named[name], pairs, 0.3) for name in ([model] if model in named else named)]
    with torch.no_grad():
        for member in members:
            member.model.output.weight.mul_(0.4)  # less sharp, so that samples differ
    one = members[0]
    if len(members) > 1:
        loaded = [Loaded(t.config, t.model, t.src_tokenizer, t.tgt_tokenizer, []) for t in members]
        one = combined(loaded, model)
        return Translator(one.model, one.src, one.tgt, one.config, precision)
    return Translator(one.model, one.src_tokenizer, one.tgt_tokenizer, one.config, precision)


def texts_of(found: list[Translated]) -> list[list[str]]:
    return [[h.text for h in translated.hypotheses] for translated in found]


@pytest.mark.parametrize("model", ["two stacks", "one stream", "linear"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_line_has_its_samples_whatever_its_batch(kind: dict, model: str) -> None:
    translator = translator_of(model)

    def found(texts: list[str] | list[SourceLine], **changes: Any) -> list[list[str]]:
        given: dict[str, Any] = {**kind, "n_best": 3, "seed": 5, **changes}
        return texts_of(translator.translate_lines(texts, search_options(translator.config.decoding, **given)))

    expected = found(TEXTS)
    assert [len(samples) for samples in expected] == [3 * bool(text) for text in TEXTS]
    assert found(TEXTS, batch_size=5) == expected
    assert found(TEXTS[:6], batch_size=1) == expected[:6]
    assert found(TEXTS, n_best=1) == [samples[:1] for samples in expected]
    backwards = [SourceLine(text, place=(place,)) for place, text in enumerate(TEXTS)][::-1]
    assert found(backwards) == expected[::-1]
    assert found([SourceLine("one two", place=(16,))]) == expected[16:17]
    assert found([SourceLine("one two", place=(np.int64(16),))]) == expected[16:17]  # pyright: ignore[reportArgumentType]
    assert TEXTS[15] == TEXTS[16]
    assert expected[15] != expected[16], "equal lines have samples of their own"
    assert sum(a != b for a, b in zip(found(TEXTS, seed=6), expected, strict=True)) > 10
    assert len({*map(tuple, expected)}) > 10


@torch_threads(2)
def test_processes_and_chunks_of_a_stream_change_no_sample() -> None:
    translator = translator_of("two stacks")
    options = search_options(translator.config.decoding, sampling_topk=0, n_best=2, batch_size=4)
    expected = texts_of(translator.translate_lines(TEXTS, options))  # in two processes
    with torch_threads(1):
        assert texts_of(translator.translate_lines(TEXTS, options)) == expected
        chunks = [TEXTS[:1], TEXTS[1:8], TEXTS[8:]]
        streamed = [texts_of(found) for found in translate_chunks(translator, chunks, options)]
    assert [texts for chunk in streamed for texts in chunk] == expected


@pytest.mark.parametrize("model", MODELS)
@torch.inference_mode()
def test_the_score_of_a_sample_is_that_of_teacher_forcing(model: str) -> None:
    translator = translator_of(model)
    options = search_options(translator.config.decoding, sampling_topp=0.9, temperature=1.7, n_best=4)
    rows = translator.src_tokenizer.encode_batch(TEXTS[:8])
    for row, samples in zip(rows, translator.search(rows, options), strict=True):
        forced = token_log_probs(translator.search_model, [(row, sample.tokens) for sample in samples])
        for sample, log_probs in zip(samples, forced, strict=True):
            assert sample.log_prob == pytest.approx(sum(log_probs), abs=1e-3)
            assert sample.score == pytest.approx(sum(log_probs) / options.norm(len(log_probs)), abs=1e-3)


@pytest.mark.parametrize("model", MODELS)
@torch.inference_mode()
def test_a_model_s_words_come_as_often_as_it_says(model: str) -> None:
    """Of translations of one word at most, each within 3 standard deviations."""
    translator, num = translator_of(model, FEW_PAIRS), 2000
    options = search_options(
        translator.config.decoding, temperature=1.0, n_best=num, max_length_ratio=0.0, max_length_extra=2
    )
    row = translator.src_tokenizer.encode("a b b")
    logits = translator.model(torch.tensor([[*row, EOS_ID]]), torch.tensor([[BOS_ID]]))[0, 0]
    shares = dict(enumerate(logits[EOS_ID:].softmax(dim=-1).tolist(), start=EOS_ID))
    (samples,) = translator.search([row], options)
    found = Counter(sample.tokens[0] if sample.tokens else EOS_ID for sample in samples)
    assert len(samples) == num
    assert found.keys() <= shares.keys()
    for token, share in shares.items():
        assert abs(found[token] - num * share) <= 3 * math.sqrt(num * share * (1 - share)), token


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_samples_come_in_every_precision(precision: str) -> None:
    translator = translator_of("two stacks", precision=precision)
    options = search_options(translator.config.decoding, sampling_topk=10, n_best=3)
    found = translator.translate_lines(TEXTS[:6], options)
    assert all(len({h.text for h in translated.hypotheses}) > 1 for translated in found)
    assert all(h.log_prob < 0 for translated in found for h in translated.hypotheses)


def test_sample_i_of_a_long_text_is_that_of_its_pieces_side_by_side() -> None:
    translator = translator_of("two stacks")
    piece = "one two three four."
    text = " ".join([piece] * 6)
    options = search_options(translator.config.decoding, temperature=1.0, n_best=3, too_long=TooLong.SPLIT)
    blank, whole = translator.translate_lines(["", text], options)
    assert whole.too_long
    parts = translator.translate_lines([SourceLine(piece, place=(1, i)) for i in range(6)], options)
    assert len({part.text for part in parts}) > 3, "equal pieces have samples of their own"
    for i, sample in enumerate(whole.hypotheses):
        assert sample.text == " ".join(filter(None, (part.hypotheses[i].text for part in parts)))
        assert sample.log_prob == pytest.approx(sum(part.hypotheses[i].log_prob for part in parts), abs=1e-3)
    assert len(whole.hypotheses) == 3
    assert blank.hypotheses == []


def test_samples_begin_with_their_prefix_and_hold_nothing_to_avoid(tmp_path: Path) -> None:
    translator = translator_of("two stacks")
    lines = [SourceLine(text, "dos tres") for text in TEXTS[:8]]
    free = search_options(translator.config.decoding, sampling_topk=20, n_best=4)
    words = Counter(word for translated in translator.translate_lines(lines, free) for word in words_of(translated))
    avoided = [word for word, _ in words.most_common(6) if word not in ("dos", "tres")][:2]
    (tmp_path / "avoid").write_text("\n".join(avoided), encoding="utf-8")
    options = search_options(free, avoid=str(tmp_path / "avoid"))
    found = translator.translate_lines(lines, options)
    assert all(h.text.startswith("dos tres") for translated in found for h in translated.hypotheses)
    assert not {word for translated in found for word in words_of(translated)} & {*avoided}
    assert sum(len(translated.hypotheses) for translated in found) > 20


def words_of(translated: Translated) -> list[str]:
    return [word for h in translated.hypotheses for word in h.text.replace(",", " ").replace(".", " ").split()]


def test_a_config_that_asks_for_samples_gives_them_until_a_beam_is_asked_for() -> None:
    translator = translator_of("two stacks")
    config = translator.config.model_copy(
        update={"decoding": translator.config.decoding.model_copy(update={"temperature": 2.0, "seed": 3})}
    )
    sampled = Translator(translator.model, translator.src_tokenizer, translator.tgt_tokenizer, config)
    assert (
        sampled.translate(TEXTS) == translator.translate(TEXTS, temperature=2.0, seed=3) != translator.translate(TEXTS)
    )
    assert sampled.translate(TEXTS, beam_size=1) == translator.translate(TEXTS, beam_size=1)
    assert sampled.translate(TEXTS, beam_size=3) == translator.translate(TEXTS, beam_size=3)
