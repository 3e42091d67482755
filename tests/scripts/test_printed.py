"""scripts/printed.py: lines that another program printed, through a model that reads pictures."""

import sys
from pathlib import Path

import numpy as np
import printed
import pytest
from PIL import Image
from translators import PICTURES, SMALL, make_translator, write_run

from transformer_mt.data.pictures.fonts import Font
from transformer_mt.errors import UserError


def test_a_line_is_printed_whole_and_in_its_size(tmp_path: Path) -> None:
    (path,) = printed.by_pillow(["xxx"], 40, Font.find(None), tmp_path)
    ink = np.asarray(Image.open(path).convert("L")) < 128
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    assert rows[-1] + 1 - rows[0] == pytest.approx(40 * 0.547, abs=1)  # an x of DejaVu Sans, by its file
    assert not ink[:, [0, -1]].any()
    assert columns[-1] - columns[0] == pytest.approx(3 * 40 * 0.592, rel=0.1)  # and how far it advances


def test_a_row_for_each_size_and_a_run_of_words_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {name: write_run(tmp_path / name, make_translator(model)) for name, model in (("p", PICTURES), ("w", SMALL))}
    monkeypatch.setattr(sys, "argv", ["printed.py", str(runs["p"]), "--sizes", "20", "40", "--sentences", "3"])
    printed.main()
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert rows[2:] == ["text", "20 pixels", "40 pixels"]
    monkeypatch.setattr(sys, "argv", ["printed.py", str(runs["w"])])
    with pytest.raises(UserError, match="reads words"):
        printed.main()
