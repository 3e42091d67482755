"""scripts/gpu_check.sh: every stage is in the report, whether or not it fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def gpu_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    command = ["bash", str(SCRIPTS / "gpu_check.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "status"), [("cpu", 0), ("cuda", 1)])
def test_a_gpu_check_reports_every_stage_whether_or_not_it_fails(device: str, status: int, tmp_path: Path) -> None:
    """What a GPU would run, on a CPU; and where there is no GPU, every stage says so and the next one runs."""
    done = gpu_check(str(tmp_path / "out"), "--device", device, "--smoke")
    assert done.returncode == status, done.stdout + done.stderr
    report = (tmp_path / "out/report.txt").read_text(encoding="utf-8")
    stages = re.findall(r"^== (\S+) ==\n\$ .*\n(?:.*\n)*?(ok|FAILED)", report, re.MULTILINE)
    expected = "ok" if device == "cpu" else "FAILED"
    asked = ("resume-bit-for-bit", "killed-and-resumed", "base", "base-translation")
    assert stages == [("device", "ok"), *((name, expected) for name in asked)]
    assert ("the same, bit for bit" in report) == (device == "cpu")


def test_a_gpu_check_of_some_stages_runs_no_other(tmp_path: Path) -> None:
    done = gpu_check(str(tmp_path / "out"), "--device", "cpu", "--smoke", "--only", "base-translation")
    assert done.returncode == 1  # there is no model
    report = (tmp_path / "out/report.txt").read_text(encoding="utf-8")
    assert re.findall(r"^== (\S+) ==$", report, re.MULTILINE) == ["device", "base-translation"]
    assert "1 stages failed" in report


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "bash scripts/gpu_check.sh OUT"),
        (("out", "--minutes", "nine"), "gpu_check.sh: --minutes is nine; give a whole number of 3 or more"),
        (("out", "--wheels", "/none"), "gpu_check.sh: there is no folder /none"),
        (("out", "--data"), "gpu_check.sh: --data needs a value"),
        (("out", "--only", "base,bass"), "gpu_check.sh: --only: there is no stage bass, but tests page"),
        (("out", "--only", "base,decode"), "gpu_check.sh: decode needs --data"),
    ],
)
def test_a_gpu_check_refuses_before_it_begins(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    done = gpu_check(*(str(tmp_path / "out") if part == "out" else part for part in arguments))
    assert done.returncode == 2
    assert expected in done.stderr
    assert not (tmp_path / "out").exists()
