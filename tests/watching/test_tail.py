"""What is read of a run that grows: the same as is read of it when it is whole."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_config

from transformer_mt.config.loading import dump_config
from transformer_mt.storage.metrics_lines import whole_lines
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.watching import live_run
from transformer_mt.watching.event_files import EventFiles, SampleText
from transformer_mt.watching.live_run import LiveRun
from transformer_mt.watching.metrics_tail import MetricsTail, thinned

LINES = [
    json.dumps(
        {"kind": kind, "step": step, "nll": 5 / step, "bleu": step / 2, "elapsed_seconds": 3.0 * step, "epoch": 0}
    )
    for step in range(1, 12)
    for kind in (("train", "validation") if step % 4 == 0 else ("train",))
]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def whole(path: Path, content: bytes) -> MetricsTail:
    path.write_bytes(content)
    tail = MetricsTail(path)
    tail.update()
    return tail


@given(st.lists(st.integers(0, len(TEXT)), max_size=5))
def test_a_file_that_grows_is_read_as_one_that_is_whole(tmp_path_factory, cuts: list[int]) -> None:
    folder = tmp_path_factory.mktemp("tail")
    path = folder / "metrics.jsonl"
    tail = MetricsTail(path)
    tail.update()  # there is no file yet
    for cut in [*sorted(cuts), len(TEXT)]:
        path.write_bytes(TEXT[:cut])
        tail.update()
        assert tail.num_broken == 0, "half a line is not a broken one"
    expected = whole(folder / "whole.jsonl", TEXT)
    assert tail.curves == expected.curves
    assert tail.curves["validation/bleu"] == ([4, 8], [2.0, 4.0])
    assert tail.pace == expected.pace == (1, 10, 30.0)


def test_a_training_that_was_cut_back_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = whole(path, TEXT)
    resumed = TEXT[: TEXT.index(b"\n") + 1] + b'{"kind": "train", "step": 2, "nll": 1.0}\n' * 3 + TEXT
    path.write_bytes(resumed)
    tail.update()
    assert tail.curves == whole(tmp_path / "other.jsonl", resumed).curves
    path.unlink()
    tail.update()
    assert not tail.curves
    assert tail.pace is None


def test_a_line_that_is_none_is_counted(tmp_path: Path) -> None:
    tail = whole(tmp_path / "metrics.jsonl", b'{"kind": "train"}\nnonsense \xff\n' + TEXT)
    assert tail.num_broken == 2
    assert len(tail.curves["train/nll"][0]) == 11


STRANGE = [
    '{"kind": "train", "step": 1e999}', f'{{"kind": "train", "step": 1{"0" * 400}, "nll": 1}}', "[" * 100_000,
    '{"kind": "train", "step": 13, "nll": "5"}', '{"kind": "train", "step": 13, "tokens_per_second": null}',
    '{"kind": "train", "step": 13, "epoch": null}', '{"kind": "train", "step": 13, "epoch": "x"}',
    '{"kind": "validation", "step": 13, "nll": "nan"}',
    '{"kind": "look", "step": 13, "epoch": "5", "vocabulary": 9, "unmoved": {"a": 0.1}}',
    '{"kind": "look", "step": 13, "epoch": 1, "vocabulary": 9, "copies": 1, "reference_copies": 0}',
]  # fmt: skip


def test_whatever_a_line_holds_the_page_shows_the_others(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(dump_config(toy_config(tmp_path)))
    run = RunFolder(tmp_path)
    for line in STRANGE:
        for path in (run.metrics, run.recorder):
            path.write_bytes(TEXT + line.encode() + b"\n" + TEXT.replace(b'"step": ', b'"step": 2'))
        parts = LiveRun(run).look().parts
        assert "train/nll 0.4545 at step 211" in parts["curves"], line
        assert "trouble" not in parts["state"]
        assert len(list(whole_lines(run.metrics))) in (2 * len(LINES), 2 * len(LINES) + 1)


def test_a_file_that_goes_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_run, "REST_SECONDS", 0.0)
    (tmp_path / "config.yaml").write_text(dump_config(toy_config(tmp_path)))
    live = LiveRun(RunFolder(tmp_path))
    live.look()
    (tmp_path / "config.yaml").unlink()
    said = f"{tmp_path / 'config.yaml'} cannot be read: No such file or directory. What was read last stands below."
    assert said in live.look().parts["state"]


@given(st.integers(1, 2000), st.integers(1, 300))
def test_a_thinned_curve_is_short_and_ends_where_the_curve_ends(num: int, most: int) -> None:
    steps, values = thinned((list(range(num)), [float(step) for step in range(num)]), most)
    assert 1 <= len(steps) <= most
    assert steps[-1] == num - 1
    assert values == steps
    assert len({b - a for a, b in pairwise(steps)}) <= 1


def test_samples_come_back_as_they_were_and_a_resumed_training_replaces_them(tmp_path: Path) -> None:
    import numpy as np
    from torch.utils.tensorboard.writer import SummaryWriter

    from transformer_mt.training.monitoring.monitor import _plain

    def write(step: int, translation: str, purge: int | None = None) -> None:
        board = SummaryWriter(str(tmp_path), purge_step=purge, filename_suffix=f".{step}{purge}")
        rows = (("source", r"a *b* \_c [x](y) <b>"), ("reference", "ä # 1. - !"), ("translation", translation))
        board.add_text("sample 1", "\n\n".join(f"**{name}**: {_plain(text)}" for name, text in rows), step)
        board.add_text("config", "**source**: of another kind", step)
        board.add_image("cross-attention", np.full((4, 6, 3), step % 256, np.uint8), step, dataformats="HWC")
        board.close()
        (new,) = tmp_path.glob("events.out.tfevents.*.*")  # names of one second are not always in the order of writing
        new.rename(tmp_path / f"events.out.tfevents.{len(list(tmp_path.iterdir()))}")

    files = EventFiles(tmp_path)
    files.update()
    assert not files.samples
    write(10, "first")
    write(20, "")
    files.update()
    first = SampleText(r"a *b* \_c [x](y) <b>", "ä # 1. - !", "first")
    assert files.samples == {1: {10: first, 20: SampleText(first.source, first.reference, "")}}
    assert files.pictures["cross-attention"][0] == 20
    write(15, "again", purge=11)
    files.update()
    assert {step: sample.translation for step, sample in files.samples[1].items()} == {10: "first", 15: "again"}
    assert files.pictures["cross-attention"][0] == 15


def test_a_run_that_has_written_nothing_yet_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(dump_config(toy_config(tmp_path)))
    shown = "".join(LiveRun(RunFolder(tmp_path)).look().parts.values())
    assert "not begun" in shown
    assert "No such file" not in shown


def test_an_event_file_that_leads_nowhere_leaves_the_page_as_it_was(tmp_path: Path, monkeypatch) -> None:
    from torch.utils.tensorboard.writer import SummaryWriter

    monkeypatch.setattr(live_run, "REST_SECONDS", 0.0)
    (tmp_path / "config.yaml").write_text(dump_config(toy_config(tmp_path)))
    board = SummaryWriter(str(tmp_path))
    board.add_text("sample 1", "**source**: a\n\n**reference**: b\n\n**translation**: c", 10)
    board.close()
    live = LiveRun(RunFolder(tmp_path))
    before = live.look().parts
    assert "c" in before["samples"]
    (events,) = tmp_path.glob("events.out.tfevents.*")
    for target in (tmp_path / "gone", events):
        events.unlink()
        events.symlink_to(target)
        events.with_name(f"{events.name}.2").unlink(missing_ok=True)
        events.with_name(f"{events.name}.2").symlink_to(target)
        assert live.look().parts == before
