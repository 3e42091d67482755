"""Which runs and checkpoints there are, and where the system forbids to say."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.data.encoding import load_tokenizers
from transformer_mt.errors import UserError
from transformer_mt.storage.checkpoint_files import STATE, find_checkpoint
from transformer_mt.storage.manifest import write_manifest
from transformer_mt.storage.run_folder import RunFolder, newest_run, open_run
from transformer_mt.training.begin import refuse_unless_writable
from transformer_mt.training.resuming.checkpoints import write_folder


def make_run(path: Path) -> RunFolder:
    run = RunFolder(path)
    for step in (1, 2):
        run.step(step).mkdir(parents=True)
        write_manifest(run.step(step), [])
    run.tokenizers.mkdir()
    run.config.write_text("")
    return run


def said_without(right: int, path: Path, action: Callable[[], object]) -> str:
    """What the UserError says with the rights at `path` reduced to `right`."""
    path.chmod(right)
    try:
        with pytest.raises(UserError) as error:
            action()
    finally:
        path.chmod(0o755)
    return str(error.value)


@pytest.mark.parametrize("closed", [".", "checkpoints", "checkpoints/step_1"])
@pytest.mark.parametrize("right", [0o000, 0o644])
def test_a_run_that_may_not_be_read_is_not_one_without_checkpoints(
    closed: str, right: int, folder_without_rights: Path
) -> None:
    run = make_run(folder_without_rights / "a run")
    for find in (lambda: open_run(run.path), lambda: newest_run(folder_without_rights)):
        said = said_without(right, run.path / closed, find)
        assert f"{run.path / closed}" in said
        assert f" may not be read: permission denied. Have its owner allow it: chmod -R a+rX '{run.path}'" in said
    assert open_run(run.path).steps() == [1, 2]


@pytest.mark.parametrize("path", [Path("a" * 300), Path("runs", "a" * 300), Path("/".join(["folder"] * 1000))])
def test_a_path_that_no_system_has_is_no_run(path: Path) -> None:
    for find in (lambda: open_run(path), lambda: newest_run(path)):
        with pytest.raises(UserError, match="is too long a path for this system, or has too long a name in it"):
            find()
    with pytest.raises(UserError, match=r"cannot be written: File name too long\. Choose another"):
        refuse_unless_writable(RunFolder(path), resume=False)


def test_runs_that_may_not_be_read(folder_without_rights: Path) -> None:
    """All of them are told; one is passed over, for it may be somebody else's."""
    runs = folder_without_rights / "runs"
    older, newer = make_run(runs / "older"), make_run(runs / "newer")
    os.utime(older.step(2) / "manifest.json", (1, 1))
    assert f"{runs} may not be read: permission denied" in said_without(0o000, runs, lambda: newest_run(runs))
    assert newest_run(runs) == newer
    newer.path.chmod(0)
    try:
        assert newest_run(runs) == older
    finally:
        newer.path.chmod(0o755)


def test_a_run_that_has_only_begun_is_found_by_what_needs_no_checkpoint(tmp_path: Path) -> None:
    trained, begun = make_run(tmp_path / "trained"), RunFolder(tmp_path / "begun")
    begun.path.mkdir()
    begun.config.touch()
    os.utime(trained.config, (1, 1))
    assert newest_run(tmp_path, untrained=True) == begun == open_run(begun.path, untrained=True)
    assert newest_run(tmp_path) == trained
    trained.metrics.touch()
    os.utime(begun.config, (2, 2))
    assert newest_run(tmp_path, untrained=True) == trained
    with pytest.raises(UserError, match="has no checkpoint yet"):
        open_run(begun.path)


def test_a_path_that_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in it are not damaged: the libraries that read and write there take no such path."""
    monkeypatch.chdir(tmp_path)
    for path in (Path("r\udcff/toy"), Path("runs/toy\udcff")):
        path.mkdir(parents=True)
        Path(path, "config.yaml").touch()
        for find in (lambda path=path: open_run(path), lambda path=path: newest_run(path.parent)):
            with pytest.raises(
                UserError, match=r"^The path of the run, '.*\\udcff.*', is not UTF-8\. Rename the folder"
            ):
                find()
    assert newest_run(make_run(Path("runs/a")).path.parent).path == Path("runs/a")


def test_tokenizers_that_may_not_be_read(folder_without_rights: Path) -> None:
    run = make_run(folder_without_rights)
    said = said_without(0o000, run.tokenizers, lambda: load_tokenizers(run.tokenizers, TokenizerConfig()))
    assert f"{run.tokenizers / 'manifest.json'} may not be read: permission denied" in said


def test_a_folder_that_may_not_be_written_to_needs_no_space(folder_without_rights: Path) -> None:
    run = make_run(folder_without_rights)
    said = said_without(0o555, run.checkpoints, lambda: write_folder(run.average, lambda folder: None))
    assert said == (
        f"The checkpoint {run.average} could not be written: Permission denied. The checkpoints before it are whole; "
        f"have {run.checkpoints} made writable for you and go on with --resume."
    )


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.EIO, "see that the disk of {} works"), (errno.ENOSPC, "free some space")]
)
def test_space_is_asked_for_where_that_would_help(number: int, advice: str, tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        raise OSError(number, os.strerror(number))

    run = make_run(tmp_path / "run")
    with pytest.raises(UserError, match=re.escape(f"{advice.format(run.checkpoints)} and go on with --resume.")):
        write_folder(run.average, broken)


@pytest.mark.parametrize("lost", ["", "manifest.json"])
def test_a_missing_best_checkpoint_is_told_once(lost: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = make_run(tmp_path / "run")
    (run.step(2) / STATE).write_text('{"best_step": 1}')
    write_manifest(run.step(2), [STATE])
    assert find_checkpoint(run, None) == run.step(1)
    assert not caplog.messages
    if lost:
        (run.step(1) / lost).unlink()
    else:
        shutil.rmtree(run.step(1))
    assert [find_checkpoint(run, None), find_checkpoint(run, None)] == [run.step(2)] * 2
    assert caplog.messages == ["the best checkpoint, step_1, is missing; step_2 is used"]
    with pytest.raises(UserError, match="has no checkpoint 'best'; there are last, step_2"):
        find_checkpoint(run, "best")
