"""The rules between keys, each with its sentence."""

from typing import Any

import pytest
import yaml
from minimal import data_with, parse

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.errors import UserError

# Keys that mean something to a Transformer alone, away from their defaults; and those that every model has.
OF_TRANSFORMERS: dict[str, Any] = {
    "d_ff": 64, "num_heads": 4, "num_kv_heads": 2, "attention_dropout": 0.1, "activation_dropout": 0.1,
    "layer_drop": 0.1, "norm_position": "post", "norm": "rmsnorm", "activation": "gelu", "positions": "rotary",
    "attention_window": 3, "scale_attention": False, "num_experts": 2, "experts_per_token": 2,
    "load_balancing_weight": 0.1,
}  # fmt: skip
OF_ALL = {
    "preset", "architecture", "d_model", "num_encoder_layers", "num_decoder_layers", "dropout", "src_word_dropout",
    "tgt_word_dropout", "tie_embeddings", "bias", "max_len", "rnn", "patches",
}  # fmt: skip


def test_every_key_of_the_model_means_something_to_an_rnn_or_is_refused() -> None:
    assert OF_TRANSFORMERS.keys() | OF_ALL == ModelConfig.model_fields.keys()


def in_yaml(value: object) -> str:
    return yaml.safe_dump(value).splitlines()[0]


TWO = {"train": [{"tsv": "a"}, {"tsv": "b"}], "validation": [{"tsv": "c"}]}


