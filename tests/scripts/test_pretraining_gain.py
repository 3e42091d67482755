"""scripts/pretraining_gain.py: which lines it trains on."""

from argparse import Namespace
from pathlib import Path

from pretraining_gain import write_data


def test_lines_are_read_as_tmt_reads_them(tmp_path: Path) -> None:
    """The last one may lack its line end, and line ends may be those of Windows."""
    args = Namespace(work=tmp_path / "work", pairs=2)
    for name, text in (
        ("src", "a\r\nb\r\nc"), ("tgt", "A\nB\nC\n"), ("valid_src", "v\nw"), ("valid_tgt", "V\nW\n"),
    ):  # fmt: skip
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        setattr(args, name, path)
    folder = write_data(args)
    texts = {path.name: path.read_text(encoding="utf-8").split() for path in folder.iterdir()}
    assert sorted(texts["pairs.src"] + texts["text.src"]) == ["a", "b", "c"]
    assert [line.upper() for line in texts["pairs.src"]] == texts["pairs.tgt"]
    assert texts["test.src"] == ["w"]
