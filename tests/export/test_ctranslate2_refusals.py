"""What CTranslate2 does not compute is refused by its key or told, and what a user can get wrong is one sentence."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from translators import MODELS_BY_NAME, ONE_STREAM, PICTURES, SMALL

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.decoding.search.options import LENGTH_NORMS
from transformer_mt.errors import UserError

pytest.importorskip("ctranslate2", reason="the extra ct2 is not installed; the extra dev brings it")

from exports import _parts, export, expressible, make_translator

from transformer_mt.export.ctranslate2 import ExportedTranslator, search_notes, write_model
from transformer_mt.export.ctranslate2_spec import refuse_inexpressible
from transformer_mt.export.expressible import OPTIONS, other_norm

INEXPRESSIBLE = [(key, name) for key in OPTIONS for name in OPTIONS[key] if name not in expressible(key)]


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"num_experts": 4}, "model.num_experts is 4"),
        ({"num_experts": 4, "attention_window": 23}, r"model.num_experts is 4.*\nmodel.attention_window is 23"),
        ({"attention_window": 23}, "model.attention_window is 23"),
        ({"attention_window": 3, **ONE_STREAM}, "model.attention_window is 3"),
        ({"attention_window": 47, **ONE_STREAM}, "model.attention_window is 47"),
        ({"positions": "relative_bias", **ONE_STREAM}, "model.positions is relative_bias"),
        ({**PICTURES, "num_experts": 4}, r"^model.patches is set, .*\nmodel.num_experts is 4"),
        *(({key: name}, f"model.{key} is {name}, .* Train one with model.{key}: ") for key, name in INEXPRESSIBLE),
    ],
)
def test_what_cannot_be_computed_is_refused_by_its_key(model: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=key):
        export(make_translator({"num_encoder_layers": 1, **SMALL, **model}), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_tags_of_languages_are_refused_by_their_key_beside_all_others(kind: str, tmp_path: Path) -> None:
    tokenizer = {"kind": kind, "vocab_size": 320, "tags": ["<BT>", "<2es>", "<2en>"]}
    translator = make_translator({"num_encoder_layers": 1, **SMALL, "num_experts": 2}, tokenizer=tokenizer)
    with pytest.raises(UserError, match=r"^model.num_experts is 2.*\ntokenizer.tags holds <2es>, <2en>, tags of lang"):
        export(translator, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_every_key_of_a_model_is_one_that_exports_know() -> None:
    """A new key either changes nothing of a trained model, or every export writes it or refuses it by its name."""
    assert set(ModelConfig.model_fields) == {
        *OPTIONS, "preset", "architecture", "d_model", "d_ff", "num_heads", "num_kv_heads", "num_encoder_layers",
        "num_decoder_layers", "dropout", "attention_dropout", "activation_dropout", "attention_window",
        "scale_attention", "num_experts", "experts_per_token", "load_balancing_weight", "tie_embeddings", "bias",
        "max_len", "src_word_dropout", "tgt_word_dropout", "layer_drop", "rnn", "patches",
    }  # fmt: skip


@pytest.mark.parametrize(("key", "name"), [(key, name) for key in OPTIONS for name in OPTIONS[key]])
def test_an_option_that_says_nothing_of_ctranslate2_is_refused_by_its_key(
    key: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIONS[key], name, replace(OPTIONS[key][name], ctranslate2=None))
    with pytest.raises(UserError, match=f"model.{key} is {name}, which CTranslate2 does not compute"):
        refuse_inexpressible(ModelConfig.model_validate({**SMALL, key: name}))


@pytest.mark.parametrize(
    ("decoding", "is_told"),
    [
        *(({"beam_size": 4, "length_norm": kind}, kind != "average") for kind in LENGTH_NORMS),
        ({"beam_size": 4, "length_norm": "gnmt", "length_penalty": 0.0}, False),
        ({"beam_size": 1, "length_norm": "gnmt"}, False),
    ],
)
def test_a_norm_that_is_not_theirs_is_told(decoding: dict[str, Any], is_told: bool) -> None:
    notes = other_norm(DecodingConfig(**decoding), "CTranslate2")
    kind = decoding["length_norm"]
    told = [note.startswith(f"decoding.length_norm is {kind}, and CTranslate2 has only average") for note in notes]
    assert told == [True] * is_told


def test_every_key_that_it_does_not_obey_is_told_at_the_export() -> None:
    asked = DecodingConfig(beam_size=4, length_norm="gnmt", avoid="words.txt", lines=LinesConfig(html=True))
    norm, avoid, html = search_notes(asked)
    assert norm.endswith("Greedy search is the same. ExportedTranslator wants length_penalty for it, or beam_size=1.")
    assert avoid == (
        "decoding.avoid is words.txt, which CTranslate2 does not do: ExportedTranslator refuses to search without it."
    )
    assert html == "decoding.lines.html is true, which CTranslate2 does not do: it translates without it."
    assert search_notes(DecodingConfig(beam_size=1)) == []


def test_a_key_of_the_search_that_it_does_not_obey_is_refused(tmp_path: Path) -> None:
    translator = make_translator({"num_encoder_layers": 1, **SMALL}, decoding={"beam_size": 1, "avoid": "words.txt"})
    with pytest.raises(UserError, match=r"decoding.avoid is words.txt, which CTranslate2 does not do"):
        export(translator, tmp_path / "model").translate(["one."])


def test_what_a_user_can_get_wrong(tmp_path: Path) -> None:
    translator = make_translator({"num_encoder_layers": 1, **SMALL})
    parts = _parts(translator)
    with pytest.raises(UserError, match=r"'int7' is not a quantization. Use one of int8, "):
        write_model(*parts, tmp_path / "model", "int7")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(UserError, match="file exists and is not an empty folder"):
        write_model(*parts, tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in (tmp_path / "link", Path()):
        with pytest.raises(UserError, match="is not the name of a new folder"):
            write_model(*parts, name)
    (tmp_path / "link").unlink()
    with pytest.raises(UserError, match="cannot be written: Not a directory"):
        write_model(*parts, tmp_path / "file" / "model")
    with pytest.raises(UserError, match=r"transformer_mt.json cannot be used: No such file"):
        ExportedTranslator(tmp_path)
    (tmp_path / "empty").mkdir()
    exported = export(translator, tmp_path / "empty")
    with pytest.raises(UserError, match=r"translate takes a list of texts, and got one alone. .*: \['one two'\]"):
        exported.translate("one two", beam_size=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"], "nothing half-written is left"
    with pytest.raises(UserError, match=r"decoding.length_norm is gnmt, .* Pass length_penalty"):
        exported.translate(["one."])
    with pytest.raises(UserError, match=r"CTranslate2 cannot load .* Check the device and the compute type"):
        ExportedTranslator(tmp_path / "empty", compute_type="int7")
    for damaged in ("[]", "", "{}", '{"tokenizer": {"kind": "words"}}'):
        (tmp_path / "empty/transformer_mt.json").write_text(damaged)
        with pytest.raises(UserError, match=r"cannot be used: it is damaged"):
            ExportedTranslator(tmp_path / "empty")


@pytest.mark.parametrize("harm", ["one is missing", "one is damaged", "all are missing"])
def test_tokenizers_that_an_export_lost_are_exported_again(harm: str, tmp_path: Path) -> None:
    """There is nothing to train again: the run that it was made of has them."""
    export(make_translator({"num_encoder_layers": 1, **SMALL}), tmp_path / "model")
    tokenizers = tmp_path / "model/tokenizers"
    if harm == "all are missing":
        shutil.rmtree(tokenizers)
    elif harm == "one is missing":
        (tokenizers / "tgt.json").unlink()
    else:
        (tokenizers / "tgt.json").write_text("{}")
    with pytest.raises(UserError, match=r"\. Export the run again with `tmt export --to ctranslate2`\.$"):
        ExportedTranslator(tmp_path / "model")


def test_a_recurrent_network_is_refused_by_the_key_of_its_architecture(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^model.architecture is rnn, .* encoder_decoder or decoder_only to export it"):
        export(make_translator(MODELS_BY_NAME["rnn-search"]), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
