"""Who may import whom (see CONTRIBUTING.md), and what importing must not load."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import torch

PACKAGE = Path(__file__).parent.parent / "transformer_mt"
BELOW = {
    "config": set(),
    "machine": set(),
    "pages": set(),
    "storage": {"config"},
    "data": {"config", "machine", "storage"},
    "aligning": {"config", "machine", "storage", "data"},
    "checking": {"config", "machine", "storage", "data", "aligning", "pages"},
    "model": {"config", "machine"},
    "decoding": {"config", "machine", "storage", "data", "aligning", "model"},
    "finishing": {"config", "machine", "storage", "data", "aligning", "model", "decoding", "markup"},
    "synthesis": {"config", "machine", "storage", "data", "aligning", "model", "decoding"},
    "markup": {"config", "machine", "storage", "data", "aligning", "model", "decoding"},
    "inspect": {"config", "machine", "storage", "data", "aligning", "model", "decoding", "pages"},
    "export": {"config", "machine", "storage", "data", "aligning", "model", "decoding"},
    "evaluation": {"config", "machine", "storage", "data", "aligning", "model", "decoding"},
    "diagnosing": {"storage"},
    "training": {
        "config", "machine", "storage", "data", "checking", "model", "decoding", "inspect", "evaluation", "diagnosing",
    },
    "serving": {
        "config", "machine", "storage", "data", "aligning", "model", "decoding", "inspect", "markup", "pages",
    },
    "explaining": {
        "config", "machine", "storage", "data", "aligning", "model", "decoding", "inspect", "pages",
    },
    "behaviour": {
        "config", "machine", "storage", "data", "aligning", "model", "decoding", "checking", "inspect", "pages",
    },
    "judging": {
        "config", "machine", "storage", "data", "aligning", "model", "decoding", "inspect", "evaluation", "training",
        "pages",
    },
    "watching": {
        "config", "machine", "storage", "data", "model", "decoding", "inspect", "evaluation", "training", "pages",
        "checking", "diagnosing",
    },
    "cli": {
        "config", "machine", "storage", "data", "aligning", "model", "decoding", "inspect", "export", "evaluation",
        "finishing", "markup", "training", "judging", "pages", "serving", "synthesis", "checking",
        "watching", "diagnosing", "behaviour", "explaining",
    },
}  # fmt: skip
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


@cache
def imported_names(path: Path) -> set[str]:
    """What a file names in an import, those inside functions included: `transformer_mt.data.sources.files.decode`."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("transformer_mt.")}


def imported_packages(path: Path) -> set[str]:
    """The parts of this project that a file imports."""
    return {name.split(".")[1] for name in imported_names(path)} - {"errors", "paths", "plurals", "__version__"}


def test_imports_go_one_way() -> None:
    """All but those of modules in no part, which are the package's own door."""
    within = [(path, path.parts[0]) for path in MODULES if len(path.parts) > 1]
    upwards = {str(path): imported_packages(path) - BELOW[part] - {part} for path, part in within}
    assert {path: parts for path, parts in upwards.items() if parts} == {}


def test_what_is_at_a_path_is_asked_of_paths_alone() -> None:
    """`Path` itself says other things from Python 3.14 on."""
    found = []
    for path in MODULES:
        for node in ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
                found += [f"{path}:{node.lineno}"] if node.func.attr in ("exists", "is_file", "is_dir") else []
    assert found == []


def test_the_table_of_contributing_is_the_one_that_is_tested() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+) \| (.+) \|$", text.partition("## Who may import whom")[2].partition("\n## ")[0], re.M)
    table = {}
    for parts, allowed in rows:
        below = set(BELOW) - {"cli"} if allowed == "everything" else set(re.findall(r"`(\w+)`", allowed))
        table |= dict.fromkeys(re.findall(r"`(\w+)`", parts), below)
    assert table == BELOW


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = {".".join(("transformer_mt", *path.with_suffix("").parts)): path for path in MODULES}
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = imported_names(path)
        imports[module] = (names | {name.rpartition(".")[0] for name in names}) & set(modules) - {module}
    assert imports["transformer_mt.machine.joining"] >= {"transformer_mt.machine.processes"}  # inside functions too
    list(TopologicalSorter(imports).static_order())  # raises CycleError, which names the circle


def imports_by_string(code: str) -> list[str]:
    """What is imported, or looks as if it were, by a name in a string, which `imported_names` does not see."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name | ast.Attribute | ast.alias):
            name = getattr(node, {ast.Name: "id", ast.Attribute: "attr", ast.alias: "name"}[type(node)])
            found += [name] * (name in {"import_module", "__import__", "run_module"})
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] * is_module(node.value)
    return found


def is_module(name: str) -> bool:
    """Whether a full name is that of a module or a package of this project."""
    if not re.fullmatch(r"transformer_mt(\.\w+)+", name):
        return False
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('importlib.import_module(f"transformer_mt.{name}")', ["import_module"]),
        ("from importlib import import_module", ["import_module"]),
        ('__import__("numpy")', ["__import__"]),
        ('find_spec("transformer_mt.model.cpu")', ["transformer_mt.model.cpu"]),
        ('load(name="transformer_mt.decoding.translator")', ["transformer_mt.decoding.translator"]),
        ('find_spec("numba"), "transformer_mt.json"', []),
    ],
)
def test_an_import_by_a_string_is_found(code: str, found: list[str]) -> None:
    assert imports_by_string(code) == found


def test_nothing_is_imported_by_a_string() -> None:
    found = {str(path): imports_by_string((PACKAGE / path).read_text(encoding="utf-8")) for path in MODULES}
    assert {path: names for path, names in found.items() if names} == {}


def test_search_knows_no_model() -> None:
    for path in (PACKAGE / "decoding/search").glob("*.py"):
        names = imported_names(path.relative_to(PACKAGE))
        allowed = ("transformer_mt.config.", "transformer_mt.decoding.", "transformer_mt.errors.")
        assert all(name.startswith(allowed) for name in names), path


def test_every_part_has_a_rule() -> None:
    parts = {path.parts[0] for path in MODULES if len(path.parts) > 1}
    assert parts == set(BELOW)


@pytest.mark.parametrize("name", ["transformer_mt", "transformer_mt.cli.main", "transformer_mt.data.builtin"])
def test_these_load_no_torch(name: str) -> None:
    code = f"import {name}, sys; assert not {{'torch', 'datasets'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_test_sees_a_gpu_that_did_not_ask_for_it(pytestconfig: pytest.Config) -> None:
    """Those marked `gpu` do, by `-m gpu`; the device `auto` would be another one in all others."""
    assert pytestconfig.option.markexpr != "gpu", "this test is none of them"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert not torch.cuda.is_available()
