"""Scripts run as a user runs them, a stand-in for the Python of another toolkit, and numbers out of tables."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY.parent / "shared"
SCRIPTS = REPOSITORY / "scripts"


def run(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPTS / script), *arguments], capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return done.stdout


def stub(path: Path, code: str) -> Path:
    """What stands for a Python that has other toolkits: asked for its modules it names none that it lacks."""
    asked = "import json, sys\nif sys.argv[1] == '-c':\n    sys.exit()\n"
    path.write_text(f"#!{sys.executable}\n{asked}{code}", encoding="utf-8")
    path.chmod(0o755)
    return path


def number(text: str) -> float:
    return float(text.replace(",", ""))
