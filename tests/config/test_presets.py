"""Presets: values under the keys beside them, over the keys below."""

from pathlib import Path

import pytest

from transformer_mt.config.loading import dump_config, load_config, shipped_configs
from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.errors import UserError

BASE = """
data: {train: [{builtin: en-es, split: train}], validation: [{builtin: en-es, split: validation}]}
tokenizer: {kind: bpe, joint: false}
model: {d_model: 64, num_heads: 2, dropout: 0.4, max_len: 100, positions: learned, num_experts: 2}
training: {max_steps: 10, max_tokens: 256}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "below.yaml").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changes(preset: str) -> list[str]:
    """The preset over another file, with what its architecture learns from."""
    alone = [
        "data.train=[{mono: a}]", "data.validation=[{mono: a}]", "data.test=[]", "data.noise.kind=masked",
        "tokenizer.masks=1", "validation.metric=nll",
    ]  # fmt: skip
    source_as = "picture" if MODELS[preset]["patches"] else "text"
    is_alone = MODELS[preset]["architecture"] == "encoder_only"
    turns = [] if source_as == "text" and not is_alone else ["data.both_directions_epochs=0"]  # which only pairs do
    return [f"model.preset={preset}", f"data.source_as={source_as}", *turns, *(alone if is_alone else [])]


def test_a_preset_says_every_value_of_the_model_but_the_length() -> None:
    for values in MODELS.values():
        assert set(values) == set(ModelConfig.model_fields) - {"preset", "max_len"}


@pytest.mark.parametrize("preset", MODELS)
def test_on_the_command_line_it_replaces_what_the_file_had(folder: Path, preset: str) -> None:
    config = load_config("below.yaml", changes(preset)).config
    expected = {**MODELS[preset], "preset": preset, "max_len": 100}
    assert config.model.model_dump() == expected
    assert config.tokenizer.joint != bool(MODELS[preset]["patches"])
    assert config.tokenizer.kind == "bpe"


# A preset of each architecture, and one of pictures, for that is all of a model that other sections are asked about.
OF_EACH_KIND = ("transformer-base", "llama", "bert-small", "rnn-small", "vit-small")


@pytest.mark.parametrize(
    ("file", "preset"),
    [
        pytest.param(file, name, marks=[] if name in OF_EACH_KIND or file == "base.yaml" else pytest.mark.slow)
        for file in sorted(path.name for path in shipped_configs().glob("*.yaml"))
        for name in MODELS
    ],
)
def test_over_any_shipped_file_it_loads_and_loads_again(file: str, preset: str, tmp_path: Path) -> None:
    if MODELS[preset]["patches"] and load_config(str(shipped_configs() / file)).config.tokenizer.tags:
        with pytest.raises(UserError, match=r"tokenizer.tags is .* with data.source_as: picture"):
            load_config(str(shipped_configs() / file), changes(preset))
        return
    config = load_config(str(shipped_configs() / file), changes(preset)).config
    (tmp_path / "resolved.yaml").write_text(dump_config(config))
    assert load_config(str(tmp_path / "resolved.yaml")).config == config


def test_keys_beside_it_and_above_it_win(folder: Path) -> None:
    (folder / "middle.yaml").write_text("extends: below.yaml\nmodel: {preset: modern, d_model: 128, dropout: 0.2}\n")
    (folder / "top.yaml").write_text("extends: middle.yaml\nmodel: {dropout: 0.3}\n")
    model = load_config("top.yaml", ["model.num_heads=4"]).config.model
    assert (model.d_model, model.dropout, model.num_heads) == (128, 0.3, 4)
    assert (model.positions, model.num_experts) == ("rotary", 1)  # the preset's, not below.yaml's


@pytest.mark.parametrize(
    "order", [["model.preset=llama", "model.d_model=256"], ["model.d_model=256", "model.preset=llama"]]
)
def test_the_order_of_overrides_does_not_matter(folder: Path, order: list[str]) -> None:
    model = load_config("below.yaml", order).config.model
    assert (model.d_model, model.architecture) == (256, "decoder_only")


def test_another_preset_above_replaces_the_one_below(folder: Path) -> None:
    (folder / "middle.yaml").write_text("extends: below.yaml\nmodel: {preset: mixtral, d_model: 128}\n")
    model = load_config("middle.yaml", ["model={preset: t5-small}"]).config.model
    assert (model.preset, model.d_model, model.num_experts) == ("t5-small", 512, 1)


def test_null_is_no_preset_and_keeps_what_was_inherited(folder: Path) -> None:
    model = load_config("below.yaml", ["model.preset=null"]).config.model
    assert (model.preset, model.d_model, model.positions) == (None, 64, "learned")


def test_a_name_that_is_none_is_refused_with_the_choices(folder: Path) -> None:
    with pytest.raises(UserError, match=r"model\.preset: 'lama' is not one of transformer-base, .*llama"):
        load_config("below.yaml", ["model.preset=lama"])


def test_what_it_asks_for_may_not_be_taken_back(folder: Path) -> None:
    with pytest.raises(UserError, match=r"set tokenizer\.joint: true"):
        load_config("below.yaml", ["model.preset=llama", "tokenizer.joint=false"])


def test_a_section_set_as_a_whole_beside_it_keeps_what_the_preset_asks_for(folder: Path) -> None:
    config = load_config("below.yaml", ["model.preset=llama", "tokenizer={kind: unigram}"]).config
    assert (config.tokenizer.kind, config.tokenizer.joint) == ("unigram", True)


def test_blanks_in_the_override_make_no_difference(folder: Path) -> None:
    assert load_config("below.yaml", ["model . preset=llama"]).config.model.architecture == "decoder_only"


@pytest.mark.parametrize("tokenizer", ["bpe", "null", "[bpe]"])
def test_it_hides_no_mistake_in_the_section_tokenizer(folder: Path, tokenizer: str) -> None:
    below = (folder / "below.yaml").read_text()
    (folder / "below.yaml").write_text(below.replace("{kind: bpe, joint: false}", tokenizer))
    with pytest.raises(UserError, match=r"tokenizer: .* a map of keys is needed"):
        load_config("below.yaml", ["model.preset=llama"])
