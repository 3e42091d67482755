"""A shortlist finds what a search over the whole vocabulary finds that may take no other tokens."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from toy import ENGLISH, SPANISH, all_entries, toy_pairs
from translators import ONE_STREAM, SMALL, make_translator

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.ensemble import EnsembleDecoder, decoder_of
from transformer_mt.decoding.fast_layers.packed_weights import PACKINGS, find_packing
from transformer_mt.decoding.load_ensemble import Loaded, combined
from transformer_mt.decoding.search.greedy import StepFunction
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.shortlist import Shortlist
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.model.interface import TranslationModel

PAIRS = toy_pairs(300)
ALIGNER = Aligner.train(PAIRS)
TEXTS = [src for src, _ in toy_pairs(320)[300:]]
STACKS = {**SMALL, "num_encoder_layers": 1}
STREAM = {**SMALL, **ONE_STREAM, "positions": "rotary"}
SEPARATE = {"joint": False}
PIECES = {"kind": "bpe", "vocab_size": 300, "joint": False}


def translator_of(model: dict, precision: str = "fp32", tokenizer: dict | None = None) -> Translator:
    """Of random weights, with logits far apart."""
    made = make_translator(model, PAIRS, 0.3, tokenizer=tokenizer or {})
    with torch.no_grad():
        made.model.output.weight.mul_(3)
    return Translator(made.model, made.src_tokenizer, made.tgt_tokenizer, made.config, precision)


def ensemble(mode: str, precision: str) -> Translator:
    members = [translator_of(STACKS), translator_of(STREAM)]
    one = combined([Loaded(t.config, t.model, t.src_tokenizer, t.tgt_tokenizer, []) for t in members], mode)
    return Translator(one.model, one.src, one.tgt, one.config, precision)


CASES: dict[str, Callable[[], Translator]] = {
    "fp32": lambda: translator_of(STACKS, tokenizer=SEPARATE),
    "int8": lambda: translator_of(STACKS, "int8"),
    "bf16": lambda: translator_of(STACKS, "bf16"),
    "one stream": lambda: translator_of(STREAM),
    "pieces": lambda: translator_of(STACKS, tokenizer=PIECES),
    "linear": lambda: ensemble("linear", "fp32"),
    "log_linear": lambda: ensemble("log_linear", "fp32"),
}


def few(translator: Translator) -> Shortlist:
    """Three translations a word, and two common words."""
    return Shortlist(ALIGNER, translator.src_tokenizer, translator.tgt_tokenizer, 3, 2)


class Masked:
    """A decoder over the whole vocabulary whose one sentence may take some tokens only."""

    def __init__(self, decoder: StepFunction, tokens: Tensor) -> None:
        self._decoder, self._tokens = decoder, tokens

    def step(self, tokens: Tensor) -> Tensor:
        logits = self._decoder.step(tokens).float()
        masked = torch.full_like(logits, -torch.inf)
        masked[:, self._tokens] = logits[:, self._tokens]
        return masked

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        self._decoder.reorder(index, sentences)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_a_shortlist_is_a_search_that_may_take_no_other_tokens(name: str, beam_size: int) -> None:
    translator = CASES[name]()
    options = search_options(translator.config.decoding, beam_size=beam_size, n_best=beam_size)
    shortlist = few(translator)
    rows = translator.src_tokenizer.encode_batch(TEXTS)
    expected, free = [], translator.search(rows, options)
    for row in rows:
        tokens = torch.from_numpy(shortlist.tokens_of(row))

        def begin(model: TranslationModel, src: Tensor, tokens: Tensor = tokens) -> StepFunction:
            one = decoder_of(model, src)
            if isinstance(one, EnsembleDecoder):
                return EnsembleDecoder([Masked(decoder, tokens) for decoder in one._decoders], one._combine)
            return Masked(one, tokens)

        translator.decoder = begin
        expected += translator.search([row], options)
    translator.decoder, translator.shortlist = decoder_of, shortlist
    found = translator.search(rows, options)
    assert [[h.tokens for h in of_row] for of_row in found] == [[h.tokens for h in of_row] for of_row in expected]
    close = [pytest.approx([h.log_prob for h in of_row], abs=1e-3) for of_row in expected]
    assert [[h.log_prob for h in of_row] for of_row in found] == close
    assert found != free, "the shortlist forbids something"
    for row, of_row in zip(rows, found, strict=True):
        assert {token for h in of_row for token in h.tokens} <= set(shortlist.tokens_of(row).tolist())


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("name", ["fp32", "pieces", "linear"])
def test_text_does_not_depend_on_the_batch(name: str, beam_size: int) -> None:
    translator = CASES[name]()
    translator.shortlist = few(translator)
    texts = translator.translate(TEXTS, beam_size=beam_size)
    assert texts == translator.translate(TEXTS, beam_size=beam_size, batch_size=3)
    assert texts == [translator.translate([text], beam_size=beam_size)[0] for text in TEXTS]


def test_samples_do_not_depend_on_the_batch_either() -> None:
    translator = CASES["fp32"]()
    options = search_options(translator.config.decoding, sampling_topk=5, seed=3, n_best=4)
    translator.shortlist = few(translator)
    found = translator.translate_lines(TEXTS, options)
    again = translator.translate_lines(TEXTS, options.model_copy(update={"batch_size": 3}))
    assert [[h.text for h in line.hypotheses] for line in found] == [[h.text for h in a.hypotheses] for a in again]
    for line in found:
        allowed = set(translator.shortlist.tokens_of(translator.src_tokenizer.encode(line.source)).tolist())
        assert {i for h in line.hypotheses for i in translator.tgt_tokenizer.encode(h.text)} <= allowed


def test_a_list_of_everything_changes_nothing() -> None:
    translator = CASES["fp32"]()
    options = search_options(translator.config.decoding, n_best=3, beam_size=4)
    plain = translator.translate_lines(TEXTS, options)
    translator.shortlist = Shortlist(ALIGNER, translator.src_tokenizer, translator.tgt_tokenizer, 1000, 1000)
    for one, other in zip(translator.translate_lines(TEXTS, options), plain, strict=True):
        assert [h.text for h in one.hypotheses] == [h.text for h in other.hypotheses]
        assert [h.score for h in one.hypotheses] == pytest.approx([h.score for h in other.hypotheses], abs=1e-5)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_demands_hold_in_the_numbers_of_the_list(beam_size: int, tmp_path) -> None:
    """The prefix may hold what no source word asks for."""
    translator = CASES["pieces"]()
    translator.shortlist = few(translator)
    plain = translator.translate(TEXTS, beam_size=beam_size, min_length=4)
    begun = translator.translate([SourceLine(text, "¿Xyz, diez") for text in TEXTS], beam_size=beam_size)
    assert all(text.startswith("¿Xyz, diez") for text in begun)
    word = max((word for text in plain for word in text.split()), key=len)
    avoid = tmp_path / "avoid"
    avoid.write_text(f"{word}\n", encoding="utf-8")
    avoiding = translator.translate(TEXTS, beam_size=beam_size, avoid=str(avoid), min_length=4)
    for text, before in zip(avoiding, plain, strict=True):
        assert word not in text.split()
        if word not in before:
            assert text == before
    once = translator.translate(TEXTS, beam_size=beam_size, no_repeat_ngram_size=1, min_length=4)
    for text in once:
        tokens = translator.tgt_tokenizer.encode(text)
        assert text == "" or len(tokens) >= 2
    assert once != plain


@pytest.mark.parametrize("beam_size", [1, 3])
def test_constraints_come_that_no_source_word_asks_for(beam_size: int) -> None:
    translator = CASES["pieces"]()
    translator.shortlist = few(translator)
    options = search_options(translator.config.decoding, beam_size=beam_size, constraints="unordered")
    lines = [SourceLine(text, constraints=("Xyz", "diez")) for text in TEXTS]
    for line in translator.translate_lines([*lines, *TEXTS], options)[: len(lines)]:
        assert "Xyz" in line.text
        assert "diez" in line.text


def test_the_words_of_a_list_by_hand() -> None:
    words = translator_of(STACKS, tokenizer=SEPARATE)
    shortlist = Shortlist(ALIGNER, words.src_tokenizer, words.tgt_tokenizer, 1, 1)
    of_two = shortlist.tokens_of(words.src_tokenizer.encode("two, one"))
    entries = words.tgt_tokenizer.tokens(of_two.tolist())
    assert entries[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert sorted(entries[4:]) == sorted(["dos", "uno", "￭."])  # the period is the commonest word
    pieces = translator_of(STACKS, tokenizer=PIECES)
    shortlist = Shortlist(ALIGNER, pieces.src_tokenizer, pieces.tgt_tokenizer, 1, 0)
    allowed = set(shortlist.tokens_of(pieces.src_tokenizer.encode("Two Qux SEVEN")).tolist())
    encode = pieces.tgt_tokenizer.encode
    for text in ("dos", "Dos", "Qux", "siete", "SIETE", "Two dos"):
        assert set(encode(text)) <= allowed, text
    for mark in ("(", "¿"):
        assert set(encode(f"{mark}dos {mark}Qux")) - set(encode(mark)) <= allowed
    assert not set(encode("cuatro")) <= allowed


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_every_way_to_write_a_word_is_known(kind: str) -> None:
    tokenizer = {"kind": kind, "vocab_size": 330, "joint": False, **all_entries(kind)}
    pairs = [*PAIRS, *((f"({src}", f"({tgt.capitalize()}") for src, tgt in PAIRS)]
    tgt = make_translator(STACKS, pairs, tokenizer=tokenizer).tgt_tokenizer
    marks = {*tgt.punctuation_ids(), *tgt.encode("("), tgt.encode("(a)")[-1]}
    for word, ids in zip(SPANISH, tgt.ids_that_write(SPANISH), strict=True):
        for text in (word, word.capitalize(), f"({word}", f"({word.capitalize()})"):
            written = set(tgt.encode(text)) - marks - {UNK_ID}
            assert written <= set(ids), text
    assert tgt.ids_that_write([]) == []
    unknown = tgt.ids_that_write(["qqq"])[0]
    assert bool(unknown) == tgt.knows_every_text


@pytest.mark.parametrize("precision", PACKINGS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_narrowed_layer_has_the_numbers_of_the_whole_one(precision: str, has_bias: bool) -> None:
    torch.manual_seed(3)
    weight, bias, x = torch.randn(40, 16), torch.randn(40) if has_bias else None, torch.randn(5, 16)
    outputs = torch.tensor([0, 1, 2, 3, 9, 17, 39])
    for linear in (find_packing(precision).linear, PACKINGS[precision].linear):
        whole = linear(weight, bias)
        for chosen in (outputs, outputs[:1]):
            narrowed = whole.narrowed(chosen)  # pyright: ignore[reportCallIssue]
            assert torch.allclose(narrowed(x), whole(x)[:, chosen], atol=1e-5 if precision != "fp16" else 1e-2)
        if precision == "int8":
            assert torch.equal(whole.narrowed(outputs)(x), whole(x)[:, outputs])  # pyright: ignore[reportCallIssue]


def test_a_language_that_does_not_part_words_is_refused() -> None:
    translator = CASES["fp32"]()
    aligner = Aligner.train([(word, "你好") for word in ENGLISH])
    with pytest.raises(UserError, match="the target language does not part them"):
        Shortlist(aligner, translator.src_tokenizer, translator.tgt_tokenizer)


def test_the_rows_of_a_dead_beam_do_not_mix_sentences() -> None:
    """Sentences end at different steps, so that the masks of the others change places."""
    translator = CASES["fp32"]()
    translator.shortlist = few(translator)
    lines = ["one.", " ".join(ENGLISH) + ".", "ten nine", "three three three three."]
    rows = translator.src_tokenizer.encode_batch(lines)
    options = search_options(translator.config.decoding, beam_size=4, n_best=4)
    for row, found in zip(rows, translator.search(rows, options), strict=True):
        allowed = set(translator.shortlist.tokens_of(row).tolist())
        assert all(set(h.tokens) <= allowed for h in found)
