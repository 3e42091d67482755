"""Every problem of the keys as one sentence: path, value, what is allowed, what was perhaps meant."""

import inspect
import re
from typing import Any

import pytest

from transformer_mt.config import schema
from transformer_mt.config.loading import parse_run_config
from transformer_mt.config.messages import PATTERNS, SYNONYMS, near, place_of
from transformer_mt.config.sections.section import Section
from transformer_mt.errors import UserError

SOURCE = {"src": "train.en", "tgt": "train.es"}
MINIMAL: dict[str, Any] = {
    "name": "probe",
    "data": {"train": [SOURCE], "validation": [SOURCE]},
    "training": {"max_steps": 100},
}


def problem(path: str, value: object) -> str:
    """The message for a minimal valid configuration with one key set."""
    *sections, key = path.split(".")
    keys: dict[str, Any] = {key: value}
    for section in sections:
        keys = {section: {**MINIMAL.get(section, {}), **keys}}
    with pytest.raises(UserError) as caught:
        parse_run_config({**MINIMAL, **keys}, "c.yaml")
    assert str(caught.value).startswith("c.yaml: ")
    return str(caught.value).removeprefix("c.yaml: ")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("model.n_heads", "num_heads"),
        ("model.heads", "num_heads"),
        ("model.numHeads", "num_heads"),
        ("model.num-heads", "num_heads"),
        ("model.hidden_size", "d_model"),
        ("model.dmodel", "d_model"),
        ("model.ff_size", "d_ff"),
        ("data.ff_size", "model.d_ff"),
        ("tokenizer.voc_limit", "vocab_size"),
        ("data.voc_limit", "tokenizer.vocab_size"),
        ("training.early_stopping_metric", "validation.metric"),
        ("validation.early_stopping_metric", "metric"),
        ("training.use_cuda", "device"),
        ("use_cuda", "training.device"),
        ("model.ffn_dim", "d_ff"),
        ("model.D_FF", "d_ff"),
        ("model.layers", "num_encoder_layers or num_decoder_layers"),
        ("model.encoder_layers", "num_encoder_layers"),
        ("model.tie", "tie_embeddings"),
        ("model.max_steps", "training.max_steps"),
        ("model.lr", "training.lr"),
        ("model.seed", "seed (a key of the top level) or decoding.seed"),
        ("d_model", "model.d_model or model"),
        ("training.learning_rate", "lr"),
        ("training.batch_size", "max_tokens"),
        ("training.epochs", "max_epochs"),
        ("training.warmup", "warmup_steps"),
        ("training.smoothing", "label_smoothing"),
        ("decoding.beam", "beam_size"),
        ("decoding.html", "decoding.lines.html"),
        ("decoding.too_long", "decoding.lines.too_long or data.too_long"),
        ("decoding.max_len", "model.max_len or max_length"),
        ("data.source_lang", "src_lang"),
        ("modle", "model"),
        ("train", "data.train or training"),
        ("tokeniser", "tokenizer"),
    ],
)
def test_an_unknown_key_is_told_its_likely_name(path: str, meant: str):
    assert problem(path, 1) == f"{path}: unknown key, did you mean {meant}?"


def test_batches_are_counted_in_tokens():
    told = "Batches are always counted in tokens."
    assert problem("training.batch_type", 1) == f"training.batch_type: unknown key, did you mean max_tokens? {told}"
    assert problem("data.batch_type", 1) == f"data.batch_type: unknown key, did you mean training.max_tokens? {told}"


def test_a_key_like_no_other_is_told_all_that_are_known():
    assert problem("decoding.zzz", 1) == (
        f"decoding.zzz: unknown key; the keys here are {', '.join(schema.DecodingConfig.model_fields)}"
    )
    assert problem("zzz", 1).endswith(
        "the keys here are name, seed, data, tokenizer, model, training, validation, decoding"
    )


