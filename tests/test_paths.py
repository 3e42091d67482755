"""What is at a path, held against the answers of Python 3.13 and before."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_mt.paths import exists, is_dir, is_file

QUESTIONS = (exists, is_file, is_dir)


def test_what_is_there(tmp_path: Path) -> None:
    file, pipe, link, loop = (tmp_path / name for name in ("file", "pipe", "link", "loop"))
    file.touch()
    os.mkfifo(pipe)
    link.symlink_to(file)
    loop.symlink_to(loop)
    gone = tmp_path / "gone"
    gone.symlink_to(tmp_path / "nothing")
    said = {path: tuple(ask(path) for ask in QUESTIONS) for path in (tmp_path, file, pipe, link)}
    assert said == {
        tmp_path: (True, False, True),
        file: (True, True, False),
        pipe: (True, False, False),
        link: (True, True, False),
    }
    for path in (tmp_path / "none", file / "within", gone, loop, Path("a\0name")):
        assert not any(ask(path) for ask in QUESTIONS)


@pytest.mark.parametrize("ask", QUESTIONS)
def test_what_cannot_be_seen_is_an_error(ask: Callable[[Path], bool], folder_without_rights: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        ask(folder_without_rights / (300 * "f"))
    folder = folder_without_rights / "folder"
    folder.mkdir()
    (folder / "file").touch()
    folder.chmod(0o600)
    try:
        with pytest.raises(PermissionError):
            ask(folder / "file")
    finally:
        folder.chmod(0o755)
