"""Real files that break real tools. The oracle is `bytes.split(b"\\n")`, which knows of no other line end."""

from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.corpus import Corpus, load_corpus
from transformer_mt.errors import UserError

Find = Callable[[str], Path]


def load(folder: Path, stem: str, src: str, tgt: str) -> Corpus:
    source = SourceConfig(src=f"{stem}.{src}", tgt=f"{stem}.{tgt}")
    data = DataConfig(root=str(folder), src_lang=src, tgt_lang=tgt, train=[source], validation=[source])
    return load_corpus([source], data)


def split_lines(path: Path) -> list[str]:
    lines = path.read_bytes().split(b"\n")
    if lines[-1] == b"":  # what follows the last line end is no line
        lines.pop()
    return [line.removesuffix(b"\r").decode("utf-8") for line in lines]


def check_pairs(corpus: Corpus, folder: Path, stem: str, src: str, tgt: str) -> None:
    """The corpus is the rows of both files in order, less those with a blank side, each with its line number."""
    both = zip(split_lines(folder / f"{stem}.{src}"), split_lines(folder / f"{stem}.{tgt}"), strict=True)
    rows = [(a, b, number) for number, (a, b) in enumerate(both, start=1)]
    kept = [(a, b, number) for a, b, number in rows if a.split() and b.split()]
    columns = corpus.dataset[:]
    assert list(zip(columns["src"], columns["tgt"], columns["line"], strict=True)) == kept
    assert (corpus.num_read, corpus.num_blank) == (len(rows), len(rows) - len(kept))


@pytest.mark.parametrize(
    ("name", "src", "tgt", "num_read"),
    [
        ("crlf_en_vi", "en", "vi", 2535),
        ("unicode_newlines_de_en", "de", "en", 2525),
        ("blank_lines_de_en", "de", "en", 5000),
        ("shifted_en_fr", "en", "fr", 98),
    ],
)
def test_hostile_corpus_loads_aligned(name: str, src: str, tgt: str, num_read: int, shared_data: Find) -> None:
    folder = shared_data(f"hostile/{name}")
    corpus = load(folder, "text", src, tgt)
    assert corpus.num_read == num_read
    check_pairs(corpus, folder, "text", src, tgt)


def test_not_a_corpus_is_refused_with_both_counts(shared_data: Find) -> None:
    folder = shared_data("hostile/not_a_corpus_en_ru")
    with pytest.raises(UserError, match=r"text.en has 1,469 lines and .*text.ru has 1,997\."):
        load(folder, "text", "en", "ru")


@pytest.mark.parametrize(
    ("tgt", "train", "valid"), [("zh", 5000, 500), ("ja", 5000, 500), ("ar", 5000, 500), ("hi", 2570, 113)]
)
def test_other_scripts_load(tgt: str, train: int, valid: int, shared_data: Find) -> None:
    folder = shared_data(f"other_scripts/en_{tgt}")
    for stem, expected in (("train", train), ("valid", valid)):
        corpus = load(folder, stem, "en", tgt)
        assert len(corpus) == expected
        check_pairs(corpus, folder, stem, "en", tgt)


@pytest.mark.parametrize(("stem", "expected"), [("train", 116_113), ("valid", 1_374)])
def test_tatoeba_loads(stem: str, expected: int, shared_data: Find) -> None:
    folder = shared_data("tatoeba_en_es")
    corpus = load(folder, stem, "en", "es")
    assert len(corpus) == expected
    check_pairs(corpus, folder, stem, "en", "es")