BUILTIN = {"builtin": "en-es", "split": "train"}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"d_model": 10, "num_heads": 4}}, "model: num_heads is 4, which does not divide d_model 10"),
        ({"model": {"d_model": 9, "num_heads": 3}}, "model: d_model is 9; sinusoidal positions need an even number"),
        ({"model": {"num_heads": 8, "num_kv_heads": 3}}, "model: num_kv_heads is 3, which does not divide num_heads 8"),
        (
            {"model": {"d_model": 12, "num_heads": 4, "positions": "rotary"}},
            "model: a head has 3 numbers (d_model / num_heads); rotary positions turn pairs of them and need an even "
            "number",
        ),
        (
            {"model": {"num_experts": 2, "experts_per_token": 3}},
            "model: experts_per_token is 3, more than num_experts 2",
        ),
        (
            {"model": {"load_balancing_weight": 0.1}},
            "model: load_balancing_weight is 0.1 and has no meaning where num_experts is 1; leave it out, or at 0.01",
        ),
        (
            {"model": {"num_encoder_layers": 0}},
            "model: num_encoder_layers is 0; an encoder_decoder model needs 1 or more",
        ),
        (
            {"model": {"rnn": {}}},
            "model: rnn is set, and architecture is encoder_decoder; leave rnn out, or set architecture: rnn",
        ),
        (
            {"model": {"architecture": "rnn", "num_encoder_layers": 0}},
            "model: num_encoder_layers is 0; an rnn model needs 1 or more",
        ),
        *(
            (
                {"model": {"architecture": "rnn", key: value}},
                f"model: {key} is {in_yaml(value)} and has no meaning under architecture: rnn; leave it out, or at "
                f"{in_yaml(ModelConfig.model_fields[key].default)}",
            )
            for key, value in OF_TRANSFORMERS.items()
        ),
        (
            {"model": {"architecture": "rnn", "rnn": {"input_feeding": False}}},
            "model.rnn: input_feeding is false and has no meaning under attention: bahdanau, whose context is always "
            "fed; leave it out, or at true",
        ),
        (
            {"model": {"architecture": "rnn", "rnn": {"d_readout": 20}}},
            "model: tie_embeddings is decoder, and rnn.d_embedding 512 is not rnn.d_readout 20; make them equal, or "
            "set tie_embeddings: none",
        ),
        (
            {"model": {"architecture": "rnn", "d_model": 33, "rnn": {"attention": "luong_dot"}}},
            "model: d_model is 33; under rnn.attention: luong_dot each direction of the encoder has half of it, so it "
            "has to be even",
        ),
        (
            {"model": {"architecture": "rnn"}, "training": {"max_steps": 9, "sharding": "full"}},
            "model.architecture is rnn, and training.sharding: full shards the layers of a Transformer; use "
            "sharding: none",
        ),
        (
            {"model": {"architecture": "decoder_only"}, "tokenizer": {"joint": True}},
            "model: num_encoder_layers is 6; a decoder_only model has no encoder: set it to 0",
        ),
        (
            {"model": {"architecture": "decoder_only", "num_encoder_layers": 0}},
            "model.architecture: decoder_only reads source and target as one stream and needs one vocabulary for both "
            "sides; set tokenizer.joint: true",
        ),
        (
            {"model": {"tie_embeddings": "all"}},
            "model.tie_embeddings: all needs one vocabulary for both sides; set tokenizer.joint: true",
        ),
        (
            {"training": {"max_steps": 1, "max_tokens": 511}},
            "training.max_tokens is 511, less than model.max_len 512: the longest pair would not fit a batch; "
            "raise max_tokens or lower max_len",
        ),
        (
            {"training": {"max_steps": 1, "max_tokens": "auto", "update_tokens": 511}},
            "training.update_tokens is 511, less than model.max_len 512: the longest pair would not fit a batch; "
            "raise update_tokens or lower max_len",
        ),
        (
            {"training": {"max_steps": 1, "max_tokens": "auto"}},
            "training: max_tokens: auto needs update_tokens, the positions of a whole update, for example "
            "update_tokens: 25000",
        ),
        (
            {"training": {"max_steps": 1, "update_tokens": 25000}},
            "training: update_tokens goes with max_tokens: auto, and max_tokens is 4096; leave one of them out",
        ),
        (
            {"training": {"max_steps": 1, "max_tokens": "auto", "update_tokens": 25000, "grad_accum": 2}},
            "training: max_tokens: auto chooses grad_accum, and grad_accum is 2; leave it out, and raise update_tokens "
            "for larger updates",
        ),
        (
            {"training": {"max_steps": 1, "max_tokens": "auto", "update_tokens": 25000, "sharding": "full"}},
            "training: max_tokens: auto tries the memory of each process by itself, and under sharding: full none can "
            "train by itself; set max_tokens",
        ),
        (
            {"tokenizer": {"kind": "bpe", "vocab_size": 299}},
            "tokenizer: vocab_size is 299; bpe starts from 256 bytes and 4 special tokens: use 300 or more",
        ),
        (
            {"tokenizer": {"kind": "bpe", "vocab_size": 1_000_000_000}},
            "tokenizer: vocab_size is 1,000,000,000, and bpe learns 1,000,000 pieces at most; 8,000 to 64,000 suit "
            "most corpora",
        ),
        (
            {"tokenizer": {"kind": "unigram", "vocab_size": 1_000_001}},
            "tokenizer: vocab_size is 1,000,001, and unigram learns 1,000,000 pieces at most; 8,000 to 64,000 suit "
            "most corpora",
        ),
        (
            {"tokenizer": {"kind": "unigram", "min_frequency": 1}},
            "tokenizer: min_frequency is 1 and has no meaning under kind: unigram; leave it out, or at 2",
        ),
        (
            {"data": {"train": [BUILTIN], "validation": [BUILTIN], "columns": {"src": "x", "tgt": "y"}}},
            "data: columns is {src: x, tgt: y} and has no meaning where no source has columns; leave it out, or at "
            "null",
        ),
        (
            {"data": {**data_with({"tsv": "a"}), "shuffle_window": 7}},
            "data: shuffle_window is 7 and has no meaning without streaming: true; leave it out, or at 100000",
        ),
        (
            {"tokenizer": {"tags": ["<s>"]}},
            "tokenizer: tags holds <s>, which is an entry of another meaning; name it otherwise",
        ),
        ({"tokenizer": {"tags": ["<BT>", "<BT>"]}}, "tokenizer: tags holds a tag twice; name each once"),
        (
            {"tokenizer": {"tags": ["<BT>", "<2de>", "<bt>"], "lowercase": True}},
            "tokenizer: <BT> and <bt> are one tag under lowercase: true; name one of them otherwise, or set lowercase: "
            "false",
        ),
        (
            {"tokenizer": {"tags": ["<MASK_1>"], "masks": 2, "lowercase": True}},
            "tokenizer: <MASK_1> and <mask_1> are one tag under lowercase: true; name one of them otherwise, or set "
            "lowercase: false",
        ),
        (
            {"tokenizer": {"kind": "bpe", "vocab_size": 300, "tags": [f"<{i}>" for i in range(40)]}},
            "tokenizer: vocab_size is 300, and with its tags and masks it needs 301 or more",
        ),
        (
            {"data": {**data_with({"tsv": "a", "weight": 1}), "streaming": True}},
            "data: train has a weight, and streaming is true; a stream is read in its order, so take one of both out",
        ),
        (
            {
                "data": {**data_with({"tsv": "a", "weight": 1}), "both_directions_epochs": 2},
                "tokenizer": {"joint": True},
            },
            "data: train has a weight, and both_directions_epochs is 2, whose epochs have every pair twice; take one "
            "of both out",
        ),
        (
            {"tokenizer": {"kind": "bpe", "tags": ["<BT>"], "bpe_dropout": 0.1}},
            "tokenizer: tags gives <BT>, and bpe_dropout 0.1 would cut it into letters; take one of both out",
        ),
        (
            {"data": {"train": [{"tsv": "a", "weight": 1}, {"tsv": "b"}], "validation": [{"tsv": "c"}]}},
            "data: train has 2 sources and a weight for 1 of them; give one to all or none",
        ),
        (
            {"data": {"train": [{"tsv": "a", "weight": 0}, {"tsv": "b", "weight": 0.0}], "validation": [{"tsv": "c"}]}},
            "data: the weights of train sum to nothing; give one source at least a weight above 0",
        ),
        (
            {"data": {"train": [{"tsv": "a"}], "validation": [{"tsv": "c", "weight": 1}]}},
            "data: validation has a weight, which is a share of the batches of train; take it out",
        ),
        (
            {"data": data_with({"tsv": "a", "weight": -1})},
            "data.train[0].weight: -1 is not allowed; must be at least 0",
        ),
        (
            {"data": data_with({"tsv": "a", "weight": float("nan")})},
            "data.train[0].weight: nan is not allowed; must be a finite number",
        ),
        ({"data": {**TWO, "temperature": 0}}, "data.temperature: 0 is not allowed; must be at least 1"),
        (
            {"training": {"max_steps": 1, "adam_eps": 1e-46}},
            "training.adam_eps: 1e-46 is not allowed; must be at least 1e-30",
        ),
        (
            {"data": {**data_with({"tsv": "a"}), "temperature": 5}},
            "data: temperature is 5, which is for the shares of several sources, and train has one; take it out",
        ),
        (
            {"data": {**TWO, "train": [{"tsv": "a", "weight": 1}, {"tsv": "b", "weight": 2}], "temperature": 5}},
            "data: temperature is 5, and train has a weight, which is a share too; take one of both out",
        ),
        (
            {"data": {**TWO, "temperature": 1.5, "streaming": True}},
            "data: temperature is 1.5, and streaming is true; a stream is read in its order, so take one of both out",
        ),
        (
            {"data": {**TWO, "temperature": 5, "both_directions_epochs": 2}, "tokenizer": {"joint": True}},
            "data: temperature is 5, and both_directions_epochs is 2, whose epochs have every pair twice; take one of "
            "both out",
        ),
        (
            {"data": data_with({"tsv": "a", "tag": "<2de>", "tgt_lang": "fr"}), "tokenizer": {"tags": ["<2de>"]}},
            "data.train[0]: tgt_lang is fr, and tag <2de> names de; take one of both out",
        ),
        (
            {"data": {**TWO, "train": [{"tsv": "a", "tag": "<2de>"}, {"tsv": "b"}]}, "tokenizer": {"tags": ["<2de>"]}},
            "data: train has sources that are translated to de and tgt, and one to tgt without a tag, so no model "
            "could know which language is wanted; give it tag: <2tgt>",
        ),
        (
            {"data": {**data_with({"tsv": "a", "tag": "<2de>"}), "reverse": True}, "tokenizer": {"tags": ["<2de>"]}},
            "data: reverse is true, and a source has tag: <2de>, the language of its targets before they change places "
            "with its sources; name the sources of the other direction yourself, each with reverse: true and its own "
            "tag",
        ),
        (
            {
                "data": data_with({"tsv": "a", "tag": "<2de>"}),
                "tokenizer": {"tags": ["<2de>", "<2fr>"]},
                "decoding": {"to": "fr"},
            },
            "decoding.to is fr, which is none of the model's languages (de); take one of them",
        ),
        (
            {"decoding": {"to": "fr"}},
            "decoding.to is fr, which is none of the model's languages (none, since no tag names one, such as <2de>); "
            "take one of them",
        ),
        (
            {"data": {**data_with({"tsv": "a"}), "streaming_tokenizer_pairs": 7}},
            "data: streaming_tokenizer_pairs is 7 and has no meaning without streaming: true; leave it out, or at "
            "1000000",
        ),
        ({"training": {}}, "training: nothing ends the training: set max_steps, max_epochs or max_minutes"),
        ({"training": {"max_steps": 1, "lr": 0.1}}, "training: lr has no meaning under schedule: noam; use factor"),
        (
            {"training": {"max_steps": 1, "warmup_steps": 0}},
            "training: warmup_steps is 0; the noam schedule needs 1 or more",
        ),
        (
            {"training": {"max_steps": 1, "schedule": "constant"}},
            "training: schedule: constant needs lr, its peak rate, for example lr: 0.0005",
        ),
        (
            {"training": {"max_steps": 1, "schedule": "constant", "lr": 0.1, "factor": 2.0}},
            "training: factor has no meaning under schedule: constant, and is 2; set it to 1 and use lr",
        ),
        (
            {"training": {"max_steps": 9, "warmup_steps": 9, "schedule": "cosine", "lr": 0.1}},
            "training: schedule: cosine needs max_steps, and more of them than warmup_steps; they are 9 and 9",
        ),
        (
            {"validation": {"every_steps": 1, "every_epochs": 1}},
            "validation: set every_steps or every_epochs, not both; to go by epochs where every_steps is inherited, "
            "set every_steps: null",
        ),
        (
            {"validation": {"num_translated": 0}},
            "validation: metric: bleu needs translations, and num_translated is 0; use metric: nll",
        ),
        ({"data": data_with({"src": "a"})}, "data.train[0]: two aligned text files need both src and tgt"),
        ({"data": data_with({"hub": "a/b"})}, "data.train[0]: a hub source needs a split, for example split: train"),
        (
            {"data": data_with({"builtin": "en-es", "split": "dev"})},
            "data.train[0]: split is 'dev'; the built-in corpus has train, validation and test",
        ),
        (
            {"data": data_with({"tsv": "a", "split": "train"})},
            "data.train[0]: split belongs to a hub or builtin source",
        ),
        ({"data": data_with({"tsv": "a", "config": "b"})}, "data.train[0]: config belongs to a hub source"),
        ({"data": data_with({"src": "", "tgt": "b"})}, "data.train[0].src: '' is not allowed; must not be empty"),
        ({"data": data_with({"csv": ""})}, "data.train[0].csv: '' is not allowed; must not be empty"),
        (
            {"data": {**data_with({"tsv": "a"}), "cache_dir": ""}},
            "data.cache_dir: '' is not allowed; must not be empty",
        ),
        (
            {"data": data_with({"csv": "a", "columns": {"src": "en", "tgt": "en"}})},
            "data.train[0].columns: src and tgt are both en; name two columns",
        ),
        (
            {"data": {**data_with({"tsv": "a"}), "columns": {"src": 2, "tgt": 2}}},
            "data.columns: src and tgt are both 2; name two columns",
        ),
        (
            {"data": data_with({"src": "a", "tgt": "b", "columns": {"src": 1, "tgt": 2}})},
            "data.train[0]: columns has no meaning for two aligned text files",
        ),
    ],
)
def test_rules_between_keys(sections: dict, message: str):
    with pytest.raises(UserError) as caught:
        parse(**sections)
    assert str(caught.value) == f"c.yaml: {message}"