def test_a_key_in_a_list_is_named_by_the_number_of_its_entry():
    train = [SOURCE, {**SOURCE, "source": "x"}]
    assert problem("data.train", train) == "data.train[1].source: unknown key, did you mean src?"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.dropout", 1.5, "1.5 is not allowed; must be less than 1"),
        ("model.dropout", -0.5, "-0.5 is not allowed; must be at least 0"),
        ("model.d_model", 0, "0 is not allowed; must be at least 1"),
        ("training.clip_norm", 0, "0 is not allowed; must be more than 0"),
        ("seed", 2**63, f"{2**63} is not allowed; must be less than {2**63}"),
        ("seed", 10**200, f"a number of more than 100 digits is not allowed; must be less than {2**63}"),
        ("tokenizer.kind", "words", "'words' is not one of word, bpe, unigram, did you mean word?"),
        ("tokenizer.kind", "BPE", "'BPE' is not one of word, bpe, unigram, did you mean bpe?"),
        (
            "tokenizer.kind",
            "SentencePiece",
            "'SentencePiece' is not one of word, bpe, unigram, did you mean unigram or bpe?",
        ),
        ("tokenizer.kind", "qq", "'qq' is not one of word, bpe, unigram"),
        ("tokenizer.kind", 5, "5 is not one of word, bpe, unigram"),
        ("tokenizer.kind", None, "null is not one of word, bpe, unigram"),
        ("model.d_model", "256", "'256' is text, a whole number is needed (write 256, without quotes)"),
        ("model.d_model", "1_000", "'1_000' is text, a whole number is needed (write 1000, without quotes)"),
        ("model.d_model", "many", "'many' is text, a whole number is needed"),
        ("model.d_model", 1e3, "1000.0 is a number with a point or an exponent, a whole number is needed (write 1000)"),
        ("model.d_model", 2.5, "2.5 is a number with a point or an exponent, a whole number is needed"),
        ("model.d_model", True, "true is a boolean, a whole number is needed"),
        ("model.d_model", None, "null is not allowed, a whole number is needed"),
        ("model.d_model", [1], "a list is not allowed, a whole number is needed"),
        ("model.d_model", {"a": 1}, "a map is not allowed, a whole number is needed"),
        ("model.dropout", "0.1", "'0.1' is text, a number is needed (write 0.1, without quotes)"),
        ("training.lr", "x", "'x' is text, a number is needed"),
        ("tokenizer.joint", "yes", "'yes' is text, true or false is needed (write true)"),
        ("tokenizer.joint", "off", "'off' is text, true or false is needed (write false)"),
        ("tokenizer.joint", "maybe", "'maybe' is text, true or false is needed"),
        ("tokenizer.joint", 1, "1 is a number, true or false is needed"),
        ("data.root", 5, "5 is a number, text is needed (put it in quotes)"),
        ("data.src_lang", False, "false is a boolean, text is needed (put it in quotes)"),
        ("data.src_lang", "", "'' is not allowed; must not be empty"),
        ("name", "\ud800", "'\\ud800' is not allowed; holds a character that is no text"),
        ("data.train", [], "[] is not allowed; must have at least 1 entry"),
        ("data.train", {"src": "a"}, "a map is not allowed, a list is needed"),
        ("data.train", "a.en", "'a.en' is text, a list is needed"),
        ("training.adam_betas", [0.9], "a list is not allowed; must have at least 2 entries"),
        ("training.adam_betas", [0.9, 0.9, 0.9], "a list is not allowed; must have at most 2 entries"),
        ("model", None, "null is not allowed, a map of keys is needed"),
        ("model", [1], "a list is not allowed, a map of keys is needed"),
        ("model", "big", "'big' is text, a map of keys is needed"),
        ("data.columns", {"src": 0, "tgt": 1}, None),
        ("data.root", ["x" * 200], "a list is not allowed, text is needed"),
        ("training.device", "gpu", "'gpu' is not allowed; must be auto, cpu, mps, cuda or cuda:NUMBER"),
        ("model.activation", "x" * 200, f"'{'x' * 76}... is not one of relu, gelu, swiglu, geglu"),
    ],
)
def test_a_wrong_value_is_shown_with_what_is_allowed(path: str, value: object, message: str | None):
    expected = f"{path}: {message}" if message else "data.columns.src: 0 is not allowed; must be at least 1"
    assert problem(path, value) == expected


