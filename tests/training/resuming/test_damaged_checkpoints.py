"""A damaged checkpoint is set aside and costs its steps; one that cannot be read stays where it is."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from saved_runs import train, weights
from trainings import metrics

from transformer_mt.errors import UserError
from transformer_mt.storage import manifest
from transformer_mt.storage.manifest import write_manifest
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.resuming.checkpoints import set_damaged_aside


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", cut_short),
        ("model.safetensors", Path.unlink),
        ("optimizer.safetensors", flip_a_bit),
        ("state.json", Path.unlink),
        ("settings.yaml", flip_a_bit),
        ("manifest.json", cut_short),
        ("manifest.json", flip_a_bit),
        ("manifest.json", Path.unlink),
    ],
)
def test_a_damaged_checkpoint_costs_its_steps_and_no_more(
    data: Path, straight: RunFolder, run: RunFolder, name: str, damage: Callable[[Path], None], capsys
) -> None:
    damage(run.step(12) / name)
    damage(run.step(9) / "model.safetensors")
    assert train(data, run, resume=True).exit_status == 0
    said = capsys.readouterr().out
    assert str(run.step(12)) in said
    assert re.search(rf"warning: {run.step(9)}/model\.safetensors is [^.]*\. It is now {run.checkpoints}/damaged", said)
    assert f"going on from the newest whole checkpoint, {run.step(7)}: 5 steps are computed again" in said
    assert (run.checkpoints / "damaged_step_12").is_dir()
    assert (run.checkpoints / "damaged_step_9").is_dir()
    assert weights(run) == weights(straight)
    assert metrics(run.path) == metrics(straight.path)
    assert run.steps() == straight.steps()


def test_where_no_checkpoint_is_whole_nothing_is_touched(data: Path, run: RunFolder) -> None:
    steps = run.steps()
    for step in steps:
        cut_short(run.step(step) / "optimizer.safetensors")
    before = sorted(path.name for path in run.checkpoints.iterdir())
    with pytest.raises(UserError, match=f"None of the {len(steps)} checkpoints of .* is whole.* another name"):
        train(data, run, resume=True)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == before


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json", ""])
def test_a_checkpoint_that_may_not_be_read_is_not_set_aside(folder_without_rights: Path, name: str) -> None:
    """It may well be whole, and then to go on from the one before it would lose steps."""
    run = RunFolder(folder_without_rights / "run")
    names = ["model.safetensors", "optimizer.safetensors", "settings.yaml", "state.json"]
    for step in (9, 12):
        run.step(step).mkdir(parents=True)
        for file in names:
            (run.step(step) / file).write_text(file)
        write_manifest(run.step(step), names)
    assert set_damaged_aside(run) == []
    before, closed = run.steps(), run.step(12) / name
    closed.chmod(0)
    try:
        with pytest.raises(UserError, match=r"may not be read: permission denied\. Have its owner allow it: chmod"):
            set_damaged_aside(run)
    finally:
        closed.chmod(0o755)
    assert run.steps() == before


def test_a_checkpoint_that_a_disk_cannot_read_is_not_set_aside(run: RunFolder, monkeypatch) -> None:
    def fail(path: Path) -> str:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    before = run.steps()
    monkeypatch.setattr(manifest, "digest", fail)
    with pytest.raises(UserError, match=rf"step_12/\S+ cannot be read: .* move '?{run.step(12)}'? away and go on"):
        set_damaged_aside(run)
    assert run.steps() == before


def test_whole_checkpoints_stay_where_they_are(run: RunFolder) -> None:
    steps = run.steps()
    assert set_damaged_aside(run) == []
    assert run.steps() == steps
