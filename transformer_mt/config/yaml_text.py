"""YAML as this project reads and writes it.

Only plain data is read. Numbers and booleans are those of YAML 1.2. Every error has its line and column.

Only `true` and `false` are booleans, so `src_lang: no` is Norwegian. `1e-4`, `.5` and `1E5` are numbers. Values that
dialects of YAML read differently stay text: `1_000`, `012`, `0o17`, `0x1F`, `12:30`, `2024-01-31`.
"""

import re
from collections.abc import Hashable, Sequence
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.events import AliasEvent, Event
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from transformer_mt.errors import UserError

MAX_DEPTH = 32
MAX_NODES = 20_000

_TAG = "tag:yaml.org,2002:"
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?\Z"
    r"|[-+]?[0-9]+[eE][-+]?[0-9]+\Z"
    r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
)
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_IMPLICIT = [
    ("bool", _BOOL, "tTfF"),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("null", _NULL, ["~", "n", "N", ""]),
    ("merge", re.compile(r"<<\Z"), "<"),
]
_MAX_DIGITS = 100
_MAX_PROBLEM = 200
_LINE_BREAKS = re.compile("[\n\r\x85\u2028\u2029]")
_UNUSABLE = re.compile("[\0\ud800-\udfff]")

# What PyYAML says, and what a user can do about it.
_WAYS_OUT = {
    "'\\t'": "indent with spaces, not with tabs",
    "mapping values are not allowed here": "put a value that holds ': ' in quotes, and line up the keys of a map",
    "<block end>": "line up the keys of a map, and the dashes of a list",
    "could not find expected ':'": "write a key, a colon, a space and its value",
    "cannot start any token": "put a value that begins with this character in quotes",
    "unexpected end of stream": "close the quotes or brackets",
    "undefined alias": "put a value that begins with * in quotes",
}


