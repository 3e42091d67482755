"""The aligner beside a run: made once, read afterwards, and made again where its files are damaged."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import full_disk
from toy import toy_config, write_toy_corpus

from transformer_mt.aligning import find_kernels, run_aligner
from transformer_mt.aligning.run_aligner import aligner_of_run, train_run_aligner
from transformer_mt.config.loading import dump_config, read_config
from transformer_mt.data.preparation import prepare_training_data
from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.begin import write_beginnings

PAIR = ("two four six.", "dos seis cuatro.")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that has its config and nothing else."""
    return make_run(tmp_path)


def make_run(folder: Path, **data: object) -> RunFolder:
    run = RunFolder(folder / "run")
    run.path.mkdir(parents=True)
    write_toy_corpus(folder / "data")
    config = toy_config(folder / "data", data={"cache_dir": str(folder / "cache"), **data})
    run.config.write_text(dump_config(config), encoding="utf-8")
    return run


def said_in(run: RunFolder) -> list[str]:
    """What making or reading the aligner says; it aligns as it should."""
    said: list[str] = []
    assert aligner_of_run(run, said.append).align([PAIR])[0].pharaoh() == "0-0 1-2 2-1"
    return said


def is_made(said: list[str]) -> bool:
    return any(line.startswith("training an aligner") for line in said)


def test_it_is_made_at_the_first_use_and_kept(run: RunFolder) -> None:
    first, last = said_in(run)
    assert first == f"training an aligner on the 120 pairs of {run.path}, once"
    assert last.startswith(f"the aligner is in {run.aligner}; it took ")
    assert said_in(run) == []
    assert sorted(path.name for path in run.path.iterdir()) == ["aligner", "config.yaml"]


def test_it_stays_where_the_files_of_the_pairs_change_later(run: RunFolder) -> None:
    said_in(run)
    source = run.path.parent / "data" / "train.en"
    source.write_text(source.read_text().replace("ten", "eleven"))
    assert said_in(run) == [], "the model has learned from the pairs that the aligner knows"


def test_a_training_that_begins_anew_takes_the_one_of_other_pairs_away(run: RunFolder) -> None:
    said_in(run)
    write_beginnings(read_config(run.config), run, data=None)
    assert exists(run.aligner), "that of a run that goes on is kept"
    write_beginnings(config := read_config(run.config), run, prepare_training_data(config))
    assert not exists(run.aligner)


def test_a_run_whose_pairs_are_gone_keeps_its_aligner(run: RunFolder) -> None:
    said_in(run)
    shutil.rmtree(run.path.parent / "data")
    assert said_in(run) == []
    shutil.rmtree(run.aligner)
    with pytest.raises(UserError, match=r"data\.root: there is no folder .*data\. Name"):
        aligner_of_run(run, print)


@pytest.mark.parametrize("name", ["aligner.json", "tables.safetensors", "manifest.json"])
def test_a_damaged_one_is_told_and_made_again(name: str, run: RunFolder) -> None:
    said_in(run)
    (run.aligner / name).write_bytes(b"{}")
    said = said_in(run)
    assert "is made again" in said[0]
    assert is_made(said)
    assert said_in(run) == []


def test_two_at_once_leave_a_whole_one(run: RunFolder) -> None:
    with ThreadPoolExecutor(4) as pool:
        for made in [pool.submit(train_run_aligner, run, lambda text: None) for _ in range(12)]:
            made.result()
    assert said_in(run) == []
    assert [path.name for path in run.path.iterdir() if path.name.startswith(".")] == []


def test_of_a_large_corpus_a_part_is_taken_from_all_over_it(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_aligner, "MOST_PAIRS", 50)
    assert said_in(run)[0] == f"training an aligner on one in 3 of the 120 pairs of {run.path}, once"


def test_a_streamed_run_has_one_too(tmp_path: Path) -> None:
    run = make_run(tmp_path, streaming=True)
    assert "on up to 500,000 pairs" in said_in(run)[0]
    assert said_in(run) == []


def test_without_numba_it_is_said_that_it_is_slow(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_kernels, "compiled_kernels", lambda: None)
    monkeypatch.setattr(run_aligner, "compiled_kernels", lambda: None)
    assert said_in(run)[0].endswith("once; numba does not work here, so this takes some 20 times as long")


def test_a_full_disk_is_told_and_leaves_nothing(run: RunFolder) -> None:
    prepare_training_data(read_config(run.config))  # which needs room too
    with full_disk(300), pytest.raises(UserError, match=r"aligner cannot be written: File too large\. To have it"):
        train_run_aligner(run, lambda text: None)
    assert not run.aligner.exists()


def test_a_folder_that_cannot_be_written_is_told(folder_without_rights: Path) -> None:
    """Who needs the aligner has it, for this once; who asks to have it trained is refused."""
    run = make_run(folder_without_rights)
    run.path.chmod(0o555)
    told: list[str] = []
    try:
        aligner = aligner_of_run(run, told.append)
        assert aligner.align([("one", "uno")])[0].links == [(0, 0)]
        assert "aligner cannot be written: Permission denied. To have it, have" in told[-1]
        assert told[-1].endswith("It is used this once.")
        with pytest.raises(UserError, match=r"aligner cannot be written: Permission denied\. To have it, have"):
            train_run_aligner(run, lambda text: None)
    finally:
        run.path.chmod(0o755)
