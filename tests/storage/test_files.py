"""A file is whole or not there: on the disk before it has its name, and as it was where the writing fails."""

import os
import sys
import time
from pathlib import Path

import pytest

from transformer_mt.storage.files import make_file, make_folder


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, synced: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave one that seems whole."""
    replace = os.replace

    def checked(temporary: Path, final: Path) -> None:
        assert synced == {temporary.stat().st_ino: 3}
        replace(temporary, final)

    monkeypatch.setattr(os, "replace", checked)
    make_file(tmp_path / "new", lambda file: file.write_bytes(b"abc"))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("new", b"abc")]


def test_half_a_file_takes_nothings_place(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"whole")

    def half(file: Path) -> None:
        file.write_bytes(b"ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        make_file(tmp_path / "old", half)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("old", b"whole")]


def test_what_kills_left_long_ago_goes_with_the_next_of_that_name(tmp_path: Path) -> None:
    """Whatever is younger than an hour may be in the making, as may a folder with a file that was written to since; and
    whatever has another name is not looked at.
    """
    for name, age in ((".tmp-file-old", 7200), (".tmp-file-new", 60), (".tmp-other-old", 7200)):
        left = tmp_path / name
        left.write_bytes(b"ha")
        os.utime(left, (time.time() - age, time.time() - age))
    for name, written in ((".tmp-folder-old", 1), (".tmp-folder-new", time.time())):
        (tmp_path / name / "within").mkdir(parents=True)
        (tmp_path / name / "within/table").write_bytes(b"ha")
        for path, when in (("within/table", written), ("within", 1), (".", 1)):
            os.utime(tmp_path / name / path, (when, when))
    make_file(tmp_path / "file", lambda file: file.write_bytes(b"abc"))
    make_folder(tmp_path / "folder", lambda new: (new / "model").write_bytes(b"abc"))
    left = {".tmp-file-new", ".tmp-folder-new", ".tmp-other-old"}
    assert {path.name for path in tmp_path.iterdir()} == {*left, "file", "folder"}


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_a_folder_takes_the_place_of_an_empty_one_and_of_no_other(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows too, which renames no folder to a name that is taken."""
    replace = os.replace

    def renamed(old: Path, new: Path) -> None:
        if platform == "win32" and new.exists():
            raise PermissionError(13, "Permission denied")
        replace(old, new)

    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full/old").touch()
    make_folder(tmp_path / "empty", lambda folder: (folder / "new").touch())
    with pytest.raises(OSError, match=r"Permission denied|not empty"):
        make_folder(tmp_path / "full", lambda folder: (folder / "new").touch())
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "empty", str(Path("empty/new")), "full", str(Path("full/old")),
    ]  # fmt: skip