class _PlainLoader(yaml.SafeLoader):
    """Refuses what no configuration needs: duplicate keys, keys that are not text, other tags, bombs and circles."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._num_nodes = 0
        self._depth = 0
        self._deepest = 0
        self._open_anchors: set[str] = set()
        self._extents: dict[str, tuple[int, int]] = {}  # anchor -> nodes and levels below it, aliases written out

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Compose as PyYAML does, and count the values of each alias as if they were written out."""
        event = self.peek_event()
        if isinstance(event, AliasEvent):
            if event.anchor in self._open_anchors:
                raise ComposerError(None, None, f"*{event.anchor} stands inside &{event.anchor}", event.start_mark)
            self._count(event, *self._extents.get(event.anchor, (1, 0)))
            return super().compose_node(parent, index)
        anchor = getattr(event, "anchor", None)
        num_before, deepest_before = self._num_nodes, self._deepest
        self._depth += 1
        self._deepest = self._depth
        self._count(event, 1, 0)
        if anchor is not None:
            self._open_anchors.add(anchor)
        node = super().compose_node(parent, index)
        if anchor is not None:
            self._open_anchors.discard(anchor)
            self._extents[anchor] = self._num_nodes - num_before, self._deepest - self._depth + 1
        self._deepest = max(deepest_before, self._deepest)
        self._depth -= 1
        return node

    def _count(self, event: Event, num_nodes: int, num_levels: int) -> None:
        self._num_nodes += num_nodes
        self._deepest = max(self._deepest, self._depth + num_levels)
        if self._num_nodes > MAX_NODES:
            raise ComposerError(None, None, f"more than {MAX_NODES} values, aliases written out", event.start_mark)
        if self._deepest > MAX_DEPTH:
            raise ComposerError(None, None, f"more than {MAX_DEPTH} levels of nesting", event.start_mark)

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        """Refuse keys that are not text, and keys that stand there twice."""
        mapping = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in mapping.value:
            if not isinstance(key, ScalarNode) or key.tag not in (_TAG + "str", _TAG + "merge"):
                shown = (
                    f"{key.value} is not; put it in quotes" if isinstance(key, ScalarNode) else "a list or map is not"
                )
                raise ComposerError(None, None, f"a key must be text, and {shown}", key.start_mark)
            if key.value in lines:
                problem = f"the key {key.value!r} is there twice, first in line {lines[key.value]}"
                raise ComposerError(None, None, problem, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        return mapping


def _construct_bool(loader: _PlainLoader, node: Node) -> bool:
    return _scalar(loader, node, _BOOL, "true or false").lower() == "true"


def _construct_int(loader: _PlainLoader, node: Node) -> int:
    text = _scalar(loader, node, _INT, "a whole number")
    if len(text) > _MAX_DIGITS:
        raise ConstructorError(None, None, f"a number of {len(text)} digits", node.start_mark)
    return int(text)


def _construct_float(loader: _PlainLoader, node: Node) -> float:
    text = _scalar(loader, node, re.compile(f"{_FLOAT.pattern}|{_INT.pattern}"), "a number").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _construct_str(loader: _PlainLoader, node: Node) -> str:
    text = _scalar(loader, node, re.compile(""), "text")
    if unusable := _UNUSABLE.search(text):
        problem = f"the character U+{ord(unusable[0]):04X}, which no file name or sentence can hold"
        raise ConstructorError(None, None, problem, node.start_mark)
    return text


def _construct_null(loader: _PlainLoader, node: Node) -> None:
    _scalar(loader, node, _NULL, "null")


def _refuse_tag(loader: _PlainLoader, node: Node) -> Hashable:
    tag = node.tag.replace(_TAG, "!!")
    raise ConstructorError(None, None, f"the tag {tag} is not allowed: only plain data is read", node.start_mark)


def _scalar(loader: _PlainLoader, node: Node, pattern: re.Pattern[str], needed: str) -> str:
    """The text of a scalar, whose tag may have been written by hand (`!!int abc`)."""
    if not isinstance(node, ScalarNode):
        raise ConstructorError(None, None, f"a list or a map is not {needed}", node.start_mark)
    text = str(loader.construct_scalar(node))
    if not pattern.match(text):
        raise ConstructorError(None, None, f"{text!r} is not {needed}", node.start_mark)
    return text


_PlainLoader.yaml_implicit_resolvers = {}
_PlainLoader.yaml_constructors = {
    _TAG + "bool": _construct_bool,
    _TAG + "int": _construct_int,
    _TAG + "float": _construct_float,
    _TAG + "str": _construct_str,
    _TAG + "null": _construct_null,
    _TAG + "seq": yaml.SafeLoader.construct_yaml_seq,
    _TAG + "map": yaml.SafeLoader.construct_yaml_map,
    None: _refuse_tag,
}


class _Writer(yaml.SafeDumper):
    """Quotes text that this loader or one for YAML 1.1 would not read as text. A map in a list takes one line."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)

    def represent_text(self, text: str) -> ScalarNode:
        escaped = _LINE_BREAKS.search(text)  # PyYAML folds some of them into spaces, unless they are escaped
        return self.represent_scalar(_TAG + "str", text, style='"' if escaped else None)

    def represent_short_list(self, data: list) -> SequenceNode:
        has_maps = any(isinstance(item, dict) for item in data)
        node = self.represent_sequence(_TAG + "seq", data, flow_style=not has_maps)
        for item in node.value:
            if isinstance(item, MappingNode):
                item.flow_style = True
        return node


_Writer.add_representer(str, _Writer.represent_text)
_Writer.add_representer(list, _Writer.represent_short_list)
for _name, _pattern, _first in _IMPLICIT:
    _PlainLoader.add_implicit_resolver(_TAG + _name, _pattern, list(_first))
    _Writer.add_implicit_resolver(_TAG + _name, _pattern, list(_first))


def parse_yaml(text: str, where: str) -> object:
    """The plain data in `text`: dicts with text keys, lists, text, numbers, booleans and None.

    Raises:
        UserError: naming `where`, the line, the column and the problem.
    """
    try:
        return _PlainLoader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{where}{place}: {_explain(error)}.") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed"
        raise UserError(f"{where}, line {line}, column {column}: {problem}.") from None
    except (ValueError, OverflowError) as error:  # an escape beyond Unicode, a version of 5000 digits
        raise UserError(f"{where}: not valid YAML ({error}).") from None


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line, from 1, of every key in `text`, which `parse_yaml` reads without an error, by the keys that lead to it.
    What stands inside lists has none.
    """
    lines: dict[tuple[str, ...], int] = {}

    def walk(node: Node | None, above: tuple[str, ...]) -> None:
        """Add the keys below a node to which the keys `above` lead. A key of the map itself beats a merged one."""
        if isinstance(node, SequenceNode):  # of maps that are merged in
            for item in node.value:
                walk(item, above)
        if not isinstance(node, MappingNode):
            return
        merged = [value for key, value in node.value if key.tag == _TAG + "merge"]
        for key, value in node.value:
            if key.tag != _TAG + "merge":
                lines.setdefault((*above, key.value), key.start_mark.line + 1)
                if isinstance(value, MappingNode):
                    walk(value, (*above, key.value))
        for value in merged:
            walk(value, above)

    walk(_PlainLoader(text).get_single_node(), ())
    return lines


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line, from 1, of what a path of keys and numbers leads to in a text that `parse_yaml` has read; where it
    leads beyond what is there, of the last thing on the way.
    """
    node = _PlainLoader(text).get_single_node()
    line = 0 if node is None else node.start_mark.line
    for part in path:
        if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
        elif isinstance(node, MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line, found[1]
        else:
            break
    return line + 1


def _explain(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "not valid YAML"
    if problem.startswith(("but", "expected")) and error.context:
        problem = f"{error.context}, {problem}"
    way_out = next((way_out for said, way_out in _WAYS_OUT.items() if said in problem), None)
    if len(problem) > _MAX_PROBLEM:  # such as a megabyte of text in the place of a number
        problem = f"{problem[: _MAX_PROBLEM // 2]} ... {problem[-_MAX_PROBLEM // 2 :]}"
    return f"{problem}; {way_out}" if way_out else problem


def write_yaml(data: dict) -> str:
    """`data` as YAML that `parse_yaml` reads back as equal data, unicode kept."""
    return yaml.dump(data, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=1_000_000)
