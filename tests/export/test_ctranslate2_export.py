"""CTranslate2's log-probabilities of given tokens are ours, whatever the options; its searches find the same text."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toy import TRANSLATING, all_entries, toy_pairs
from translators import ONE_STREAM, SMALL

from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.search.finished import Finished
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError

pytest.importorskip("ctranslate2", reason="the extra ct2 is not installed; the extra dev brings it")

from exports import _parts, export, expressible, make_translator, our_log_probs, their_log_probs

from transformer_mt.export.ctranslate2 import ExportedTranslator, _batches, write_model


def in_small(options: dict[str, Any]) -> dict[str, Any]:
    return {"num_encoder_layers": 2, **SMALL, **options}


def each_once(named: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without those that are the model of an earlier one; a dropout is nothing here."""
    found: dict[str, ModelConfig] = {}
    for name, options in named.items():
        config = ModelConfig.model_validate({**in_small(options), "dropout": 0.0})
        if config not in found.values():
            found[name] = config
    return {name: named[name] for name in found}


CONVERTED = each_once({
    **{
        f"{positions}, {norm_position}-norm{', one stream' * bool(stream)}": {
            "positions": positions, "norm_position": norm_position, **stream,
        }
        for positions in expressible("positions")
        for norm_position in expressible("norm_position")
        for stream in ({}, ONE_STREAM)
        if not (stream and positions == "relative_bias")
    },
    **{activation: {"activation": activation} for activation in expressible("activation")},
    **{f"tied: {tied}": {"tie_embeddings": tied} for tied in ("none", "decoder", "all")},
    **{
        f"{norm}, {norm_position}-norm, bias {bias}": {"norm": norm, "norm_position": norm_position, "bias": bias}
        for norm in expressible("norm")
        for norm_position in expressible("norm_position")
        for bias in (True, False)
    },
    "one key head": {"num_kv_heads": 1},
    "two key heads, rotary": {"num_kv_heads": 2, "positions": "rotary"},
    "two key heads, one stream": {"num_kv_heads": 2, "positions": "rotary", **ONE_STREAM},
    "unscaled": {"scale_attention": False},
    "no bias on a free output": {"tie_embeddings": "none", "bias": False},
    "three layers and one": {"num_encoder_layers": 3, "num_decoder_layers": 1},
    "a window that hides nothing": {"attention_window": SMALL["max_len"]},
    "a window that hides nothing of one stream": {"attention_window": 2 * SMALL["max_len"], **ONE_STREAM},
    **{
        f"preset {name}": {**{key: value for key, value in model.items() if key not in SMALL}, "num_kv_heads": None}
        for name, model in MODELS.items()
        if name in TRANSLATING and model["num_experts"] == 1 and model["positions"] in expressible("positions")
        and model["rnn"] is None and model["patches"] is None
    },
})  # fmt: skip


@pytest.mark.parametrize("name", CONVERTED)
def test_every_option_gives_the_same_log_probabilities(name: str, tmp_path: Path) -> None:
    translator = make_translator(in_small(CONVERTED[name]))
    exported = export(translator, tmp_path / "model")
    dice = random.Random(5)
    ids = [i for i in range(translator.src_tokenizer.vocab_size) if i not in (PAD_ID, BOS_ID, EOS_ID)]
    pairs = [(dice.choices(ids, k=n), dice.choices(ids, k=m)) for n, m in ((1, 1), (5, 9), (23, 23), (14, 2), (3, 20))]
    spread = []
    for (src, tgt), found in zip(pairs, their_log_probs(exported, pairs), strict=True):
        expected = our_log_probs(translator, src, tgt)
        spread.append(expected.std())
        torch.testing.assert_close(found, expected, atol=3e-5, rtol=1e-5)
    assert max(spread) > 0.5, "such weights tell one token from another"
    texts = [src for src, _ in toy_pairs(12, seed=1)]
    assert exported.translate(texts, beam_size=1) == translator.translate(texts, beam_size=1)


