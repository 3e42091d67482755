"""Defaults, and what is refused and accepted one key at a time."""

import pytest
from minimal import data_with, parse

from transformer_mt.errors import UserError


def test_defaults_are_those_of_the_paper():
    config = parse()
    assert (config.model.d_model, config.model.d_ff, config.model.num_heads) == (512, 2048, 8)
    assert (config.model.num_encoder_layers, config.model.num_decoder_layers, config.model.dropout) == (6, 6, 0.1)
    assert (config.training.warmup_steps, config.training.label_smoothing) == (4000, 0.1)
    assert (config.training.adam_betas, config.training.adam_eps) == ([0.9, 0.98], 1e-9)
    assert (config.decoding.beam_size, config.decoding.length_penalty) == (4, 0.6)


def test_what_has_no_effect_may_stand_at_its_default():
    """As in the config that a run folder keeps."""
    unused = {"shuffle_window": 100_000, "streaming_tokenizer_pairs": 1_000_000}
    config = parse(data={**data_with({"tsv": "a"}), **unused}, tokenizer={"kind": "unigram", "min_frequency": 2})
    assert config.data.shuffle_window == 100_000
    used = parse(data={**data_with({"tsv": "a"}), "streaming": True, "shuffle_window": 7})
    assert used.data.shuffle_window == 7


@pytest.mark.parametrize("source", [{}, {"tsv": "a", "csv": "b"}, {"src": "a", "tgt": "b", "tsv": "c"}])
def test_a_source_is_exactly_one_place(source: dict):
    with pytest.raises(UserError, match=r"c\.yaml: data\.train\[0\]: name exactly one source: \{src: FILE"):
        parse(data=data_with(source))


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ({"src": "a", "tgt": "b"}, "text"),
        ({"tsv": "a", "columns": {"src": 2, "tgt": 3}}, "tsv"),
        ({"csv": "a", "columns": {"src": "english", "tgt": "español"}}, "csv"),
        ({"jsonl": "a"}, "jsonl"),
        ({"parquet": "a"}, "parquet"),
        ({"hub": "a/b", "config": "en-es", "split": "train"}, "hub"),
        ({"builtin": "en-es", "split": "train"}, "builtin"),
    ],
)
def test_kinds_of_sources(source: dict, kind: str):
    assert parse(data=data_with(source)).data.train[0].kind == kind


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"tie_embeddings": "all"}, "tokenizer": {"joint": True}},
        {"model": {"d_model": 9, "num_heads": 3, "positions": "learned"}},
        {"model": {"d_model": 9, "num_heads": 3, "positions": "none"}},
        {"model": {"architecture": "decoder_only", "num_encoder_layers": 0}, "tokenizer": {"joint": True}},
        {"model": {"num_experts": 8, "experts_per_token": 2, "num_kv_heads": 1, "attention_window": 2}},
        {"training": {"max_minutes": 60}},
        {"training": {"max_epochs": 1, "schedule": "inverse_sqrt", "lr": 1e-3, "clip_norm": None}},
        {"training": {"max_steps": 10, "schedule": "cosine", "lr": 1e-3, "warmup_steps": 9}},
        {"training": {"max_steps": 1, "device": "cuda:3"}},
        {"validation": {"metric": "nll", "num_translated": 0}},
        {"seed": 2**63 - 1},
        {"name": "0.big_run-2"},
    ],
)
def test_allowed_combinations(sections: dict):
    config = parse(**sections).model_dump(mode="json")
    for section, asked in sections.items():
        got = config[section]
        assert ({key: got[key] for key in asked} if isinstance(asked, dict) else got) == asked


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "path", ["model.dropout", "training.clip_norm", "training.max_minutes", "training.lr", "decoding.length_penalty"]
)
def test_nan_and_infinity_are_refused(path: str, value: float):
    section, key = path.split(".")
    keys = {"max_steps": 1, key: value} if section == "training" else {key: value}
    with pytest.raises(UserError, match=f"{path}: {value} is not allowed; must be a finite number"):
        parse(**{section: keys})


def test_a_config_cannot_be_changed():
    config = parse()
    with pytest.raises(ValueError, match="frozen"):
        config.model.d_model = 3  # type: ignore[misc]  # the type checker refuses it too


def test_languages_of_sources():
    """A tag names the target; what goes to src_lang comes from tgt_lang, unless a source says otherwise."""
    tags = {"tags": ["<2en>", "<2de>", "<2fr>"], "joint": True}
    train = [
        {"tsv": "a", "tag": "<2de>"},
        {"tsv": "b", "tag": "<2en>"},
        {"tsv": "c", "tag": "<2fr>", "src_lang": "de"},
        {"mono": "d", "tag": "<2fr>"},
    ]
    data = {"src_lang": "en", "tgt_lang": "de", "train": train, "validation": [{"tsv": "e", "tag": "<2de>"}]}
    config = parse(data={**data, "noise": {"kind": "infilling"}}, tokenizer={**tags, "masks": 100})
    found = [config.data.languages_of(source) for source in config.data.train]
    assert found == [("en", "de"), ("de", "en"), ("de", "fr"), ("fr", "fr")]
    assert config.languages == ["en", "de", "fr"]
    some = parse(data={**data, "train": train[:2]}, tokenizer=tags)
    assert some.languages == ["en", "de"]
    assert parse(data={**data, "train": [{"tsv": "a"}]}, tokenizer=tags).languages == ["en", "de", "fr"]
