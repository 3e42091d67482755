"""Pairs to files of every kind that is read, texts that break such files, and lines as pictures."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.batches.stream_window import stream_pairs
from transformer_mt.data.pictures.fonts import Font
from transformer_mt.data.sources.kinds import source_of
from transformer_mt.errors import UserError

PAIRS = [("The cat", "El gato"), ("NA", "null"), ("None", "nan"), ("a\x85b\x0bc", "d\u2028e\x0cf"), ("\x00", "¿?")]


def make_config(root: Path, **settings: Any) -> DataConfig:
    anything = [SourceConfig(csv="any.csv")]
    return DataConfig(root=str(root), train=anything, validation=anything, **settings)


def make_source(kind: str, name: str, **settings: Any) -> SourceConfig:
    names = {"src": name, "tgt": name} if kind == "text" else {kind: name}
    return SourceConfig.model_validate({**names, **settings})


def read(root: Path, source: SourceConfig, is_streamed: bool = True, **settings: Any) -> list[tuple[str, str]]:
    """The pairs of a source; their lines must count up from the first. The same must come where it is streamed."""
    config = make_config(root, **settings)
    pairs = list(source_of(source, config).pairs())
    if is_streamed:
        streamed = stream_pairs([source_of(source, config)])
        assert [pair for _, pair in streamed] == pairs
    lines = [pair.line for pair in pairs]
    assert lines == sorted(set(lines))
    return [(pair.src, pair.tgt) for pair in pairs]


def fails(root: Path, source: SourceConfig, **settings: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(root, source, **settings)
    message = str(caught.value)
    assert "Traceback" not in message
    assert message.count(". ") >= 1 or ": " in message  # what is wrong, and what to do
    return message


def joined(side: int, pairs: list[tuple[str, str]], end: str = "\n") -> bytes:
    return "".join(pair[side] + end for pair in pairs).encode()


def write_text(root: Path, pairs: list[tuple[str, str]]) -> SourceConfig:
    (root / "a.en").write_bytes(joined(0, pairs))
    (root / "a.es").write_bytes(joined(1, pairs))
    return SourceConfig(src="a.en", tgt="a.es")


def write_tsv(root: Path, pairs: list[tuple[str, str]]) -> SourceConfig:
    (root / "a.tsv").write_bytes("".join(f"{src}\t{tgt}\n" for src, tgt in pairs).encode())
    return SourceConfig(tsv="a.tsv")


def write_csv(root: Path, pairs: list[tuple[str, str]]) -> SourceConfig:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([("src", "tgt"), *pairs])
    (root / "a.csv").write_bytes(out.getvalue().encode())
    return SourceConfig(csv="a.csv")


def write_jsonl(root: Path, pairs: list[tuple[str, str]]) -> SourceConfig:
    rows = [json.dumps({"src": src, "tgt": tgt}, ensure_ascii=n % 2 == 0) for n, (src, tgt) in enumerate(pairs)]
    (root / "a.jsonl").write_bytes("".join(row + "\n" for row in rows).encode())
    return SourceConfig(jsonl="a.jsonl")


def write_parquet(root: Path, pairs: list[tuple[str, str]]) -> SourceConfig:
    columns = {"src": [src for src, _ in pairs], "tgt": [tgt for _, tgt in pairs]}
    schema = pa.schema([("src", pa.string()), ("tgt", pa.string())])
    pq.write_table(pa.table(columns, schema), root / "a.parquet", row_group_size=3)
    return SourceConfig(parquet="a.parquet")


WRITERS = [write_text, write_tsv, write_csv, write_jsonl, write_parquet]
LIKE_A_VALUE = st.sampled_from(["NA", "null", "None", "nan", "", " ", "007", "1e3", "True"])
SPECIAL = LIKE_A_VALUE | st.sampled_from(["\r", "a\rb", "\x85", "\x0b", "\u2028", "\x00", '"', "'"])
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | SPECIAL
# In files whose lines are pairs a text holds no line end, and a mark at the start of a file is not text.
LINE = ANY.map(lambda text: text.replace("\n", "").replace("\t", "").replace("\ufeff", "").rstrip("\r"))


def write_hub(root: Path, pairs: list[tuple[str, str]]) -> SourceConfig:
    """A local folder in the hub's layout."""
    (root / "hub").mkdir()
    write_parquet(root / "hub", pairs)
    (root / "hub" / "a.parquet").rename(root / "hub" / "train.parquet")
    return SourceConfig(hub="hub", split="train")


def printed(text: str, size: int, margin: int = 10) -> np.ndarray:
    """A line as another program prints it: in one go, at its own size."""
    font = Font.find(None).at_size(size)
    ascent, descent = font.getmetrics()
    image = Image.new("L", (round(font.getlength(text)) + 2 * margin, ascent + descent + 2 * margin), 255)
    ImageDraw.Draw(image).text((margin, margin + ascent), text, fill=0, font=font, anchor="ls")
    return np.asarray(image)
