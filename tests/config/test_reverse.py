"""`data.reverse` is carried out where a config is read, so that nothing else has to know of it."""

from pathlib import Path

import pytest

from transformer_mt.config.loading import dump_config, load_config, load_mapping, parse_run_config
from transformer_mt.config.yaml_text import parse_yaml
from transformer_mt.errors import UserError

FORWARD = """
name: forward
data:
  src_lang: en
  tgt_lang: es
  train: [{src: a.en, tgt: a.es}, {csv: b.csv, columns: {src: english, tgt: spanish}, reverse: true}]
  validation: [{tsv: c.tsv}]
  test: [{jsonl: d.jsonl}]
training: {max_steps: 1}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("forward.yaml").write_text(FORWARD)
    Path("es_en.yaml").write_text("extends: forward.yaml\ndata: {reverse: true}\n")


def test_languages_and_sides_change_places() -> None:
    data = load_config("forward.yaml", ["data.reverse=true"]).config.data
    assert (data.src_lang, data.tgt_lang) == ("es", "en")
    assert [source.reverse for source in [*data.train, *data.validation, *data.test]] == [True, False, True, True]
    assert data.train[1].columns is not None
    assert data.train[1].columns.src == "english"  # a column is named as it is in the file
    assert load_config("es_en.yaml").config.data == data


def test_what_is_dumped_is_reversed_once() -> None:
    config = load_config("forward.yaml", ["data.reverse=true"]).config
    text = dump_config(config)
    mapping = parse_yaml(text, "dump")
    assert isinstance(mapping, dict)
    assert mapping["data"]["train"][0] == {"src": "a.en", "tgt": "a.es", "reverse": True}
    assert "reverse" not in mapping["data"]
    assert parse_run_config(mapping, "dump") == config
    assert parse_run_config(config.model_dump(), "dump") == config


def test_text_in_one_language_stays_in_that() -> None:
    Path("text.yaml").write_text(
        "extends: forward.yaml\ndata:\n  train: [{mono: a.en, tgt_lang: en}, {mono: a.es}, {src: a.en, tgt: a.es}]\n"
        "  noise: {kind: infilling}\ntokenizer: {joint: true, masks: 1}\n"
    )
    config = load_config("text.yaml", ["data.reverse=true"]).config
    languages = [config.data.languages_of(source) for source in config.data.train]
    assert languages == [("en", "en"), ("es", "es"), ("es", "en")]
    Path("dumped.yaml").write_text(dump_config(config))
    assert load_config("dumped.yaml", ["name=text-reverse"]).config == config


def test_reversed_twice_is_forward() -> None:
    forward = load_config("forward.yaml").config
    Path("dumped.yaml").write_text(dump_config(load_config("es_en.yaml").config))
    assert load_config("dumped.yaml", ["data.reverse=true", "name=forward"]).config == forward


@pytest.mark.parametrize(
    ("file", "overrides", "name"),
    [
        ("forward.yaml", ["data.reverse=true"], "forward-reverse"),
        ("forward.yaml", ["data.reverse=true", "name=back"], "back"),
        ("forward.yaml", ["data.reverse=false"], "forward"),
        ("es_en.yaml", [], "es_en"),  # a file of its own has a name of its own
        ("es_en.yaml", ["data.reverse=true"], "es_en"),
        ("es_en.yaml", ["data.reverse=false"], "es_en-forward"),
    ],
)
def test_a_run_of_the_other_direction_has_another_name(file: str, overrides: list[str], name: str) -> None:
    assert load_config(file, overrides).config.name == name


def test_plain_data_is_reversed_too() -> None:
    mapping = parse_yaml(FORWARD, "plain")
    assert isinstance(mapping, dict)
    assert load_mapping(mapping, ["data.reverse=true"]) == load_config("forward.yaml", ["data.reverse=true"]).config


def test_languages_of_sources_are_checked_as_they_are_turned(tmp_path: Path) -> None:
    """From one language to two a model needs tags, and from two to one it needs none, whichever way it is written."""
    Path("two.yaml").write_text(
        "extends: forward.yaml\ndata:\n  train: [{src: a.en, tgt: a.es}, {src: b.en, tgt: b.fr, tgt_lang: fr}]\n"
    )
    with pytest.raises(UserError, match="translated to es and fr, and one to es without a tag"):
        load_config("two.yaml")
    config = load_config("two.yaml", ["data.reverse=true"]).config
    assert [config.data.languages_of(source) for source in config.data.train] == [("es", "en"), ("fr", "en")]
    Path("turned.yaml").write_text(dump_config(config))
    assert load_config("turned.yaml", [f"name={config.name}"]).config == config
    with pytest.raises(UserError, match="translated to es and fr, and one to es without a tag"):
        load_config("turned.yaml", ["data.reverse=true"])
