"""What a user of `tmt translate` can get wrong is one sentence, told early, and leaves what was there."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "nowhere", "a"], "nowhere is not the folder of a run"),
        (["--run", "runs/toy/checkpoints/step_1200", "a"], "Did you mean runs/toy?"),
        (["--checkpoint", "step_7", "a"], "has no checkpoint 'step_7'; there are "),
        (["--checkpoint", "average", "a"], "Make one with `tmt average runs/toy --last 1`"),
        (["--beam-size", "2147483647", "a"], "A beam of 2,147,483,647 takes "),
        (["--input", "none.txt"], "none.txt cannot be read: No such file"),
        (["--input", "toy.yaml", "a"], "Sentences and --input were both given"),
        (["--input", "toy.yaml", "-"], "Sentences and --input were both given"),
        (["--input", "toy.yaml", "--output", "toy.yaml"], "is the input itself"),
        (["--output", "no/such/folder", "a"], "no/such/folder cannot be written"),
        (["--beam-size", "0", "a"], "beam_size: 0 is not allowed; must be at least 1"),
        (["--n-best", "3", "--beam-size", "2", "a"], "Use beam_size 3 or more"),
        (["--length-penalty", "-1", "a"], "length_penalty: -1.0 is not allowed; must be at least 0"),
        (["--length-penalty", "nan", "a"], "length_penalty: nan is not allowed; must be a finite number"),
        (["--device", "cuda:x", "a"], "'cuda:x' is not a device"),
        (["--device", "cuda:7", "a"], "CUDA devices. Use auto or cpu"),
        (["--device", "tpu", "a"], "is not a device"),
        (["--precision", "fp8", "a"], "precision: 'fp8' is not one of fp32, bf16, fp16, int8, auto"),
        (["--runs", "data", "a"], "There is no trained run in"),
    ],
)
def test_mistakes_get_one_clear_sentence(call, arguments: list[str], message: str) -> None:
    result = call("translate", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_the_name_of_a_file_is_translated_and_remarked_on(call) -> None:
    result = call("translate", "--run", "runs/toy", "one.", "toy.yaml", "one " * 300)
    assert result.returncode == 0
    assert result.stdout.count("\n") == 3
    assert result.stderr.startswith("toy.yaml is a file; to translate its lines: --input toy.yaml\n")
    assert "is a file" not in call("translate", "one.").stderr


def test_a_damaged_run_is_a_user_error(call, trained: Path, tmp_path: Path) -> None:
    import shutil

    for file in ("model.safetensors", "state.json"):
        copy = tmp_path / file
        shutil.copytree(trained / "runs" / "toy", copy)
        damaged = copy / "checkpoints" / "step_1200" / file
        damaged.write_bytes(damaged.read_bytes()[:-20])
        result = call("translate", "--run", str(copy), "one.")
        assert result.returncode == 2
        assert f"{file}" in result.stderr
        assert "damaged" in result.stderr
    named = call("translate", "--run", str(tmp_path / "state.json"), "--checkpoint", "step_1200", "seven eight.")
    assert named.stdout == "ocho siete.\n", "a damaged state stops nobody from naming a step"


def test_help_answers_without_torch(tmt) -> None:
    code = (
        "import sys\nfrom transformer_mt.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as e:\n    assert e.code == 0\n"
        "bad = {'torch', 'datasets', 'pydantic', 'yaml', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "translate" in result.stdout


def test_options_that_do_not_go_together_are_told_without_torch(trained: Path) -> None:
    code = (
        "import sys\nfrom transformer_mt.cli.main import app\n"
        "from transformer_mt.errors import UserError\n"
        "try:\n    app(['translate', '--html', '--prefix', 'tab', 'a'], standalone_mode=False)\n"
        "except UserError as error:\n    assert '--html and --prefix' in str(error)\n"
        "else:\n    raise AssertionError\n"
        "assert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=trained)
    assert result.returncode == 0, result.stderr


def test_a_command_that_fails_leaves_the_output_as_it_was(call, trained: Path) -> None:
    (trained / "old.txt").write_text("precious\n")
    assert call("translate", "--run", "nowhere", "--input", "toy.yaml", "--output", "old.txt").returncode == 2
    assert call("translate", "--beam-size", "0", "--input", "toy.yaml", "--output", "old.txt").returncode == 2
    assert (trained / "old.txt").read_text() == "precious\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_under_the_output(call, trained: Path) -> None:
    result = call("translate", "--output", "/dev/full", "seven eight.")
    assert result.returncode == 2
    assert "/dev/full cannot be written: No space left on device. It has the translations of no line" in result.stderr
    command = f"env -u PYTHONUNBUFFERED {sys.executable} -m transformer_mt translate 'seven eight.' > /dev/full"
    result = subprocess.run(["bash", "-c", command], cwd=trained, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.endswith(
        "tmt: Standard output cannot be written: No space left on device. It has the translations of no line for "
        "certain: free some space there, or name a file with --output, and begin again.\n"
    )
