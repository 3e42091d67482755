"""A pair of files parted: no sentence in two parts, whatever the pairs share, and every pair once."""

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import call_tmt
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.data import split as splitting
from transformer_mt.data.longest_line import LONGEST_LINE
from transformer_mt.data.sources.files import read_lines
from transformer_mt.data.split import groups, split_pair_of_files
from transformer_mt.data.tokenizers import normalize
from transformer_mt.errors import UserError

Find = Callable[[str], Path]
Pairs = list[tuple[str, str]]
PARTS = ("train", "validation", "test")


def write(folder: Path, pairs: Pairs) -> tuple[Path, Path]:
    for side, name in enumerate(("all.en", "all.es")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return folder / "all.en", folder / "all.es"


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1] if path.exists() else []


def read(folder: Path, languages: tuple[str, str] = ("en", "es")) -> list[Pairs]:
    """The pairs of each part."""
    return [list(zip(*(lines(folder / f"{part}.{language}") for language in languages), strict=True)) for part in PARTS]


def shared(parts: list[Pairs], side: int) -> int:
    """How many sentences of validation and test are in another part, as training reads them."""
    keys = [{normalize(pair[side], lowercase=True) for pair in pairs if all(map(str.strip, pair))} for pairs in parts]
    train, validation, test = keys
    return len(train & validation) + len(train & test) + len(validation & test)


def test_real_text_shares_nothing(shared_data: Find, tmp_path: Path) -> None:
    """Several translations of a sentence are common there: drawn line by line, 234 of 1,000 sources would be known."""
    src, tgt = (shared_data(f"tatoeba_en_es/train.{language}") for language in ("en", "es"))
    written = dict(split_pair_of_files(src, tgt, tmp_path / "mine", 1000, 500, seed=1))
    parts = read(tmp_path / "mine")
    assert list(map(len, parts)) == [116_113 - 1500, 1000, 500]
    assert [written[tmp_path / "mine" / f"{part}.es"] for part in PARTS] == list(map(len, parts))
    assert (shared(parts, 0), shared(parts, 1)) == (0, 0)
    whole = list(zip(lines(src), lines(tgt), strict=True))
    assert Counter(whole) == Counter(pair for part in parts for pair in part)
    drawn = random.Random(1).sample(range(len(whole)), 1000)
    others = {whole[row][0] for row in set(range(len(whole))) - set(drawn)}
    assert sum(whole[row][0] in others for row in drawn) > 200, "what the check above would have seen"


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=30))
def test_groups_are_the_connected_components(pairs: list[tuple[int, int]]) -> None:
    """Held against a search from pair to pair."""
    found = groups(np.array(pairs, np.uint64).reshape(-1, 2).T)
    for start, pair in enumerate(pairs):
        reached, new = {pair}, [pair]
        while new:
            a, b = new.pop()
            near = {other for other in pairs if other[0] == a or other[1] == b} - reached
            reached |= near
            new += near
        assert found[start] == min(i for i, other in enumerate(pairs) if other in reached)


