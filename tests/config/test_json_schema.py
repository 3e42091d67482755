"""The schema for editors knows every key, and lets a file that extends another leave out anything."""

import json
from collections.abc import Iterator

from transformer_mt.config.loading import config_schema, shipped_configs
from transformer_mt.config.schema import RunConfig


def keywords(schema: object) -> Iterator[tuple[str, object]]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield key, value
            yield from keywords(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from keywords(value)


def test_it_is_draft_2020_12_in_plain_json():
    schema = config_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(schema)) == schema


def test_every_section_and_key_is_there_and_no_other_allowed():
    schema = config_schema()
    assert list(schema["properties"]) == ["extends", *RunConfig.model_fields]
    assert schema["properties"]["extends"]["type"] == "string"
    assert schema["additionalProperties"] is False
    for name, field in RunConfig.model_fields.items():
        if name in ("name", "seed"):
            continue
        section = schema["$defs"][schema["properties"][name]["$ref"].removeprefix("#/$defs/")]
        assert list(section["properties"]) == list(field.annotation.model_fields)  # type: ignore[union-attr]  # sections are models
        assert section["additionalProperties"] is False
        assert section["description"]


def test_nothing_is_required():
    assert "required" not in dict(keywords(config_schema()))


def test_limits_choices_and_descriptions_are_told():
    model = config_schema()["$defs"]["ModelConfig"]["properties"]
    assert model["dropout"] == {"default": 0.1, "exclusiveMaximum": 1.0, "minimum": 0.0, "type": "number"}
    assert model["tie_embeddings"]["enum"] == ["none", "decoder", "all"]
    assert model["max_len"]["description"] == "Positions available to a side, EOS counted."


def test_the_shipped_files_point_to_a_schema_that_is_up_to_date() -> None:
    """Made by `tmt config schema > configs/schema.json`."""
    folder = shipped_configs()
    assert json.loads((folder / "schema.json").read_text(encoding="utf-8")) == config_schema()
    for path in folder.glob("*.yaml"):
        assert path.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=schema.json\n"), path
