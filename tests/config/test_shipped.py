"""The shipped YAML files are found from a checkout and from an installed package; a wheel carries what is no module."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from transformer_mt.config.loading import shipped_configs

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "transformer_mt"


def test_a_checkout_has_them_beside_the_package():
    assert shipped_configs() == ROOT / "configs"


def test_an_installed_package_has_them_inside(tmp_path: Path):
    installed = tmp_path / "site" / "transformer_mt"
    shutil.copytree(PACKAGE / "config", installed / "config")
    shutil.copy(PACKAGE / "errors.py", installed)
    (installed / "__init__.py").touch()
    (installed / "configs").mkdir()
    (installed / "configs" / "quick.yaml").write_text(
        "data: {train: [{tsv: a}], validation: [{tsv: b}]}\ntraining: {max_steps: 1}\n", encoding="utf-8"
    )
    code = (
        "from transformer_mt.config.loading import load_config\n"
        "loaded = load_config('quick.yaml')\n"
        "print(loaded.path)\n"
        "print(loaded.note)\n"
    )
    paths = [str(tmp_path / "site"), *sys.path]
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    path, note = result.stdout.splitlines()
    assert path == str(installed / "configs" / "quick.yaml")
    assert note == f"quick.yaml: there is none in the working folder; taking the shipped {path}"


def test_every_package_is_listed_for_the_wheel():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    packages = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert packages - set(listed) == set()


@pytest.mark.slow
def test_a_wheel_carries_the_yaml_files_the_page_and_the_types(tmp_path: Path):
    pytest.importorskip("setuptools", minversion="77", reason="building without isolation needs it installed")
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in ("transformer_mt", "configs"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        str(tree),
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
    ]
    subprocess.run(command, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    shipped = {f"transformer_mt/configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml")}
    assert shipped <= set(names)
    assert {"transformer_mt/py.typed", "transformer_mt/inspect/attention_page.html"} <= set(names)
    assert not [name for name in names if name.startswith("configs")]
