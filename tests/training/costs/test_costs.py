"""What `tmt config explain` says of a training's costs, beside the training."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import call_tmt
from measured_costs import measured_costs
from toy import toy_config, toy_mapping
from trainings import metrics_with_clock
from waiting import wait_until

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.consistency import ConsistencyConfig
from transformer_mt.errors import UserError
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.costs import measuring
from transformer_mt.training.costs.measuring import _in_a_process, _peak_bytes, _train
from transformer_mt.training.costs.total import costs, epochs_of, minutes, steps_to_the_end, told
from transformer_mt.training.run import start_or_resume

LATE = ConsistencyConfig(kind="rdrop", start_step=10)
JOINT = {"kind": "word", "vocab_size": 100, "min_frequency": 1, "joint": True}
CASES: dict[str, dict[str, Any]] = {
    "encoder_decoder": {"model": {"d_model": 64, "num_encoder_layers": 2}, "training": {"freeze": ["encoder"]}},
    "decoder_only": {
        "model": {"architecture": "decoder_only", "d_model": 64, "num_encoder_layers": 0}, "tokenizer": JOINT,
        "training": {"ema_decay": 0.9, "grad_accum": 3},
    },
    "rnn": {"model": {"architecture": "rnn", "d_model": 64}},
}  # fmt: skip


def case(corpus: Path, name: str, **training: Any) -> RunConfig:
    values = CASES[name]
    whole = {**values.get("training", {}), "max_steps": None, "max_epochs": 2, **training}
    return toy_config(corpus, **{**values, "training": whole})


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_epochs_of_both_directions_are_counted_as_two(corpus: Path, tmp_path: Path) -> None:
    both = {"data": {"both_directions_epochs": 2}, "tokenizer": JOINT, "training": {"max_steps": None, "max_epochs": 5}}
    config = toy_config(corpus, **both)
    found, run = costs(config, measured=False), RunFolder(tmp_path / "run")
    start_or_resume(config, run, resume=False)
    assert found["steps"] == pytest.approx(run.steps()[-1], abs=5)  # an epoch's last batches are not full
    assert found["epochs"] == pytest.approx(5, abs=0.1)
    assert [epochs_of(config, first) for first in (1, 2, 2.5, 3)] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", CASES)
def test_what_is_known_beforehand_is_what_then_happens(corpus: Path, tmp_path: Path, name: str) -> None:
    found = costs(case(corpus, name), measured=False)
    steps = found["steps_an_epoch"]
    run = RunFolder(tmp_path / "run")
    start_or_resume(case(corpus, name, max_epochs=1, log_every_steps=steps), run, resume=False)
    last = run.step(run.steps()[-1])
    assert run.steps()[-1] == steps
    assert found["steps"] == 2 * steps
    line = next(line for line in metrics_with_clock(run.path) if line["kind"] == "train")
    assert line["padding"] == pytest.approx(found["padding"], rel=1e-9)
    assert found["checkpoint_bytes"] == pytest.approx(folder_bytes(last), rel=0.01)
    state = json.loads((last / "state.json").read_text())
    assert state["step"] == steps


def test_minutes_are_steps_and_validations_and_checkpoints(corpus: Path) -> None:
    from transformer_mt.training.costs.known import Epoch, KnownCosts
    from transformer_mt.training.costs.measuring import Measured

    found = Measured(0.5, 7.0, 6.0, 3.0, 0, 0, 64, 1, 16)
    epoch = Epoch(updates=10, num_tokens=40, padding=0.1)
    config = toy_config(corpus, training={"max_steps": 25, "checkpoint_every_steps": 8}, validation={"every_steps": 10})
    steps = steps_to_the_end(config, KnownCosts(1, 1, 1, 1, epoch))
    assert steps == 25
    # 25 steps of 4 tokens of half a second; validations at 10, 20 and 25, of which the first took longer; checkpoints
    # at 8, 16 and 24
    assert minutes(config, epoch, steps, found) == pytest.approx((25 * 4 * 0.5 + 3 * 7 + 6 + 3 * 3) / 60)
    short = config.model_copy(update={"training": config.training.model_copy(update={"max_minutes": 0.2})})
    assert minutes(short, epoch, steps, found) == 0.2
    # Of 25 steps, 16 have both of the passes that were measured; 9 have half of them.
    config = config.model_copy(update={"training": config.training.model_copy(update={"consistency": LATE})})
    seconds = (16 + 9 / 2) * 4 * 0.5 + 3 * 7 + 6 + 3 * 3
    assert minutes(config, epoch, steps, found) == pytest.approx(seconds / 60)
    # The weights of another run are validated before the first step, parts of them are not.
    for parts, more in ((None, 7), (["encoder"], 0)):
        begun_from = {"init_from": {"run": "runs/mine", "parts": parts}}
        training = {"max_steps": 25, "checkpoint_every_steps": 8, **begun_from}
        config = toy_config(corpus, training=training, validation={"every_steps": 10})
        seconds = 25 * 4 * 0.5 + 3 * 7 + 6 + 3 * 3 + more
        assert minutes(config, epoch, steps, found) == pytest.approx(seconds / 60)


def test_epochs_of_both_directions_are_validated_once(corpus: Path) -> None:
    from transformer_mt.training.costs.known import Epoch, KnownCosts
    from transformer_mt.training.costs.measuring import Measured

    found = Measured(0.0, 60.0, 0.0, 0.0, 0, 0, 64, 1, 16)
    for both, updates in ((0, 10), (10, 20)):
        config = toy_config(
            corpus, tokenizer=JOINT, data={"both_directions_epochs": both},
            training={"max_steps": None, "max_epochs": 20}, validation={"every_steps": None, "every_epochs": 1},
        )  # fmt: skip
        epoch = Epoch(updates=updates, num_tokens=40, padding=0.1)
        steps = steps_to_the_end(config, KnownCosts(1, 1, 1, 1, epoch))
        assert minutes(config, epoch, steps, found) == pytest.approx(20)


@pytest.mark.parametrize(
    ("training", "data", "steps"),
    [
        ({"max_epochs": 2, "max_minutes": 5}, {"streaming": True}, "not known of a stream"),
        (
            {"max_epochs": 2, "max_tokens": "auto", "update_tokens": 512},
            {},
            "not known before max_tokens: auto is tried",
        ),
        ({"max_minutes": 5}, {}, "as many as max_minutes allow"),
    ],
)
def test_steps_that_nobody_knows_are_told_with_their_reason(corpus: Path, training: dict, data: dict, steps: str):
    config = toy_config(corpus, training={"max_steps": None, **training}, data=data)
    assert f"steps to the end  {steps}" in told(config, costs(config, measured=False))


@pytest.fixture
def folder(tmp_path: Path, corpus: Path) -> Path:
    mapping = toy_mapping(corpus, data={"cache_dir": str(tmp_path / "cache")})
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(mapping))
    return tmp_path


def test_the_command_prints_origins_and_costs_and_leaves_nothing(folder: Path) -> None:
    result = call_tmt(folder, "config", "explain", "toy.yaml", "seed=9", "--no-measure")
    assert result.returncode == 0, result.stderr
    assert "# override" in result.stdout
    assert "# toy.yaml:" in result.stdout
    assert "memory, minutes   not measured" in result.stdout
    assert not (folder / "runs").exists()


def test_a_few_steps_are_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured_costs(folder, "toy.yaml", monkeypatch)
    assert found["measured_steps"] > 16  # so short that sixteen show little
    assert 100e6 < found["decoding_bytes"] < 3e9
    assert 100e6 < found["training_bytes"] < 3e9
    assert found["minutes"] > 400 * found["seconds_a_step"] / 60 > 0
    assert not (folder / "runs").exists()


def test_on_windows_all_but_the_memory_is_told(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's module that asks the system for it is not there."""
    assert (_peak_bytes() or 0) > 1e6
    config = toy_config(corpus)
    found = costs(config, measured=False) | {"measured_steps": 16, "validation_seconds": 1.0, "minutes": 1.0}
    monkeypatch.setattr(measuring, "Path", lambda _: corpus / "nowhere")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)
    assert _peak_bytes() is None
    assert "memory of training  not known here\n" in told(config, found)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
