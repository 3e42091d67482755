"""docs/notebook.ipynb runs: its cells of code in their order, in a Python of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import REPOSITORY

NOTEBOOK = REPOSITORY / "docs/notebook.ipynb"


def cells(kind: str) -> list[str]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the cells print, with seconds of training in place of minutes."""
    first, *others = cells("code")
    assert first.startswith("MINUTES = ")
    program = "\n".join(["MINUTES = 0.2", *others])
    folder: Path = tmp_path_factory.mktemp("notebook")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (folder / "runs/notebook/config.yaml").exists()
    return done.stdout


@pytest.mark.slow
def test_it_ends_in_scores_translations_and_log_probabilities(printed: str) -> None:
    lines = printed.removesuffix("\n").split("\n")
    assert any(line.startswith("BLEU ") and line.endswith("1,000 sentences") for line in lines)
    assert [line.split("  ")[-1] for line in lines[-3:]] == ["El gato come.", "El perro come.", "Gato el come."]
    assert all(float(line.split()[0]) < 0 for line in lines[-3:])


def test_its_stored_output_is_that_of_a_model_that_learned() -> None:
    """The page shows what a reader will get; it was run as a whole, and no cell failed."""
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in stored if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not any(output["output_type"] == "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    texts = "".join("".join(output.get("text", "")) for output in outputs)
    assert "BLEU 9" in texts
    assert not any(str(Path(root)) in texts for root in (REPOSITORY, Path.home()))
