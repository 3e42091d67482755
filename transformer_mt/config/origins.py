"""Where each value of a config comes from: a line of a file, a preset, an override, or its default."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_mt.config.loading import (
    dump_config,
    find_config,
    load_config,
    put_over,
    read_layers,
    read_text,
    shipped_configs,
    with_overrides,
)
from transformer_mt.config.presets import MODELS
from transformer_mt.config.sections.section import SPLITS
from transformer_mt.config.yaml_text import key_lines, parse_yaml

Keys = tuple[str, ...]

_REVERSE = ("data", "reverse")
DEFAULT, OVERRIDE, OF_THE_FILE = "default", "override", "the name of the file"


def explained_config(file: str, overrides: Sequence[str]) -> str:
    """The whole config as YAML, with a comment at each value that says where it comes from. UserError as `load_config`
    raises it.
    """
    dumped, origins = dump_config(load_config(file, overrides).config), origins_of(file, overrides)
    lines = dumped.rstrip("\n").split("\n")
    comments = {}
    every = key_lines(dumped)
    for keys, line in every.items():
        if not any(other != keys and other[: len(keys)] == keys for other in every):  # not a section
            comments[line - 1] = origin_of(keys, origins)
    width = min(48, max(len(line) for i, line in enumerate(lines) if i in comments))
    return "".join(
        f"{line.ljust(width)}  # {comments[i]}\n" if i in comments else f"{line}\n" for i, line in enumerate(lines)
    )


def origin_of(keys: Keys, origins: Mapping[Keys, str]) -> str:
    """The origin of this value: its own, or that of a value which it is a part of."""
    places = (keys[:length] for length in range(len(keys), 0, -1))
    return next((origins[place] for place in places if place in origins), DEFAULT)


def origins_of(file: str, overrides: Sequence[str] = ()) -> dict[Keys, str]:
    """The origin of every value that is no default, by its keys. A list is one value."""
    path = find_config(file)
    mapping: dict[str, Any] = {}
    origins: dict[Keys, str] = {}
    for place, layer in reversed(read_layers(path)):
        lines = key_lines(read_text(place))
        mapping = put_over(mapping, layer)
        origins.pop(("name",), None)  # which is not inherited
        _take(origins, layer, {keys: f"{_shown(place)}:{lines[keys]}" for keys in _values(layer)})
    if "name" not in mapping:
        mapping["name"] = path.stem
        origins["name",] = OF_THE_FILE
    given = [_as_layer(override) for override in overrides]
    for layer in sorted(given, key=lambda layer: _preset_of(layer) is None):  # a preset is applied first
        _take(origins, layer, dict.fromkeys(_values(layer), OVERRIDE))
    whole = with_overrides(mapping, overrides)
    there = set(_values(whole))
    found = {keys: origin for keys, origin in origins.items() if keys in there}
    if _REVERSE in found:
        by = f", by data.reverse ({found[_REVERSE]})"
        if whole["name"] != mapping["name"] and found["name",] != OVERRIDE:
            found["name",] += by
        if whole["data"]["reverse"]:
            found |= {keys: origin + by for keys, origin in _of_other_side(found).items()}
    return found


def _of_other_side(origins: Mapping[Keys, str]) -> dict[Keys, str]:
    """The origins of what `data.reverse` changes: each language's is that of the other one."""
    src, tgt = ("data", "src_lang"), ("data", "tgt_lang")
    splits = {("data", split): origins["data", split] for split in SPLITS if ("data", split) in origins}
    return {src: origin_of(tgt, origins), tgt: origin_of(src, origins), **splits}


def _take(origins: dict[Keys, str], layer: dict[str, Any], own: dict[Keys, str]) -> None:
    """Note where the values of a layer come from: its own, and those of a preset that it names."""
    if (name := _preset_of(layer)) is not None:
        for keys in [keys for keys in origins if keys[0] == "model" and keys != ("model", "max_len")]:
            del origins[keys]
        origins |= dict.fromkeys(_values({"model": MODELS[name], "tokenizer": {"joint": True}}), f"preset {name}")
    for keys, origin in own.items():
        for below in [other for other in origins if other[: len(keys)] == keys]:
            del origins[below]
        origins[keys] = origin


def _preset_of(layer: dict[str, Any]) -> str | None:
    model = layer.get("model")
    name = model.get("preset") if isinstance(model, dict) else None
    return name if isinstance(name, str) and name in MODELS else None


def _as_layer(override: str) -> dict[str, Any]:
    """An override as the keys of a file. An entry of a list stands for the list."""
    path, _, value = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    to_list = next((place for place, key in enumerate(keys) if key.isdecimal()), None)
    layer: Any = parse_yaml(value, override) if to_list is None else None
    for key in reversed(keys[:to_list]):
        layer = {key: layer}
    return layer


def _values(mapping: Mapping[str, Any], above: Keys = ()) -> Iterator[Keys]:
    """The keys of every value that is no map, or an empty one."""
    for key, value in mapping.items():
        if isinstance(value, dict) and value:
            yield from _values(value, (*above, key))
        else:
            yield (*above, key)


def _shown(path: Path) -> str:
    """A path as the user named it; of a shipped file its name."""
    return path.name if path.parent == shipped_configs() else str(path)
