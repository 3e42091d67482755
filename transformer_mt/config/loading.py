"""From a YAML file and overrides to a validated `RunConfig`, and back to text."""

import codecs
import copy
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from transformer_mt.config.messages import near, problems_of
from transformer_mt.config.overrides import apply_override
from transformer_mt.config.presets import with_preset
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.section import SPLITS
from transformer_mt.config.yaml_text import parse_yaml, write_yaml
from transformer_mt.errors import UserError
from transformer_mt.paths import is_dir, user_path

MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class LoadedConfig:
    """A config, its file, and a note for the user where that is not simply the file that was named."""

    config: RunConfig
    path: Path
    note: str


def load_config(file: str, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Read the files that `file` extends, `file` itself, and then the overrides (`model.d_model=256`). Later ones win.

    The name of a run is not inherited: a file without one gives the run its own name, without the ending. Where the
    overrides turn the direction of a file by `data.reverse`, and give no name, `-reverse` stands behind its name.

    Raises:
        UserError: no such file, not YAML, or not a valid configuration. All problems of the keys are told at once.
    """
    path = find_config(file)
    mapping, bases = _read_with_bases(path)
    mapping.setdefault("name", path.stem)
    mapping = with_overrides(mapping, overrides)
    origin = [f"extends {base}" for base in bases] + [f"with {' '.join(overrides)}"] * bool(overrides)
    where = f"{path} ({', '.join(origin)})" if origin else str(path)
    return LoadedConfig(parse_run_config(mapping, where), path, _note(file, path))


def read_config(path: Path) -> RunConfig:
    """The config in a file that training wrote."""
    return load_config(os.path.realpath(path)).config  # of a link to itself `Path.resolve` makes a RuntimeError


def load_mapping(mapping: Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """`load_config` from plain data: what a YAML file would hold, `extends` included. `mapping` itself does not change.

    Raises:
        UserError: as `load_config` does.
    """
    own = copy.deepcopy(dict(mapping))
    base = _pop_base(own, Path("config"))
    below = _read_with_bases(base)[0] if base is not None else {}
    below.pop("name", None)
    return parse_run_config(with_overrides(put_over(below, own), overrides), "config")


def find_config(file: str, beside: Path | None = None) -> Path:
    """The path of `file` in the folder `beside` (if given), the working folder, `configs/`, or among the shipped files.

    Raises:
        UserError: it is in none of them. The message names these folders and the shipped files.
    """
    wanted = user_path(file)
    folders = [Path(), Path("configs"), shipped_configs()]
    places = [folder / wanted for folder in ([beside, *folders] if beside is not None else folders)]
    for place in places:
        if os.path.exists(place) and not os.path.isdir(place):
            return place
    if folder := next((place for place in places if os.path.isdir(place)), None):
        problem = f"{file!r} is a folder, and a YAML file is needed."
        if os.path.isfile(of_run := folder / "config.yaml"):
            raise UserError(f"{problem} Did you mean {of_run}?")
    else:
        looked = ", ".join(dict.fromkeys(os.path.abspath(place.parent) for place in places))
        problem = f"there is no file {file!r}; looked in {looked}."
    raise UserError(problem + _other_files(wanted.stem, [place.parent for place in places]))


def _other_files(stem: str, folders: list[Path]) -> str:
    """The files that may have been meant, and the shipped ones."""
    shipped = sorted(path.name for path in shipped_configs().glob("*.yaml"))
    found = [path.name for folder in folders if os.path.isdir(folder) for path in sorted(folder.glob("*.y*ml"))]
    by_stem = {Path(name).stem: name for name in [*found, *shipped]}
    meant = [by_stem[close] for close in near(stem, by_stem)]
    question = f" Did you mean {' or '.join(meant)}?" if meant else ""
    return f"{question} The shipped ones are {', '.join(shipped)}." if shipped else question


def shipped_configs() -> Path:
    """The folder of the shipped YAML files: inside an installed package, beside it in a source checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "configs"
    return inside if is_dir(inside) else package.parent / "configs"


def parse_run_config(mapping: dict[str, Any], where: str) -> RunConfig:
    """Validate plain data.

    Raises:
        UserError: begins with `where` and lists every problem.
    """
    try:
        return RunConfig.model_validate(mapping)
    except ValidationError as error:
        problems = problems_of(error)
    if len(problems) == 1:
        raise UserError(f"{where}: {problems[0]}")
    raise UserError("\n  ".join([f"{where}: {len(problems)} problems", *problems]))


def dump_config(config: RunConfig) -> str:
    """The whole config as YAML with all defaults. It loads to an equal config."""
    mapping = config.model_dump()
    for split in SPLITS:
        sources = getattr(config.data, split)
        mapping["data"][split] = [source.model_dump(exclude_defaults=True) for source in sources]
    return write_yaml(mapping)


def config_schema() -> dict[str, Any]:
    """A JSON schema (draft 2020-12) by which editors complete and check the YAML files.

    No key is required: a file that extends another one may leave out anything.
    """
    schema = _without(RunConfig.model_json_schema(), ("title", "required"))
    extends = {"type": "string", "description": "Another YAML file, whose keys hold where this one has none."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "transformer_mt configuration",
        **schema,
        "properties": {"extends": extends, **schema["properties"]},
    }


def _without(schema: Any, names: tuple[str, ...]) -> Any:
    """A copy of a JSON schema without some keywords. Our own keys are never among them."""
    if isinstance(schema, dict):
        return {key: _without(value, names) for key, value in schema.items() if key not in names}
    return [_without(value, names) for value in schema] if isinstance(schema, list) else schema


def _note(file: str, path: Path) -> str:
    if path == user_path(file):
        return ""
    whose = "the shipped " if path.parent == shipped_configs() else ""
    return f"{file}: there is none in the working folder; taking {whose}{path}"


def _read_with_bases(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """The keys of a file, merged over those of all files that it extends; and these files."""
    layers = read_layers(path)
    mapping: dict[str, Any] = {}
    for _, layer in reversed(layers):
        mapping = put_over(mapping, layer)
    return mapping, [base for base, _ in layers[1:]]


def read_layers(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """A file and all files that it extends, each with its own keys; the file itself comes first."""
    layers = [_read_map(path)]
    chain = [path]
    base = _pop_base(layers[0], path)
    while base is not None:
        chain.append(base)
        if os.path.realpath(base) in map(os.path.realpath, chain[:-1]):
            raise UserError(f"extends goes in a circle: {' -> '.join(map(str, chain))}. Take one extends: out.")
        layers.append(_read_map(base))
        layers[-1].pop("name", None)
        base = _pop_base(layers[-1], base)
    return list(zip(chain, layers, strict=True))


def put_over(below: dict[str, Any], layer: dict[str, Any]) -> dict[str, Any]:
    """The keys of a file over those of the files that it extends."""
    below = _without_other_data(_replaced_by_preset(below, layer.get("model")), layer.get("data"))
    return _merge(below, layer)


def _without_other_data(below: dict[str, Any], data: object) -> dict[str, Any]:
    """The inherited keys. Where the file above has training data of its own, the built-in corpus is taken out of the
    inherited validation and test: it may be in other languages, and no score would show that.
    """
    inherited, train = below.get("data"), data.get("train") if isinstance(data, dict) else None
    if train is None or _is_builtin(train) or not isinstance(inherited, dict):
        return below
    others = [split for split in ("validation", "test") if _is_builtin(inherited.get(split))]
    return {**below, "data": {key: value for key, value in inherited.items() if key not in others}}


def _is_builtin(sources: object) -> bool:
    return isinstance(sources, list) and all(isinstance(source, dict) and "builtin" in source for source in sources)


def with_overrides(mapping: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A file's keys with all overrides. A preset among them is applied first, wherever it stands in the line."""
    values = None
    for override in overrides:
        if _keys_of(override) in (["model"], ["model", "preset"]):
            replaced = _replaced_by_preset(mapping, apply_override({}, override)["model"])
            if replaced is not mapping:
                mapping = replaced
                values = replaced["model"]
    before = _is_reversed(mapping)
    for override in overrides:
        mapping = apply_override(mapping, override)
    name = mapping.get("name")
    is_named = any(_keys_of(override) == ["name"] for override in overrides)
    if _is_reversed(mapping) != before and isinstance(name, str) and not is_named:
        # The file names a run of the one direction, which a run of the other must not meet.
        mapping = {**mapping, "name": f"{name}-{'forward' if before else 'reverse'}"}
    mapping = _without_builtin(mapping, {tuple(_keys_of(override)[:2]) for override in overrides})
    # `model={preset: NAME}` and `tokenizer={…}` replace a whole section; the preset's values stay below it.
    if values is None:
        return mapping
    return _merge({"model": values, "tokenizer": {"joint": values["patches"] is None}}, mapping)


def _is_reversed(mapping: Mapping[str, Any]) -> bool:
    data = mapping.get("data")
    return isinstance(data, dict) and data.get("reverse") is True


def _keys_of(override: str) -> list[str]:
    return [key.strip() for key in override.partition("=")[0].split(".")]


def _without_builtin(mapping: dict[str, Any], given: set[tuple[str, ...]]) -> dict[str, Any]:
    """`_without_other_data` for overrides, whose first two keys are `given`. UserError where no validation is left."""
    data = mapping["data"] if ("data", "train") in given else None
    if not isinstance(data, dict):  # it was replaced since, with what is refused as no section
        return mapping
    below = {key: value for key, value in data.items() if ("data", key) not in given}
    dropped = below.keys() - _without_other_data({"data": below}, data)["data"].keys()
    if "validation" in dropped:
        raise UserError(
            "data.train was given, and data.validation is still the built-in corpus. Give data.validation too: "
            "data.validation='[{src: FILE, tgt: FILE}]'."
        )
    return {**mapping, "data": {key: value for key, value in data.items() if key not in dropped}}


def _replaced_by_preset(below: dict[str, Any], model: object) -> dict[str, Any]:
    """The inherited keys, changed by the preset that the section `model` names, if it names one."""
    name = model.get("preset") if isinstance(model, dict) else None
    return with_preset(below, name) if isinstance(name, str) else below


def _pop_base(mapping: dict[str, Any], path: Path) -> Path | None:
    """Take `extends` out of the mapping, and return the file that it names."""
    if "extends" not in mapping:
        return None
    file = mapping.pop("extends")
    if not isinstance(file, str) or not file:
        raise UserError(f"{path}: extends must be the name of one YAML file, such as extends: base.yaml.")
    try:
        return find_config(file, beside=path.parent)
    except UserError as error:
        raise UserError(f"{path}: extends: {error}") from None


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Maps merge; everything else, lists and null included, is replaced."""
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            merged[key] = _merge(below[key], above[key])
    return merged


def _read_map(path: Path) -> dict[str, Any]:
    content = copy.deepcopy(_parse(read_text(path), str(path)))
    if content is None:
        raise UserError(f"{path} is empty; a configuration has at least the sections data and training.")
    if not isinstance(content, dict):
        kind = "a list" if isinstance(content, list) else "a single value"
        raise UserError(f"{path} holds {kind}; a configuration is a map of keys such as data: and training:.")
    return content


_parse = lru_cache(maxsize=4)(parse_yaml)  # one start of `tmt translate` reads the file of its run twice


def read_text(path: Path) -> str:
    """The text of a YAML file that a user names. UserError where it cannot be read, is too large, or no UTF-8."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UserError(f"{path} is a pipe or a device, which may never end. Write it to a file first.")
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if len(raw) > MAX_BYTES:
        raise UserError(
            f"{path} is larger than {MAX_BYTES // 1024} KiB, which no configuration is; is it the right file?"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise UserError(f"{path} is UTF-16; save it as UTF-8.") from None
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; save it as UTF-8.") from None
