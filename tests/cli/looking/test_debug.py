"""`tmt debug batch`: a training that goes wrong, from its error to the page that says where."""

import subprocess
from pathlib import Path

import pytest
import yaml
from commands import call_tmt, run_tmt
from toy import toy_mapping, write_toy_corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("debug")
    write_toy_corpus(folder / "data")
    sections = {"training": {"factor": 1e30, "clip_norm": None, "grad_accum": 2}, "validation": {"every_steps": 50}}
    (folder / "toy.yaml").write_text(yaml.safe_dump(toy_mapping(folder / "data", **sections)))
    return folder


@pytest.fixture(scope="module")
def stopped(folder: Path) -> subprocess.CompletedProcess[str]:
    """A training whose first step makes its weights so large that the second cannot be computed."""
    return run_tmt(folder, "train", "--config", "toy.yaml")


def test_the_error_leads_to_the_replay(folder: Path, stopped: subprocess.CompletedProcess[str]) -> None:
    assert stopped.returncode == 2
    first, found, files, advice = stopped.stderr.removeprefix("tmt: ").splitlines()
    assert first.startswith("The loss is nan at step 2 (epoch 1, micro-batch 3; its first pair is ")
    assert found.startswith("The first output that is not finite is that of encoder.")
    assert advice.startswith("Lower the learning rate")
    command = files.partition("tmt ")[2].split()
    assert command == ["debug", "batch", "runs/toy/debug/step_2.safetensors", "--run", "runs/toy"]
    result = run_tmt(folder, *command)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert f"found now: {found}" in " ".join(result.stdout.split())
    assert result.stdout.count("output of ") == 2, "one table for each micro-batch"
    module = found.split(" that of ")[1].split(",")[0]
    (marked,) = [line for line in result.stdout.split("\nmicro-batch 2")[0].split("\n") if line.startswith("> ")]
    assert marked.split()[1] == module
    assert "gradient of the update, before clipping: norm nan" in result.stdout
    assert max(map(len, result.stdout.split("\n"))) <= 120
    assert call_tmt(folder, *command[:3]).stdout == result.stdout, "the run is the one that the file is in"


def test_files_are_on_the_page_of_the_run(folder: Path, stopped: subprocess.CompletedProcess[str]) -> None:
    page = (Path(__file__).parents[3] / "runs/README.md").read_text("utf-8")
    for path in (folder / "runs/toy/debug").iterdir():
        assert f"`debug/{path.name.replace('step_2', 'step_N')}`" in page


def test_another_precision_is_tried_and_said(folder: Path, stopped: subprocess.CompletedProcess[str]) -> None:
    result = call_tmt(folder, "debug", "batch", "runs/toy/debug/step_2.safetensors", "--precision", "bf16")
    assert result.returncode == 0
    assert result.stderr == "note: precision was fp32 and is bf16\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs/toy/debug/step_9.safetensors"], "There is no file runs/toy/debug/step_9.safetensors."),
        (["toy.yaml", "--run", "runs/toy"], "toy.yaml is damaged, or no safetensors file"),
        (["toy.yaml", "--run", "data"], "data is not the folder of a run"),
        (["runs/toy/debug/step_2_weights.safetensors"], "holds no update"),
        (["runs/toy/debug/step_2.safetensors", "--device", "tpu"], "is not a device"),
        (["runs/toy/debug/step_2.safetensors", "--precision", "fp8"], "is not a precision"),
        (["runs/toy/debug/step_2.safetensors", "--checkpoint", "last"], "has no checkpoint yet"),
        ([], "Missing argument"),
    ],
)
def test_mistakes_get_one_clear_sentence(
    folder: Path, stopped: subprocess.CompletedProcess[str], arguments: list[str], message: str
) -> None:
    result = call_tmt(folder, "debug", "batch", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""