def test_a_number_too_long_to_print():
    huge = 10**5000
    assert problem("tokenizer.joint", huge) == (
        "tokenizer.joint: a number of more than 100 digits is a number, true or false is needed"
    )
    assert problem("data.root", huge).startswith("data.root: a number of more than 100 digits is a number, text is")
    assert problem("training.lr", huge).startswith("training.lr: a number of more than 100 digits is")
    assert problem("tokenizer.kind", huge).endswith("is not one of word, bpe, unigram")


def test_a_value_of_either_of_two_types():
    assert problem("data.columns", {"src": "en", "tgt": 1.5}) == (
        "data.columns.tgt: 1.5 is a number with a point or an exponent, text or a whole number is needed"
    )


def test_a_bad_name_says_what_a_name_is():
    assert problem("name", "my run").startswith("name: 'my run' is not allowed; must be letters (a to z), digits")
    assert problem("name", "a" * 201).endswith("is not allowed; must have at most 200 characters")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({**MINIMAL, "data": {"validation": [SOURCE]}}, "data.train: missing; a list is needed"),
        (
            {**MINIMAL, "data": {}},
            "2 problems\n  data.train: missing; a list is needed\n  data.validation: missing; a list is needed",
        ),
        (
            {"name": "a", "training": {"max_steps": 1}},
            "data: missing; a map of keys is needed (with train and validation)",
        ),
        (
            {"name": "a", "data": MINIMAL["data"]},
            "training: missing; a map of keys is needed (max_tokens, update_tokens, grad_accum, ...)",
        ),
        ({**MINIMAL, "model": {1: 2}}, "model.1: a key must be text; put it in quotes or take it out"),
    ],
)
def test_missing_and_odd_keys(mapping: dict, message: str):
    with pytest.raises(UserError) as caught:
        parse_run_config(mapping, "c.yaml")
    assert str(caught.value) == f"c.yaml: {message}"


def test_what_is_no_map_of_keys_is_refused():
    mapping: Any = []
    with pytest.raises(UserError, match=r"\[\] is not allowed, a map of keys is needed"):
        parse_run_config(mapping, "c.yaml")


def test_all_problems_come_at_once_in_the_order_of_the_schema():
    mapping = {**MINIMAL, "sede": 1, "model": {"n_heads": 8, "dropout": 2}, "data": {"train": [SOURCE]}}
    with pytest.raises(UserError) as caught:
        parse_run_config(mapping, "c.yaml")
    assert str(caught.value) == (
        "c.yaml: 4 problems\n"
        "  data.validation: missing; a list is needed\n"
        "  model.dropout: 2 is not allowed; must be less than 1\n"
        "  model.n_heads: unknown key, did you mean num_heads?\n"
        "  sede: unknown key, did you mean seed?"
    )


def test_a_thousand_problems_are_cut_short():
    mapping = {**MINIMAL, "data": {"train": [{"x": 1, "tsv": "a"}] * 1000, "validation": [SOURCE]}}
    with pytest.raises(UserError) as caught:
        parse_run_config(mapping, "c.yaml")
    lines = str(caught.value).split("\n")
    assert len(lines) == 32
    assert lines[-1] == "  ... and 970 more"


def test_every_synonym_stands_for_a_key_and_is_none():
    keys = {key for section in Section.__subclasses__() for key in section.model_fields}
    assert {meant.rpartition(".")[2] for meant in SYNONYMS.values()} <= keys
    places = [meant for meant in SYNONYMS.values() if "." in meant]
    assert [meant for meant in places if place_of(meant.rpartition(".")[2]) != meant] == []


def test_every_pattern_of_the_schema_has_words():
    modules = {module for section in Section.__subclasses__() if (module := inspect.getmodule(section))}
    patterns = set(re.findall(r'pattern=r"(.*?)"', "".join(map(inspect.getsource, modules))))
    assert patterns == set(PATTERNS)


@pytest.mark.parametrize(
    ("word", "candidates", "result"),
    [
        ("base", ["base", "bass"], ["base"]),
        ("", ["base"], []),
        ("base", [], []),
        ("x" * 100_000, ["base"], []),
        ("gpt2", ["gpt2-small", "bart-base"], ["gpt2-small"]),
        ("layers", ["num_encoder_layers", "num_decoder_layers", "d_ff"], ["num_encoder_layers", "num_decoder_layers"]),
    ],
)
def test_near(word: str, candidates: list[str], result: list[str]):
    assert near(word, candidates) == result