def test_a_signal_while_it_measures_leaves_no_process_and_no_folder(folder: Path) -> None:
    temporary = folder / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "config", "explain", "toy.yaml", "--json"],
        cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    while process.poll() is None and not list(temporary.glob("tmt-explain-*/run/config.yaml")):
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, list(temporary.glob("tmt-explain-*"))) == (143, [])
    assert "Traceback" not in errors
    # Multiprocessing's own process ends when it notices.
    wait_until(lambda: not any(Path("/proc", child).exists() for child in children))


def test_what_fails_in_the_steps_that_are_measured_is_told_whole() -> None:
    """It is a fault of the program, and no lack of memory."""
    with pytest.raises(UserError, match=r"measured failed\. Use --no-measure(?s:.*)TypeError: "):
        _in_a_process(int, None, "x")  # pyright: ignore[reportArgumentType]


def test_without_its_data_the_origins_are_printed_and_the_file_is_named(folder: Path) -> None:
    result = call_tmt(folder, "config", "explain", "toy.yaml", "data.root=nowhere")
    assert result.returncode == 2
    assert "root: nowhere" in result.stdout
    assert "The config is as printed. What it costs cannot be said:" in result.stderr
    assert "data.root: there is no folder" in result.stderr
    assert "/nowhere. Name" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_memory_and_minutes_are_within_15_per_cent(corpus: Path, tmp_path: Path, name: str) -> None:
    config = case(corpus, name, max_epochs=None, max_steps=600, checkpoint_every_steps=200)
    found = costs(config, measured=True)
    num_bytes, _ = _in_a_process(_train, config, str(tmp_path))
    seconds = metrics_with_clock(tmp_path / "run")[-1]["elapsed_seconds"]
    print(name, found["training_bytes"] / num_bytes, 60 * found["minutes"] / seconds)
    assert found["training_bytes"] == pytest.approx(num_bytes, rel=0.15)
    assert 60 * found["minutes"] == pytest.approx(seconds, rel=0.15)