def test_a_long_chain_is_one_group() -> None:
    """Each pair shares its source with the one before, or its target."""
    order = np.random.default_rng(0).permutation(5000)
    chain = np.stack([np.arange(5000) // 2, (np.arange(5000) + 1) // 2]).astype(np.uint64)[:, order]
    assert not groups(chain).any()


def test_the_seed_decides_and_the_order_stays(tmp_path: Path) -> None:
    pairs = [(f"a {i}", f"b {i}") for i in range(200)]
    files = write(tmp_path, pairs)
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        split_pair_of_files(*files, tmp_path / name, 20, 0, seed)
    one, again, two = (read(tmp_path / name) for name in ("one", "again", "two"))
    assert one == again != two
    assert sorted(one[0] + one[1]) == sorted(pairs)
    for part in one:
        assert part == sorted(part, key=pairs.index)
    assert not (tmp_path / "one" / "test.en").exists()
    assert [path.name for path in (tmp_path / "one").iterdir() if path.name.startswith(".")] == []


def test_what_training_reads_as_equal_stays_together(tmp_path: Path) -> None:
    """White space, composed letters, case, and the way over a third pair. Blank pairs join nothing, though all have
    the same blank, and each the sentence of another pair.
    """
    group = [("caf\u00e9 one", "x"), ("Cafe\u0301  one ", "y"), ("other", "Y"), ("other\u00a0", "z")]
    blank = [("", f"t{i}") for i in range(30)] + [(f"s{i}", " ") for i in range(30)]
    alone = [(f"s{i}", f"t{i}") for i in range(40)]
    files = write(tmp_path, [*group, *blank, *alone])
    for seed in range(20):
        split_pair_of_files(*files, tmp_path / str(seed), 10, 5, seed)
        parts = read(tmp_path / str(seed))
        assert [sum(all(map(str.strip, pair)) for pair in part) for part in parts] == [29, 10, 5]
        assert {len(set(group) & set(part)) for part in parts} <= {0, 4}
        assert set(blank) <= set(parts[0])


@pytest.mark.parametrize(
    ("names", "languages"),
    [
        (("a.en", "a.es"), "en es"),
        (("x.en.gz", "x.de"), "en de"),
        (("a.txt", "b.txt"), "src tgt"),
        (("a", "b"), "src tgt"),
    ],
)
def test_names(names: tuple[str, str], languages: str, tmp_path: Path) -> None:
    for name, side in zip(names, "st", strict=True):
        (tmp_path / name).write_text("".join(f"{side}{i}\r\n" for i in range(10)), newline="")
        if name.endswith(".gz"):
            import gzip

            (tmp_path / name).write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    result = call_tmt(tmp_path, "data", "split", *names, "mine", "--validation", "2", "--test", "1")
    assert result.returncode == 0, result.stderr
    src, tgt = languages.split()
    assert result.stdout.splitlines() == [
        f"mine/{part}.{language}: {number}"
        for part, number in (("train", "7 lines"), ("validation", "2 lines"), ("test", "1 line"))
        for language in (src, tgt)
    ]
    assert sum(map(len, read(tmp_path / "mine", (src, tgt)))) == 10
    again = call_tmt(tmp_path, "data", "split", *names, "mine")
    assert again.returncode == 2
    assert f"mine/train.{src} exists, and is not overwritten." in again.stderr


@pytest.mark.parametrize(
    ("name", "languages", "told"),
    [
        ("crlf_en_vi", ("en", "vi"), None),
        ("unicode_newlines_de_en", ("de", "en"), None),
        ("blank_lines_de_en", ("de", "en"), None),
        ("not_a_corpus_en_ru", ("en", "ru"), r"text.en has 1,469 lines and .*text.ru has 1,997\."),
    ],
)
def test_hostile_files(
    name: str, languages: tuple[str, str], told: str | None, shared_data: Find, tmp_path: Path
) -> None:
    src, tgt = (shared_data(f"hostile/{name}/text.{language}") for language in languages)
    if told is not None:
        with pytest.raises(UserError, match=told):
            split_pair_of_files(src, tgt, tmp_path / "new", 100, 100, 1)
        assert not (tmp_path / "new").exists()
        return
    split_pair_of_files(src, tgt, tmp_path / "new", 100, 100, 1)
    parts = read(tmp_path / "new", languages)
    sides = ([line.removesuffix("\r") for line in path.read_bytes().decode().removesuffix("\n").split("\n")]
             for path in (src, tgt))  # fmt: skip
    assert sorted(pair for part in parts for pair in part) == sorted(zip(*sides, strict=True))
    assert (len(parts[1]), len(parts[2]), shared(parts, 0), shared(parts, 1)) == (100, 100, 0, 0)


def test_odd_ends_and_beginnings_of_lines_are_read_again(tmp_path: Path) -> None:
    """A return before a line's end, and a mark of the byte order behind that of the file, are text."""
    odd = ["\ufeffone", "\ufeff", "two\r", "\r", "thr\ree", "\ufeff\ufefffour\r"]
    files = tmp_path / "a.en", tmp_path / "a.es"
    for file in files:
        file.write_bytes(("\ufeff" + "".join(f"{text}\r\n" for text in odd)).encode())
    for seed in range(8):
        written = split_pair_of_files(*files, tmp_path / f"{seed}", 2, 1, seed)
        for side in (0, 1):
            texts = [text for path, _ in written[side::2] for _, text in read_lines(path)]
            assert sorted(texts) == sorted(odd)


def test_what_cannot_be_taken_out_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path, [("a", f"b{i}") for i in range(8)] + [("c", "d"), ("", "e")])
    with pytest.raises(
        UserError, match=r"5 pairs cannot be taken out of 9 .* 2 groups .*the largest has 8 pairs\)\. Low"
    ):
        split_pair_of_files(*files, tmp_path / "new", 5, 0, 1)
    with pytest.raises(UserError, match="9 pairs cannot be taken out of 9"):
        split_pair_of_files(*files, tmp_path / "new", 8, 1, 1)
    (tmp_path / "one").mkdir()
    one = write(tmp_path / "one", [("a", "b")])
    only = r"1 pair cannot be taken out of 1 .* 1 group that shares no sentence \(the largest has 1 pair\)"
    with pytest.raises(UserError, match=only):
        split_pair_of_files(*one, tmp_path / "new", 1, 0, 1)
    with pytest.raises(UserError, match=r"There is no file .*nowhere\.en"):
        split_pair_of_files(tmp_path / "nowhere.en", files[1], tmp_path / "new", 1, 0, 1)
    (tmp_path / "empty.en").write_text("")
    with pytest.raises(UserError, match="hold not a single line"):
        split_pair_of_files(tmp_path / "empty.en", tmp_path / "empty.en", tmp_path / "new", 1, 0, 1)
    (tmp_path / "empty.en").write_text(" \n" * 2)
    with pytest.raises(UserError, match="hold not a single pair with two sides"):
        split_pair_of_files(tmp_path / "empty.en", tmp_path / "empty.en", tmp_path / "new", 0, 0, 1)
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file cannot be written: .*Choose another folder"):
        split_pair_of_files(*files, tmp_path / "file", 1, 0, 1)

    def broken(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(splitting, "_write", broken)
    with pytest.raises(UserError, match="cannot be written: No space left on device"):
        split_pair_of_files(*files, tmp_path / "full", 1, 0, 1)
    assert list((tmp_path / "full").iterdir()) == []


def test_a_line_that_no_model_takes_is_named(tmp_path: Path) -> None:
    """Of such a line only the beginning is read, which is no line to write."""
    src, tgt = write(tmp_path, [("a", "b"), ("c", "x" * (LONGEST_LINE + 1))])
    with pytest.raises(UserError, match=r"line 2: a side is longer than 1,048,576 bytes.*, or take the pair out\."):
        split_pair_of_files(src, tgt, tmp_path / "mine", 1, 0, seed=1)
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(30, "Read-only file system")])
@pytest.mark.parametrize("moved", range(4))
def test_what_is_stopped_leaves_nothing(
    stop: BaseException, moved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many files of the four are in place."""
    files = write(tmp_path, [(f"a {i}", f"b {i}") for i in range(20)])
    rename, left = Path.rename, iter(range(moved))

    def interrupted(self: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise stop
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises((KeyboardInterrupt, UserError)):
        split_pair_of_files(*files, tmp_path / "new", 5, 0, 1)
    assert list((tmp_path / "new").iterdir()) == []


def test_what_a_kill_left_goes_with_the_next_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an hour, since another process might be at work."""
    files, new = write(tmp_path, [(f"a {i}", f"b {i}") for i in range(20)]), tmp_path / "new"
    with monkeypatch.context() as killed:
        killed.setattr(splitting, "_move", lambda *arguments: sys.exit(137))
        killed.setattr(shutil, "rmtree", lambda *arguments, **options: None)
        with pytest.raises(SystemExit):
            split_pair_of_files(*files, new, 5, 0, 1)
    (left,) = new.iterdir()
    assert sorted(path.name for path in left.iterdir()) == ["train.en", "train.es", "validation.en", "validation.es"]
    shutil.copytree(left, new / f"{left.name}x")
    for path in (left, *left.iterdir()):
        os.utime(path, (0, 0))
    split_pair_of_files(*files, new, 5, 0, 1)
    assert not left.exists()
    assert len(list(new.iterdir())) == 4 + 1
