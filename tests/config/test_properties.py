"""Whatever is done to a valid configuration, it loads or is a `UserError`; whatever loads, survives a dump."""

import contextlib
import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_mt.config.loading import dump_config, load_config, parse_run_config
from transformer_mt.config.yaml_text import parse_yaml
from transformer_mt.errors import UserError

BASE = """\
name: base_name
seed: 5
data:
  src_lang: en
  tgt_lang: "no"
  train: [{src: a.en, tgt: a.no}, {tsv: b.tsv}]
  validation: [{src: v.en, tgt: v.no}]
model: {d_model: 64, d_ff: 128, num_heads: 4}
training: {max_steps: 10, max_minutes: 5}
"""

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


@settings(max_examples=300, deadline=None)
@given(EDITS)
def test_any_edit_of_a_valid_mapping_loads_or_is_a_user_error(edits: list[tuple]):
    with contextlib.suppress(UserError):
        parse_run_config(edited(edits), "c.yaml")


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=150, deadline=None)
@given(st.lists(OVERRIDES, max_size=3))
def test_any_override_loads_or_is_a_user_error(overrides: list[str]):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.yaml"
        file.write_text(BASE, encoding="utf-8")
        with contextlib.suppress(UserError):
            load_config(str(file), overrides)
