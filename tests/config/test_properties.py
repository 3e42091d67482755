"""Whatever is done to a valid configuration, it says what it now says, or is a `UserError` that names the place."""

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from attempts import attempt
from base_config import BASE
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transformer_mt.config.loading import dump_config, load_config, parse_run_config
from transformer_mt.config.yaml_text import parse_yaml

FULL: dict[str, Any] = parse_run_config(cast("dict", parse_yaml(BASE, "base")), "base").model_dump()


def places(node: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**5000), 2**63, 0, 1, -1]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["no", "1e-4", "all", "cosine", "\ud800", "\0", "bpe", "cuda:0"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.one_of(st.text(max_size=5), st.integers(0, 2)), st.integers(), max_size=2),
)
ODD_KEYS = st.one_of(
    st.text(max_size=12), st.integers(), st.sampled_from(["n_heads", "lr", "__class__", "model", "\ud800"])
)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(sorted(places(FULL), key=str)), st.sampled_from(["set", "rename", "drop"]), ODD_VALUES, ODD_KEYS
    ),
    min_size=1,
    max_size=3,
)


def edited(edits: list[tuple]) -> dict[str, Any]:
    mapping = copy.deepcopy(FULL)
    for path, kind, value, key in edits:
        node: Any = mapping
        try:
            for step in path[:-1]:
                node = node[step]
            old = node.pop(path[-1])
        except (KeyError, IndexError, TypeError, AttributeError):  # an earlier edit took it away
            continue
        if kind != "drop" and isinstance(node, list):
            node.insert(path[-1], value)
        elif kind == "set":
            node[path[-1]] = value
        elif kind == "rename" and isinstance(node, dict):
            node[key] = old
    return mapping


def written(path: tuple[str | int, ...]) -> str:
    """The path as an error names it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def at(mapping: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        mapping = mapping[step]
    return mapping


def plain(value: Any) -> Any:
    """As JSON has it: tuples are lists, and 1.0 is 1."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def says(loaded: Any, given: Any) -> bool:
    """Whether everything that was given is in what was loaded, which may have defaults beside it."""
    if isinstance(given, dict) and isinstance(loaded, dict):
        return all(key in loaded and says(loaded[key], value) for key, value in given.items())
    if isinstance(given, list) and isinstance(loaded, list):
        return len(given) == len(loaded) and all(map(says, loaded, given))
    if isinstance(given, str) and isinstance(loaded, dict):  # a section that may be named by its one needed value
        return loaded.get("run") == given
    return type(given) in (type(loaded), int) and (loaded == given or loaded != loaded)


def names_one_of(message: str, edits: list[tuple]) -> bool:
    """Whether an error tells where to look: at a path that was edited, or one above or below it, or, where a rule binds
    several keys, at the key's own name."""
    for path, kind, _, key in edits:
        for place in [path, (*path[:-1], key)] if kind == "rename" else [path]:
            names = [written(place[:length]) for length in range(1, len(place) + 1)]
            own = place[-1] if isinstance(place[-1], str) and len(place[-1]) > 1 else "\0"
            if any(f"{name}:" in message or f"{name}." in message for name in names) or own in message:
                return True
    return "a key must be text" in message or "a character that is no text" in message


@settings(max_examples=300)
@given(EDITS)
@example([(("decoding", "to"), "set", "\ud800", "")])
@example([(("training", "init_from"), "set", "0", "")])
def test_any_edit_of_a_valid_mapping_is_in_the_config_or_named(edits: list[tuple]):
    mapping = edited(edits)
    config, refusal = attempt(lambda: parse_run_config(mapping, "c.yaml"))
    if refusal is not None:
        assert refusal.startswith("c.yaml: ")
        assert names_one_of(refusal, edits), refusal
    else:
        assert config is not None
        assert says(plain(config.model_dump()), plain(mapping))


@settings(max_examples=150)
@given(st.sampled_from(sorted(places(FULL), key=str)), ODD_KEYS)
def test_a_key_that_is_renamed_is_unknown_or_another_one(path: tuple[str | int, ...], key: object):
    mapping = edited([(path, "rename", None, key)])
    if isinstance(path[-1], int) or key == path[-1]:
        return
    config, refusal = attempt(lambda: parse_run_config(mapping, "c.yaml"))
    if refusal is not None:
        new = written((*path[:-1], str(key)))
        said = [f"{written(path)}: missing", f"{new}:", f"{new}.", "holds a character that is no text"]
        # A rule that binds it to another key, or to none.
        said += [f"{written(path[:-1])}: {key} ", f"{written(path[:-1])}: name exactly one source"]
        assert any(part in refusal for part in said), refusal
    else:  # the new name is one that the section has
        assert config is not None
        assert at(plain(config.model_dump()), (*path[:-1], str(key))) == at(FULL, path)


# Text


