"""Where each value of a config comes from: files, presets, overrides, defaults."""

import re
from pathlib import Path

import pytest
from pages import section

from transformer_mt.config.loading import load_config, shipped_configs
from transformer_mt.config.origins import DEFAULT, explained_config, origin_of, origins_of
from transformer_mt.config.yaml_text import key_lines

BASE = """name: base
data:
  train: [{tsv: a}]
  validation: [{tsv: b}]
model: {preset: bart-base, d_model: 96}
training:
  max_steps: 5
  lr: 0.1
  schedule: cosine
  warmup_steps: 1
"""
OWN = """extends: lower.yaml

model:
  num_heads: 6
  max_len: 64
training: {max_steps: 7}
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lower.yaml").write_text(BASE)
    Path("own.yaml").write_text(OWN)


def found(*overrides: str, file: str = "own.yaml") -> dict[str, str]:
    """By the dotted key, of every value of the config."""
    origins = origins_of(file, overrides)
    text = explained_config(file, overrides)
    return {".".join(keys): origin_of(keys, origins) for keys in key_lines(text)}


def test_each_value_has_the_line_preset_override_or_default_that_it_comes_from() -> None:
    of = found("training.max_steps=9", "data.train.0.tsv=c")
    assert of["name"] == "the name of the file"
    assert of["data.train"] == "override"
    assert of["data.validation"] == "lower.yaml:4"
    assert of["model.preset"] == "lower.yaml:5"
    assert of["model.d_model"] == "lower.yaml:5"
    assert of["model.d_ff"] == "preset bart-base"
    assert of["tokenizer.joint"] == "preset bart-base"
    assert of["model.num_heads"] == "own.yaml:4"
    assert of["model.max_len"] == "own.yaml:5"
    assert of["training.max_steps"] == "override"
    assert of["training.lr"] == "lower.yaml:8"
    assert of["training.grad_accum"] == of["decoding.beam_size"] == DEFAULT


def test_what_reverse_changed_has_the_line_of_the_other_side_and_tells_of_it() -> None:
    Path("languages.yaml").write_text("extends: own.yaml\ndata:\n  src_lang: en\n  test: [{tsv: d}]\n")
    by = ", by data.reverse (override)"
    of = found("data.reverse=true", file="languages.yaml")
    assert of["data.src_lang"] == f"default{by}"
    assert of["data.tgt_lang"] == f"languages.yaml:3{by}"
    assert of["data.train"] == f"lower.yaml:3{by}"
    assert of["name"] == f"the name of the file{by}"
    assert "data.reverse" not in of
    named = found("data.reverse=true", "name=other", "data.test=[{tsv: e}]", file="languages.yaml")
    assert (named["name"], named["data.test"]) == ("override", f"override{by}")
    Path("turned.yaml").write_text("extends: languages.yaml\ndata: {reverse: true}\n")
    assert found(file="turned.yaml")["data.tgt_lang"] == "languages.yaml:3, by data.reverse (turned.yaml:2)"
    assert found(file="turned.yaml")["name"] == "the name of the file"
    forward = found("data.reverse=false", file="turned.yaml")
    assert (forward["name"], forward["data.src_lang"]) == (f"the name of the file{by}", "languages.yaml:3")


def test_files_of_one_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "above").mkdir()
    file = tmp_path / "above/lower.yaml"
    file.write_text("extends: ../lower.yaml\nseed: 4\n")
    of = found(file=str(file))
    assert of["seed"] == f"{file}:2"
    assert of["training.lr"] == f"{file.parent}/../lower.yaml:8"


def test_the_example_of_the_docs_is_what_is_printed() -> None:
    text = section("docs/configuration.md", "What it will cost")
    found = re.search(r"^tmt config explain (\S+) (.*)$", text, re.MULTILINE)
    assert found
    printed = [line.split() for line in explained_config(found[1], found[2].split()).split("\n")]
    shown = re.findall(r"^ {4,}(\w+: .* # .*)$", text, re.MULTILINE)
    assert len(shown) >= 5
    assert all(line.split() in printed for line in shown)


def test_a_preset_among_the_overrides_replaces_the_files_model_and_other_overrides_stay() -> None:
    of = found("model.d_model=60", "model.preset=rnn-small")
    assert of["model.d_model"] == of["model.preset"] == "override"
    assert of["model.d_ff"] == of["model.rnn.cell"] == "preset rnn-small"
    assert of["model.max_len"] == "own.yaml:5"
    assert of["training.max_steps"] == "own.yaml:6"


def test_a_section_given_as_a_whole_leaves_nothing_of_the_one_before() -> None:
    of = found("model={num_heads: 4}")
    assert of["model.num_heads"] == "override"
    assert of["model.d_model"] == of["model.max_len"] == DEFAULT


@pytest.mark.parametrize("file", sorted(path.name for path in shipped_configs().glob("*.yaml")))
def test_the_printed_config_is_the_config_and_every_value_has_an_origin(file: str) -> None:
    text = explained_config(file, ["seed=5"])
    Path("again.yaml").write_text(text)
    assert load_config("again.yaml").config == load_config(file, ["seed=5"]).config
    every = key_lines(text)
    leaves = [k for k in every if not any(other != k and other[: len(k)] == k for other in every)]
    lines = text.split("\n")
    assert all("  # " in lines[every[keys] - 1] for keys in leaves)
    assert "  # override" in lines[every[("seed",)] - 1]


@pytest.mark.parametrize("file", sorted(path.name for path in shipped_configs().glob("*.yaml")))
def test_a_line_that_is_named_holds_the_key_and_the_value_is_no_default(file: str) -> None:
    in_files = {keys: origin for keys, origin in origins_of(file).items() if ":" in origin}
    assert in_files
    for keys, origin in in_files.items():
        place, _, line = origin.partition(":")
        text = (shipped_configs() / place).read_text(encoding="utf-8").split("\n")[int(line) - 1]
        assert keys[-1] in text, (keys, origin)
