from pathlib import Path

import pytest
from commands import full_disk

from transformer_mt.data.builtin import builtin_pairs
from transformer_mt.data.builtin.export import export_builtin
from transformer_mt.errors import UserError


def test_the_files_hold_the_pairs_line_by_line(tmp_path: Path) -> None:
    written = dict(export_builtin("builtin:en-es", tmp_path / "new" / "folder"))
    assert len(written) == 6
    for split in ("train", "validation", "test"):
        sides = [(tmp_path / "new/folder" / f"{split}.{language}").read_bytes().decode() for language in ("en", "es")]
        assert [side[-1] for side in sides] == ["\n", "\n"]
        assert list(zip(*(side[:-1].split("\n") for side in sides), strict=True)) == builtin_pairs(split)
    assert export_builtin("builtin:en-es", tmp_path / "new" / "folder") == list(written.items()), "twice is no harm"


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'builtin:en-fr' is not a built-in corpus. There is builtin:en-es"):
        export_builtin("builtin:en-fr", tmp_path)
    (tmp_path / "test.es").write_text("mine\n")
    with pytest.raises(UserError, match=r"test\.es exists with other content"):
        export_builtin("builtin:en-es", tmp_path)
    assert (tmp_path / "test.es").read_text() == "mine\n"
    assert [path.name for path in tmp_path.iterdir()] == ["test.es"], "it is refused before anything is written"


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    """Five fit, the largest does not."""
    whole = dict(export_builtin("builtin:en-es", tmp_path / "whole"))
    largest = max(path.stat().st_size for path in whole)
    refused = pytest.raises(UserError, match=r"full cannot be written: File too large\. Choose another folder\.")
    with full_disk(largest - 1), refused:
        export_builtin("builtin:en-es", tmp_path / "full")
    for path in (tmp_path / "full").iterdir():
        assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()