def reads_as(ours: Any, text: Any) -> bool:
    """Whether our reading of a YAML text is that of PyYAML's base loader, to which every scalar is its own letters."""
    if isinstance(text, dict):
        return isinstance(ours, dict) and ours.keys() == text.keys() and all(reads_as(ours[k], text[k]) for k in text)
    if isinstance(text, list):
        return isinstance(ours, list) and len(ours) == len(text) and all(map(reads_as, ours, text))
    if isinstance(ours, bool):
        return text.lower() == str(ours).lower()
    if ours is None:
        return text in ("", "~", "null", "Null", "NULL")
    if isinstance(ours, int | float):
        return float(text.replace(".inf", "inf").replace(".nan", "nan")) == ours or ours != ours
    return ours == text


CHANGES = st.lists(
    st.tuples(
        st.integers(0, len(BASE)),
        st.integers(0, 3),
        st.sampled_from(
            [*"abz019:-[]{}#&*!|>'\"%@`,?\n\t .~<=", "", "\r\n", "é", "\u2028", "\x85", "\0", "\ufeff", "en"]
        ),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=200)
@given(CHANGES)
def test_any_change_of_the_text_is_read_as_it_stands_or_named(changes: list[tuple[int, int, str]]):
    text = BASE
    for place, length, new in changes:
        text = text[:place] + new + text[place + length :]
    content, refusal = attempt(lambda: parse_yaml(text, "c.yaml"))
    if refusal is not None:
        assert refusal.startswith("c.yaml")
        assert "\n" not in refusal
        return
    if "<<" not in text:
        assert reads_as(content, yaml.load(text, yaml.BaseLoader))
    if isinstance(content, dict):
        config, refusal = attempt(lambda: parse_run_config(content, "c.yaml"))
        assert (
            refusal.startswith("c.yaml: ") if refusal else config and says(plain(config.model_dump()), plain(content))
        )


SAME = {
    "mark": lambda text: "\ufeff" + text,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "comments": lambda text: text.replace("\n", "  # ein Wort\n\n"),
    "order": lambda text: yaml.safe_dump(yaml.safe_load(text), sort_keys=True),
    "flow": lambda text: yaml.safe_dump(yaml.safe_load(text), default_flow_style=True),
    "quotes": lambda text: text.replace("en", "'en'", 1).replace("base_name", '"base\\u005fname"'),
    "anchors": lambda text: text.replace("{src: v.en,", "&v {src: v.en,") + "validation: &w {patience: 3}\n",
    "document": lambda text: f"%YAML 1.1\n---\n{text}...\n",
    "spaces": lambda text: "\n\n" + text.replace("  ", "      ") + "   \n",
}


@pytest.mark.parametrize("first", SAME)
@pytest.mark.parametrize("second", [None, "mark", "crlf", "comments"])
def test_what_does_not_change_the_meaning_changes_nothing(first: str, second: str | None, tmp_path: Path):
    text = SAME[first](BASE)
    text = SAME[second](text) if second is not None and second != first else text
    (tmp_path / "c.yaml").write_bytes(text.encode())
    expected = copy.deepcopy(FULL)
    if first == "anchors":
        expected["validation"]["patience"] = 3
    assert load_config(str(tmp_path / "c.yaml")).config.model_dump() == expected


@settings(max_examples=150)
@given(
    st.sampled_from(["data.root", "data.cache_dir", "data.src_lang"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
)
def test_any_text_survives_a_dump(path: str, text: str):
    section, key = path.split(".")
    config = parse_run_config({**FULL, section: {**FULL[section], key: text}}, "c.yaml")
    assert parse_run_config(cast("dict", parse_yaml(dump_config(config), "d.yaml")), "d.yaml") == config


OVERRIDES = st.one_of(
    st.text(max_size=20),
    st.builds(
        "{}={}".format,
        st.sampled_from([".".join(map(str, path)) for path in places(FULL)]) | st.text(".ab0", max_size=8),
        st.text("ab:-[]{}#&*!|>'\"%@`,?\n\t 0e.~<", max_size=12) | st.text(max_size=8),
    ),
)


@settings(max_examples=150)
@given(st.lists(OVERRIDES, max_size=3))
def test_any_override_is_in_the_config_or_named(overrides: list[str]):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.yaml"
        file.write_text(BASE, encoding="utf-8")
        loaded, refusal = attempt(lambda: load_config(str(file), overrides))
        if loaded is None:
            assert refusal is not None
            assert str(file) in refusal or any(repr(override) in refusal for override in overrides)
        elif overrides:  # the last one wins, whatever stands before it
            path, _, value = overrides[-1].partition("=")
            keys = [int(key) if key.strip().isdecimal() else key.strip() for key in path.split(".")]
            config = plain(loaded.config.model_dump())
            assert keys[:2] == ["model", "preset"] or says(at(config, tuple(keys)), plain(parse_yaml(value, "value")))