@pytest.mark.parametrize("positions", ["relative_bias", "rotary"])
def test_far_positions(positions: str, tmp_path: Path) -> None:
    """All buckets of the bias, those too that begin at a power of two; angles worked out in both precisions."""
    model = {**SMALL, "num_encoder_layers": 1, "positions": positions, "max_len": 200}
    translator = make_translator(model)
    dice = random.Random(5)
    pairs = [(dice.choices(range(4, 20), k=199), dice.choices(range(4, 20), k=199))]
    (found,) = their_log_probs(export(translator, tmp_path / "model"), pairs)
    torch.testing.assert_close(found, our_log_probs(translator, *pairs[0]), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("stream", [{}, ONE_STREAM])
@pytest.mark.parametrize(
    "rule",
    [
        {"min_length": 6},
        {"min_length": 6, "max_length_ratio": 0.5, "max_length_extra": 2},  # short texts end sooner
        {"max_length": 2},
        {"no_repeat_ngram_size": 1},
    ],
)
def test_a_rule_of_greedy_search_gives_the_same_text(rule: dict[str, float], stream: dict, tmp_path: Path) -> None:
    model = {"num_encoder_layers": 1, **SMALL, "tie_embeddings": "none", **stream}
    texts = [src for src, _ in toy_pairs(20, seed=2)]
    found = []
    for decoding in ({"beam_size": 1}, {"beam_size": 1, **rule}):
        translator = make_translator(model, decoding=decoding)
        if "min_length" in rule:
            with torch.no_grad():
                translator.model.output.bias[EOS_ID] += 8  # so that texts end early
            translator = Translator(
                translator.model, translator.src_tokenizer, translator.tgt_tokenizer, translator.config
            )
        found.append(translator.translate(texts))
    exported = export(translator, tmp_path / "model")
    assert exported.translate(texts) == [exported.translate([text])[0] for text in texts] == found[1] != found[0]


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_every_token_is_the_same_token(kind: str, tmp_path: Path) -> None:
    """Each entry of the vocabularies as a source and as a target: what looks special or like white space too."""
    lines = [
        "<unk> </s> <s> <pad>",
        "a￭b ￭ <joiner>",
        "a\u2028b\u00a0c\u200bd\x00e",
        "🙂 e\u0301 ß \\ \"' \\u0041",
        "▁ Ġ Ċ ċ",
        "<BT> a b",
    ]
    tokenizer = {"kind": kind, "vocab_size": 320, **all_entries(kind), "joint": False, "tags": ["<BT>"]}
    pairs = [(a, b) for a in lines for b in reversed(lines)]
    translator = make_translator({"num_encoder_layers": 1, **SMALL}, pairs, tokenizer=tokenizer)
    exported = export(translator, tmp_path / "model")
    ids = [i for i in range(translator.src_tokenizer.vocab_size) if i not in (PAD_ID, EOS_ID)]
    assert kind == "word" or len(ids) > 255
    scored = [([i], [j]) for i, j in zip(ids, reversed(ids), strict=True) if j < translator.tgt_tokenizer.vocab_size]
    for (src, tgt), found in zip(scored, their_log_probs(exported, scored), strict=True):
        torch.testing.assert_close(found, our_log_probs(translator, src, tgt), atol=3e-5, rtol=1e-5)
    assert exported.translate(lines, beam_size=1) == translator.translate(lines, beam_size=1)


def ending_model(tmp_path: Path) -> tuple[Translator, ExportedTranslator]:
    """Ours and theirs, where but one of the rules that differ matters, that of stopping: what is never generated has no
    probability, and after eight tokens every hypothesis soon ends, long before its largest length.
    """
    decoding = {"length_norm": "average", "length_penalty": 1.0, "max_length_ratio": 5.0}
    model = {"num_encoder_layers": 1, **SMALL, "tie_embeddings": "none", "positions": "learned", "max_len": 60}
    translator = make_translator(model, decoding=decoding)
    decoder, output = translator.model.get_submodule("decoder.embedder.positions.embedding"), translator.model.output
    assert isinstance(decoder, torch.nn.Embedding)
    with torch.no_grad():
        output.bias[[PAD_ID, UNK_ID, BOS_ID]] = -40
        output.bias[EOS_ID] += 3
        decoder.weight[8:] += 20 * output.weight[EOS_ID]
    # Anew: a translator packs the weights that it is given.
    translator = Translator(translator.model, translator.src_tokenizer, translator.tgt_tokenizer, translator.config)
    return translator, export(translator, tmp_path / "model")


@pytest.fixture
def as_ctranslate2_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one rule of a beam that is CTranslate2's own and shows in these models."""

    def are_enough(self: Any, best_live: Tensor, *_others: Any) -> Tensor:
        return (self.counts >= self._options.beam_size) | (best_live == -torch.inf)

    monkeypatch.setattr(Finished, "are_enough", are_enough)


@pytest.mark.usefixtures("as_ctranslate2_stops")
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_beam_finds_the_same_text(alpha: float, tmp_path: Path) -> None:
    translator, exported = ending_model(tmp_path)
    texts = [src for src, _ in toy_pairs(60, seed=2)]
    ours = translator.translate(texts, beam_size=4, length_penalty=alpha)
    assert exported.translate(texts, beam_size=4, length_penalty=alpha) == ours
    assert ours != translator.translate(texts, beam_size=1)
    assert len({len(text.split()) for text in ours}) > 4


@torch.inference_mode()
def test_where_a_beam_finds_another_text_ours_scores_better(tmp_path: Path) -> None:
    translator, exported = ending_model(tmp_path)
    texts = [src for src, _ in toy_pairs(60, seed=2)]
    options = search_options(translator.config.decoding, beam_size=4, length_penalty=1.0)
    found = translator.translate_lines(texts, options)
    others = exported.translate(texts, beam_size=4, length_penalty=1.0)
    differing = [(one, text) for one, text in zip(found, others, strict=True) if one.text != text]
    assert 0 < len(differing) < 20
    for one, text in differing:
        src, tgt = translator.src_tokenizer.encode(one.source), translator.tgt_tokenizer.encode(text)
        assert one.hypotheses[0].score > our_log_probs(translator, src, tgt).mean()


@pytest.mark.usefixtures("as_ctranslate2_stops")
def test_the_order_and_size_of_batches_change_no_text(tmp_path: Path) -> None:
    translator, exported = ending_model(tmp_path)
    texts = ["", "one " * 100, *(src for src, _ in toy_pairs(30, seed=3)), " "]
    expected = translator.translate(texts, beam_size=3)
    assert expected[:2] == ["", ""]
    assert expected[-1] == ""
    for size in (1, 7, 100):
        assert exported.translate(texts, beam_size=3, max_batch_size=size) == expected
    assert exported.translate([]) == []


def endless_model(folder: Path, max_length_ratio: float) -> tuple[Translator, ExportedTranslator]:
    """A model whose hypotheses end by their length alone, and what is exported of it."""
    decoding = {"length_norm": "average", "max_length_ratio": max_length_ratio, "max_length_extra": 1}
    translator = make_translator({"num_encoder_layers": 1, **SMALL, "tie_embeddings": "none"}, decoding=decoding)
    with torch.no_grad():
        translator.model.output.bias[EOS_ID] = -40
    return translator, export(translator, folder / "model")


def test_a_translation_is_no_longer_than_the_rule_says_for_its_own_source(tmp_path: Path) -> None:
    translator, exported = endless_model(tmp_path, max_length_ratio=1.0)
    texts = ["one.", "one two three four five six.", "one two three."]
    for beam_size in (1, 3):
        found = exported.translate(texts, beam_size=beam_size)
        assert [len(translator.tgt_tokenizer.encode(text)) for text in found] == [3, 8, 5], "x, EOS and 1, less EOS"
    assert exported.translate(texts, beam_size=1) == translator.translate(texts, beam_size=1)


def test_a_limit_that_bites_gives_the_same_text_in_a_batch_as_alone(tmp_path: Path) -> None:
    _, exported = endless_model(tmp_path, max_length_ratio=0.5)
    texts = [src for src, _ in toy_pairs(60, seed=4)]
    alone = [exported.translate([text], beam_size=3)[0] for text in texts]
    for size in (60, 7):
        assert exported.translate(texts, beam_size=3, max_batch_size=size) == alone


@pytest.mark.parametrize(
    ("size", "same", "expected"),
    [
        (1, None, [[1], [2], [0], [3]]),
        (2, None, [[1, 2], [0, 3]]),
        (3, None, [[1, 2, 0], [3]]),
        (4, {0: 7, 1: 7, 2: 8, 3: 7}, [[2], [1, 0, 3]]),
        (4, {0: 3, 1: 5, 2: 5, 3: 2}, [[1, 2], [0], [3]]),
    ],
)
def test_batches_by_hand(size: int, same: dict[int, int] | None, expected: list[list[int]]) -> None:
    """Sentences of 3, 5, 5 and 2 tokens."""
    assert _batches({0: 3, 1: 5, 2: 5, 3: 2}, size, same) == expected


def test_quantizing_is_near_and_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    translator = make_translator({"num_encoder_layers": 1, **SMALL})
    before = {name: parameter.clone() for name, parameter in translator.model.named_parameters()}
    exported = export(translator, tmp_path / "model", "int8")
    for name, parameter in translator.model.named_parameters():
        assert torch.equal(parameter, before[name])
    src, tgt = [5, 6, 7], [7, 6, 5]
    expected = our_log_probs(translator, src, tgt)
    (found,) = their_log_probs(exported, [(src, tgt)])
    assert 0 < (found - expected).abs().max() < 0.5
    assert json.loads((tmp_path / "model/transformer_mt.json").read_text())["quantization"] == "int8"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_torch_keeps_its_threads(threads: int, tmp_path: Path) -> None:
    """They have one OpenMP; a training in this process would sum in another order."""
    write_model(*_parts(make_translator({"num_encoder_layers": 1, **SMALL})), tmp_path / "model")
    before = torch.get_num_threads()
    exported = ExportedTranslator(tmp_path / "model", threads=threads)
    assert torch.get_num_threads() == before
    exported.translate(["one.", "two."], beam_size=1)
    assert torch.get_num_threads() == before
    with pytest.raises(UserError):
        ExportedTranslator(tmp_path / "model", threads=threads, compute_type="int7")
    assert torch.get_num_threads() == before
