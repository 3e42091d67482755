"""What the model says of each word it wrote: no more and no less than the log-probability of the whole."""

import math
from typing import Any

import pytest
from toy import toy_pairs
from translators import ONE_STREAM, SMALL, make_translator

from transformer_mt.decoding.ensemble import Ensemble
from transformer_mt.decoding.evidence import find_evidence, token_places, words_of_text
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translator import Translator

SOURCES = [src for src, _ in toy_pairs(7)]
TOKENIZERS: dict[str, dict[str, Any]] = {
    "word": {}, "bpe": {"kind": "bpe", "vocab_size": 300},
    "unigram": {"kind": "unigram", "vocab_size": 320, "min_frequency": 2},
}  # fmt: skip


def translator_of(kind: str, **model: Any) -> Translator:
    return make_translator(
        {"num_encoder_layers": 1, **SMALL, "max_len": 48, **model}, tokenizer=TOKENIZERS[kind], noise=0.3
    )


TRANSLATORS = {**{kind: translator_of(kind) for kind in TOKENIZERS}, "one stream": translator_of("bpe", **ONE_STREAM)}


def asked(translator: Translator, **changes: Any) -> SearchOptions:
    return search_options(translator.config.decoding, **changes).model_copy(update={"evidence": True})


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("changes", [{"beam_size": 1}, {"beam_size": 4, "n_best": 3}], ids=["greedy", "n-best"])
def test_all_words_and_the_end_have_the_log_probability_that_the_search_found(
    name: str, changes: dict[str, Any]
) -> None:
    translator, num_compared = TRANSLATORS[name], 0
    for line in translator.translate_lines(SOURCES, asked(translator, **changes)):
        for hypothesis in line.hypotheses:
            (evidence,) = hypothesis.evidence
            assert list(evidence.words) == words_of_text(hypothesis.text)
            assert all(evidence.log_probs), "every word was written by a token"
            assert evidence.num_tokens == len(hypothesis.tokens)
            own = [log_prob for of_word in evidence.log_probs for log_prob in of_word]
            if len(own) == len(hypothesis.tokens):  # no token writes parts of two words
                num_compared += 1
                assert math.fsum(own) + evidence.end == pytest.approx(hypothesis.log_prob, abs=1e-3)
    assert num_compared, "nothing to compare"


@pytest.mark.parametrize("name", TRANSLATORS)
def test_words_have_what_scoring_the_text_says(name: str) -> None:
    """Words of the scorer are stretches without white space, as here each word is."""
    translator = TRANSLATORS[name]
    texts = [tgt.removesuffix(".") for _, tgt in toy_pairs(7)]
    ids = zip(translator.src_tokenizer.encode_batch(SOURCES), translator.tgt_tokenizer.encode_batch(texts), strict=True)
    found = find_evidence(translator.search_model, list(ids), texts, translator.tgt_tokenizer)
    for evidence, scored in zip(found, translator.score(SOURCES, texts), strict=True):
        assert evidence.words == tuple(word.word for word in scored.words)
        own = [math.fsum(log_probs) for log_probs in evidence.log_probs]
        assert own == pytest.approx([word.log_prob for word in scored.words], abs=1e-4)
        assert evidence.end == pytest.approx(scored.log_probs[-1], abs=1e-4)


def test_batches_change_nothing_and_it_is_asked_for() -> None:
    translator = TRANSLATORS["bpe"]
    together = translator.translate_lines(SOURCES, asked(translator))
    for line, source in zip(together, SOURCES, strict=True):
        (alone,) = translator.translate_lines([source], asked(translator, batch_size=1))
        ((one,), (other,)) = (line.hypotheses[0].evidence, alone.hypotheses[0].evidence)
        assert one.words == other.words
        assert one.end == pytest.approx(other.end, abs=1e-4)
    assert translator.translate_lines(SOURCES[:1])[0].hypotheses[0].evidence == ()


def test_a_line_in_pieces_has_the_evidence_of_each() -> None:
    translator = TRANSLATORS["bpe"]
    (line,) = translator.translate_lines(["one two three. " * 16], asked(translator, too_long=TooLong.SPLIT))
    parts = line.hypotheses[0].evidence
    assert len(parts) > 1
    assert sum(part.num_tokens for part in parts) == len(line.hypotheses[0].tokens)


def test_an_ensemble_has_its_own() -> None:
    one, other = TRANSLATORS["word"], translator_of("word", d_ff=40)
    ensemble = Translator(
        Ensemble([one.model, other.model], "linear").eval(), one.src_tokenizer, one.tgt_tokenizer, one.config
    )
    (line,) = ensemble.translate_lines(SOURCES[:1], asked(ensemble))
    (evidence,) = line.hypotheses[0].evidence
    total = math.fsum(log_prob for own in evidence.log_probs for log_prob in own)
    assert total + evidence.end == pytest.approx(line.hypotheses[0].log_prob, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't sit, 3.5 kg!", ["Don", "'", "t", "sit", ",", "3", ".", "5", "kg", "!"]),
        ("猫が3匹いる。", ["猫", "が", "3", "匹", "い", "る", "。"]),
        ("a猫bc de", ["a", "猫", "bc", "de"]),
        ("  ", []),
    ],
)
def test_words_are_letters_together_and_single_characters_of_unspaced_scripts(text: str, words: list[str]) -> None:
    assert words_of_text(text) == words


@pytest.mark.parametrize("text", ["uno dos.", "¿Qué, don't? 猫 é😀 x", "a  b"])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_places_of_tokens_hold_the_whole_text_in_order(kind: str, text: str) -> None:
    tokenizer = TRANSLATORS[kind].tgt_tokenizer
    ids = tokenizer.encode(text)
    written = tokenizer.decode(ids)
    places = token_places(ids, written, tokenizer)
    assert [start for start, _ in places] == sorted(start for start, _ in places)
    held = {place for start, end in places for place in range(start, end)}
    assert {place for place, character in enumerate(written) if not character.isspace()} <= held


def test_the_place_of_each_token_by_hand() -> None:
    tokenizer = TRANSLATORS["word"].tgt_tokenizer
    assert token_places(tokenizer.encode("uno  dos."), "uno dos.", tokenizer) == [(0, 3), (4, 7), (7, 8)]
    tokenizer = TRANSLATORS["bpe"].tgt_tokenizer
    ids = tokenizer.encode("😀")  # four bytes, none of which is the whole character
    assert len(ids) > 1
    assert set(token_places(ids, "😀", tokenizer)) == {(0, 1)}
