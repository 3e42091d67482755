"""Who may import whom (see CONTRIBUTING.md), and what importing must not load."""

import ast
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import torch

PACKAGE = Path(__file__).parent.parent / "transformer_mt"
BELOW = {
    "config": set(),
    "machine": set(),
    "data": {"config", "machine"},
    "model": {"config", "machine"},
    "decoding": {"config", "machine", "data", "model"},
    "inspect": {"config", "machine", "data", "model", "decoding"},
    "export": {"config", "machine", "data", "model", "decoding"},
    "evaluation": {"config", "machine", "data", "model", "decoding"},
    "training": {"config", "machine", "data", "model", "decoding", "inspect", "evaluation"},
    "cli": {"config", "machine", "data", "model", "decoding", "inspect", "export", "evaluation", "training"},
}  # fmt: skip
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def imported_names(path: Path) -> set[str]:
    """What a file names in an import, those inside functions included: `transformer_mt.data.files.decode`."""
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
    return {name.split(".")[1] for name in imported_names(path)} - {"errors", "__version__"}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_one_way(path: Path) -> None:
    if len(path.parts) == 1:
        return  # the package's own door
    part = path.parts[0]
    assert imported_packages(path) - {part} <= BELOW[part]


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


def test_search_knows_no_model() -> None:
    for name in ("search.py", "beam.py"):
        assert imported_packages(Path("decoding") / name) <= {"config", "decoding"}


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
