"""Environments of other programs, for the tests marked `foreign`: made once, and kept.

`TMT_FOREIGN` names the folder in which they are made and looked for; without it that is one in the system's folder for
temporary files. An environment sees this one's packages behind its own, so that torch is not fetched again.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from filelock import FileLock

ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
FOLDER = Path(os.environ.get("TMT_FOREIGN") or Path(tempfile.gettempdir()) / "transformer_mt_foreign")


def foreign_python(name: str, *packages: str, alone: bool = False) -> Path:
    """The Python of the environment `name`, made with these packages unless it is there. Where `alone`, it does not
    see the packages of this one.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = FOLDER / name
    python = folder / "bin" / "python"
    with FileLock(FOLDER / f"{name}.lock"):
        if not (folder / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            site = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
            if not alone:
                (Path(site.decode().strip()) / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True, env=ENVIRONMENT)
            (folder / "done").touch()
    return python


def ask(python: Path, script: Path, *arguments: str, stdin: str = "", environment: dict[str, str] | None = None) -> str:
    """What a script of ours prints there, with nothing of ours to import."""
    result = subprocess.run(
        [python, script, *arguments], input=stdin, capture_output=True, text=True, cwd=FOLDER,
        env={**ENVIRONMENT, **(environment or {})},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout
