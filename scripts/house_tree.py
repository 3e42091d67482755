"""Writes docs/tree.md: every folder and module of the project, with the first sentence of its own description.

    python scripts/house_tree.py

Run it after adding, moving or renaming a module; `tests/test_docs.py` fails while the page is another.
"""

import ast
import json
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "tree.md"
WIDTH = 30  # of the column with names
HEAD = """# The tree

Every folder and module, with the first sentence of its own description. `python scripts/house_tree.py` writes this
page.
"""


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence, on one line."""
    line = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<!et al)\.(?:\s|$)", line)[0]


def said_by(path: Path) -> str:
    """What a module, a script, a config or a page says of itself."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return first_sentence(ast.get_docstring(ast.parse(text)) or "")
    if path.suffix == ".md":
        return text.partition("\n")[0].lstrip("# ")
    if path.suffix == ".ipynb":
        return "".join(json.loads(text)["cells"][0]["source"]).partition("\n")[0].lstrip("# ")
    if path.suffix == ".css":
        return first_sentence(text.partition("*/")[0].removeprefix("/*"))
    comments = [line.lstrip("# ") for line in text.splitlines() if re.match(r"# (?!yaml-)", line)]
    return first_sentence(" ".join(comments)) if comments and path.suffix in (".sh", ".yaml") else ""


def lines_below(folder: Path, depth: int) -> list[str]:
    """The lines of a folder's modules, and of the folders in it."""
    found = []
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.name.startswith((".", "_")) or path.suffix in (".png", ".typed", ".xz"):
            continue
        name = "  " * depth + path.name
        if path.is_file():
            found.append(f"{name:<{WIDTH}} {said_by(path)}".rstrip())
        elif (path / "__init__.py").is_file():
            found += [f"{name + '/':<{WIDTH}} {said_by(path / '__init__.py')}".rstrip(), *lines_below(path, depth + 1)]
    return found


def page() -> str:
    """The whole page."""
    text = HEAD
    for folder in ("transformer_mt", "configs", "scripts", "docs"):
        lines = "\n".join(lines_below(REPOSITORY / folder, 1))
        text += f"\n```text\n{folder}/\n{lines}\n```\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
