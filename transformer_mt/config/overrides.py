"""Overrides from the command line: `model.d_model=256`, `data.train.0.src=train.en`."""

import re
from typing import Any

from transformer_mt.config.yaml_text import MAX_DEPTH, parse_yaml
from transformer_mt.errors import UserError

_EXAMPLE = "an override looks like training.max_steps=100 or data.train.0.src=train.en"


def apply_override(mapping: dict[str, Any], override: str) -> dict[str, Any]:
    """A copy of `mapping` with one key set. `mapping` itself does not change.

    The part behind the first `=` is YAML, and null takes a value away; nothing at all is refused, since an unset
    variable of a shell would take one away in silence. Maps that are missing on the way are made. An entry
    of a list is named by its number, counted from 0, and must exist.

    Raises:
        UserError: the override is malformed, or leads through something that is neither a map nor a list.
    """
    path, equals, value = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        raise UserError(f"{override!r} is not an override; {_EXAMPLE}.")
    if not value.strip():
        raise UserError(f"{override!r} has nothing behind the =; give a value, or null to take it away.")
    if keys == ["extends"]:
        raise UserError(f"{override!r}: extends belongs into the file; name the other file with --config instead.")
    return _set(mapping, keys, _parse_value(override, value), override)


def _parse_value(override: str, value: str) -> object:
    """The value of an override. Unlike in a file, ` #` must not silently cut it off."""
    if re.search(r"(^|\s)#", value) and not value.lstrip().startswith(("'", '"', "[", "{")):
        raise UserError(f"{override!r}: '#' begins a comment in YAML; put the value in quotes, inside the shell's own.")
    return parse_yaml(value, f"the value of {override!r}")


def _set(node: object, keys: list[str], value: object, override: str, done: tuple[str, ...] = ()) -> Any:
    if not keys:
        return value
    key, rest, path = keys[0], keys[1:], (*done, keys[0])
    if isinstance(node, list):
        index = _index(node, key, override, done)
        return [*node[:index], _set(node[index], rest, value, override, path), *node[index + 1 :]]
    if node is None and done and _is_number(key):
        where = ".".join(done)
        raise UserError(f"{override!r}: {where} has no entry {key}; set the whole list, as in {where}=[...].")
    if node is None or isinstance(node, dict):
        below = node or {}
        return {**below, key: _set(below.get(key), rest, value, override, path)}
    raise UserError(f"{override!r}: {'.'.join(done)} is a single value, so there is no {'.'.join(path)}.")


def _index(entries: list, key: str, override: str, done: tuple[str, ...]) -> int:
    if not _is_number(key) or int(key) >= len(entries):
        numbers = f"its entries are numbered 0 to {len(entries) - 1}" if entries else "it is empty"
        raise UserError(f"{override!r}: {'.'.join(done)} is a list without an entry {key!r}; {numbers}.")
    return int(key)


def _is_number(key: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", key) is not None
