"""Nothing in the folder of a run, or in the cache, is ever unpickled: a hostile pickle in any file does nothing."""

import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import yaml
from toy import toy_mapping, write_toy_corpus
from trainings import rewrite_manifest

from transformer_mt.cli.main import main

MARKER = "the pickle was loaded"
COMMANDS = {
    "translate": ["translate", "--run", "runs/toy", "one two."],
    "evaluate": ["evaluate", "--run", "runs/toy", "--split", "validation"],
    "average": ["average", "runs/toy", "--last", "2"],
    "resume": ["train", "--resume", "runs/toy", "training.max_steps=6"],
}
BEGIN = ["train", "--config", "toy.yaml", "name=new", "training.max_steps=1", "training.proofs=off"]
Run = Callable[[str], int]


class Hostile:
    """Loading it makes a folder in the working folder."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (MARKER,)


def as_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Hostile()))


def as_torch(path: Path) -> None:
    torch.save(Hostile(), path)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with data, its own cache, and a run of 4 steps in two starts, with an average and an evaluation."""
    folder = tmp_path_factory.mktemp("hostile")
    write_toy_corpus(folder / "data")
    for path in (folder / "data").glob("valid.*"):  # few lines, for they are evaluated many times
        path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:3]), encoding="utf-8")
    training = {"max_steps": 4, "checkpoint_every_steps": 2}
    mapping = toy_mapping(Path("data"), training=training, validation={"num_translated": 0})
    mapping["data"]["cache_dir"] = "cache"
    (folder / "toy.yaml").write_text(yaml.safe_dump(mapping))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train = ["train", "--config", "toy.yaml", "--resume", "auto"]
        for arguments in ([*train, "training.max_steps=2"], train, COMMANDS["average"], COMMANDS["evaluate"]):
            patch.setattr(sys, "argv", ["tmt", *arguments])
            assert end_of(main) == 0
        yield folder


def end_of(program: Callable[[], None]) -> int:
    """Its exit status. What is not meant for the user goes on up, and fails the test."""
    try:
        program()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def folder(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to plant things in; also the working folder."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one of the commands as `tmt` would; its exit status."""

    def run_command(name: str) -> int:
        monkeypatch.setattr(sys, "argv", ["tmt", *(BEGIN if name == "begin" else COMMANDS[name])])
        return end_of(main)

    return run_command


def answers(folder: Path) -> dict[str, bytes]:
    """What the commands left behind, where they left it."""
    names = {"average": "checkpoints/average", "resume": "checkpoints/step_6"}
    files = {name: folder / "runs/toy" / path / "model.safetensors" for name, path in names.items()}
    return {name: file.read_bytes() for name, file in files.items() if file.exists()}


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def files_read(run: Run, name: str, folder: Path) -> set[str]:
    """Runs a command; the files below that it read, mapped or replaced. What it does not read, it cannot unpickle.

    All files, where the disk keeps no times of access.
    """
    probe = Path("probe")
    probe.write_bytes(b"-")
    files = {file: folder / file for file in files_below(folder)}
    for path in (probe, *files.values()):
        os.utime(path, (0, path.stat().st_mtime))  # an access before the last change: the next one is noted
    assert run(name) == 0
    probe.read_bytes()
    noted = probe.stat().st_atime > 0
    return {file for file, path in files.items() if not (noted and path.exists() and path.stat().st_atime == 0)}


@pytest.mark.parametrize("plant", [as_pickle, as_torch])
def test_the_pickle_is_live(plant: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plant(tmp_path / "file")
    if plant is as_torch:
        torch.load(tmp_path / "file", weights_only=False)
    else:
        pickle.loads((tmp_path / "file").read_bytes())
    assert Path(MARKER).exists()


def test_a_pickle_in_any_file_of_a_run_is_never_loaded(
    original: Path, folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file in turn, the manifest made to match; as a torch file, too, where there were tensors."""
    read, right = {}, {}
    for name in COMMANDS:
        read[name] = files_read(run, name, folder / "runs/toy")
        right[name] = capsys.readouterr().out
    right_files = answers(folder)
    files = set(files_below(original / "runs/toy"))
    unread = files.difference(*read.values())
    assert all(file.startswith(("events.", "train.lock", "checkpoints/step_2/optimizer")) for file in unread)
    planted = [(file, as_pickle) for file in sorted(files - unread)]
    planted += [(file, as_torch) for file, _ in planted if file.endswith(".safetensors")]
    assert len(planted) > 20
    problems = []
    for file, plant in planted:
        shutil.rmtree(folder / "runs")
        shutil.copytree(original / "runs", folder / "runs")
        path = folder / "runs/toy" / file
        plant(path)
        if path.parent.parent.name == "checkpoints" and path.name != "manifest.json":
            rewrite_manifest(path.parent)
        for name in (name for name in COMMANDS if file in read[name]):
            try:
                status = run(name)
            except Exception as error:
                problems.append(f"{name}, {file}: a traceback, {error!r}")
                continue
            output = capsys.readouterr()
            if status != (2 if "tmt: " in output.err else 0):
                problems.append(f"{name}, {file}: status {status}, {output.err}")
            if status == 0 and name == "translate" and output.out != right[name]:
                problems.append(f"{name}, {file}: another translation")
            if status == 0 and name in ("average", "resume") and answers(folder)[name] != right_files[name]:
                problems.append(f"{name}, {file}: other weights")
            assert not Path(MARKER).exists(), (file, name)
    assert problems == []


def test_a_pickle_in_any_file_of_the_cache_is_never_loaded(original: Path, folder: Path, run: Run) -> None:
    """Cut or filled to the size of what was there, which is what a cache looks at first."""
    read = {name: files_read(run, name, folder / "cache") for name in ("evaluate", "resume", "begin")}
    right = answers(folder)["resume"]
    files = files_below(original / "cache")
    assert set(files) == set.union(*read.values())
    read["begin"] -= read["evaluate"] | read["resume"]  # left are those which a new run alone looks for
    for file in files:
        for name in ("runs", "cache"):
            shutil.rmtree(folder / name)
            shutil.copytree(original / name, folder / name)
        path = folder / "cache" / file
        size = path.stat().st_size
        path.unlink()  # rather than overwritten: it may still be mapped into this process
        path.write_bytes(pickle.dumps(Hostile()).ljust(size, b".")[:size])
        for name in (name for name in read if file in read[name]):
            assert run(name) == 0, (file, name)
        assert not Path(MARKER).exists(), file
        if file in read["resume"]:
            assert answers(folder)["resume"] == right, file


def test_pickles_beside_the_files_of_a_run_are_not_looked_at(folder: Path, run: Run) -> None:
    for name in ("checkpoints/step_4/model.pt", "checkpoints/step_4/pytorch_model.bin", "checkpoints/last.ckpt",
                 "checkpoints/step_4/optimizer.pt", "tokenizers/src.pkl", "config.pkl", "state.pickle"):  # fmt: skip
        as_torch(folder / "runs/toy" / name)
    for name in COMMANDS:
        assert run(name) == 0
    assert not Path(MARKER).exists()
