"""From Python: `train`, `evaluate` and `score` do what the command line does, and a stopped training goes on."""

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from commands import call_tmt
from threads import torch_threads
from toy import toy_config, toy_mapping, write_toy_corpus
from trainings import assert_same_run, metrics_with_clock, start, to_the_end

import transformer_mt
from transformer_mt import UserError, evaluate, score, train
from transformer_mt.training.monitoring.monitor import StepReport


@pytest.fixture(autouse=True)
def on_one_thread() -> Iterator[None]:
    """As the command lines that are compared: sums of another number of threads are rounded otherwise."""
    with torch_threads(1):
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a corpus and toy.yaml."""
    write_toy_corpus(tmp_path / "data")
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(toy_mapping(Path("data"))))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_step_is_reported_with_what_the_metrics_say(folder: Path) -> None:
    reports: list[StepReport] = []
    result = train("toy.yaml", {"training.max_steps": 10}, on_step=reports.append)
    assert (result.run, result.step, result.reason) == (Path("runs/toy"), 10, "max_steps 10 reached")
    assert [report.step for report in reports if report.validation is None] == list(range(1, 11))
    lines = metrics_with_clock(folder / "runs/toy")
    written = {line["step"]: line for line in lines if line["kind"] == "train"}
    for report in reports:
        if report.validation is None:
            line = {key: value for key, value in written.get(report.step, {}).items() if key not in ("kind", "step")}
            assert report.metrics == line
    validations = {line["step"]: line for line in lines if line["kind"] == "validation"}
    told = {report.step: report.validation for report in reports if report.validation is not None}
    assert told.keys() == validations.keys() == {7, 10}
    assert all(told[step]["nll"] == validations[step]["nll"] for step in told)
    best = min(validations, key=lambda step: validations[step]["nll"])
    assert (result.best_step, result.best_score) == (best, validations[best]["nll"])
    assert result.best_scores["bleu"] == validations[best]["bleu"]


def test_what_it_prints_may_go_to_a_stream_of_few_characters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a program's output goes to a file on Windows."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    assert train("toy.yaml", {"training.max_steps": 1}).step == 1
    assert sys.stdout.errors == "strict"
    sys.stdout.flush()
    assert "\\uffed" in written.getvalue().decode("cp1252")


def test_a_second_training_in_a_process_is_the_one_of_a_process_of_its_own(folder: Path) -> None:
    train("toy.yaml", ["name=first", "seed=9", "model.d_model=32"])
    train("toy.yaml", ["name=second"])
    assert to_the_end(start(folder, "train", "--config", "toy.yaml", "name=alone")).returncode == 0
    assert_same_run(folder / "runs/alone", folder / "runs/second", 20)


@pytest.mark.parametrize("way", ["raised", "signal"])
def test_an_interrupted_training_is_saved_and_goes_on_as_if_it_never_stopped(folder: Path, way: str) -> None:
    def stop(report: StepReport) -> None:
        if report.step == 9:
            if way == "raised":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="saved at step 9; the same call with resume=True goes on there"):
        train("toy.yaml", on_step=stop)
    assert signal.getsignal(signal.SIGINT) is before
    steps: list[int] = []
    result = train("toy.yaml", resume=True, on_step=lambda report: steps.append(report.step))
    assert result.step == 20
    assert steps[0] == 10
    train("toy.yaml", ["name=straight"])
    for name in ("toy", "straight"):  # the stop left a checkpoint of its own
        for path in (folder / "runs" / name / "checkpoints").iterdir():
            if path.name not in ("step_20",):
                path.rename(folder / f"{name}_{path.name}")
    assert_same_run(folder / "runs/straight", folder / "runs/toy", 20)


def test_any_other_error_of_the_callback_comes_out(folder: Path) -> None:
    def fail(report: StepReport) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train("toy.yaml", on_step=fail)

    def ask(report: StepReport) -> None:  # as of a server that is down; it is no full disk
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(ConnectionRefusedError, match="Connection refused"):
        train("toy.yaml", resume=True, on_step=ask)
    train("toy.yaml", {"training.max_steps": 3}, resume=True)  # the lock is free, and nothing is left behind


def test_configs_of_every_form_are_the_same(folder: Path) -> None:
    change = {"training.max_steps": 5, "data.train": [{"src": "train.en", "tgt": "train.es"}]}
    extending = {"extends": "toy.yaml", "name": "extending", "training": {"max_steps": 5}}
    given = [
        train("toy.yaml", {**change, "training.max_steps": np.int64(5), "name": Path("of_file")}),
        train({**toy_mapping(Path("data")), "name": "of_map"}, change),
        train(toy_config(Path("data")), {**change, "name": "of_config"}),
        train(extending),
    ]
    assert extending == {"extends": "toy.yaml", "name": "extending", "training": {"max_steps": 5}}
    texts = {(training.run / "config.yaml").read_text().partition("\n")[2] for training in given}
    assert len(texts) == 1
    assert len({training.best_score for training in given}) == 1


def test_evaluate_and_score_give_what_the_command_line_gives(folder: Path) -> None:
    run = train("toy.yaml", {"data.test": [{"src": "valid.en", "tgt": "valid.es"}]}).run
    found = evaluate(run, beam_size=1, save=False)
    assert found.saved is None
    assert not (run / "evaluations").exists()
    told = call_tmt(folder, "evaluate", "--beam-size", "1")
    saved = json.loads((folder / told.stdout.split("saved: ")[1].strip()).read_text())
    for name in ("bleu", "chrf", "nll", "num_sentences", "bleu_signature"):
        assert getattr(found.scores, name) == saved[name]
    moved = evaluate(run, data_root=Path("data"), beam_size=1, save=False)
    assert moved.rows == found.rows
    of_files = evaluate(str(run), src="data/valid.en", ref=["data/valid.es", "data/valid.es"], beam_size=1)
    assert "nrefs:2" in of_files.scores.bleu_signature
    assert of_files.saved is not None
    assert [row["hypothesis"] for row in of_files.rows] == [row["hypothesis"] for row in found.rows]
    scored = score(run, ["one two."], ["dos uno."], length_penalty=0.0)
    (folder / "src").write_text("one two.\n")
    (folder / "ref").write_text("dos uno.\n")
    printed = call_tmt(folder, "score", "--src", "src", "--ref", "ref", "--length-penalty", "0").stdout
    assert float(printed) == pytest.approx(scored[0].score, abs=1e-3)
    translator = transformer_mt.Translator.load(run)
    assert score(translator, ["one two."], ["dos uno."], length_penalty=0.0)[0].log_prob == scored[0].log_prob


def test_scores_that_cannot_be_saved_are_returned(folder: Path) -> None:
    run = train("toy.yaml", {"training.max_steps": 2}).run
    (run / "evaluations").write_text("in the way")
    with pytest.warns(UserWarning, match=r"cannot be written: File exists\. The result is returned all the same;"):
        found = evaluate(run, split="validation", beam_size=1)
    assert found.saved is None
    assert len(found.rows) == found.scores.num_sentences > 0


def test_mistakes(folder: Path) -> None:
    for wrong in (None, 5, ["name=q", 3], [("model.d_model", 3)]):
        with pytest.raises(UserError, match=r"overrides is .*Give a list of texts"):
            train("toy.yaml", wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"overrides has <object .*Give text, a number"):
        train("toy.yaml", {"name": object()})
    with pytest.raises(UserError, match=r"config is None\. Give a YAML file"):
        train(None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"None stands where a path is needed"):
        train("toy.yaml", runs=None)  # pyright: ignore[reportArgumentType]
    no_flags: list[dict[str, Any]] = [{"resume": "no"}, {"progress": "no"}]
    for given in no_flags:
        with pytest.raises(UserError, match=r"(resume|progress) is 'no'\. Give True or False"):
            train("toy.yaml", **given)
    with pytest.raises(UserError, match="overrides is a list"):
        train("toy.yaml", "training.max_steps=3")
    with pytest.raises(UserError, match="on_step is 3, which cannot be called"):
        train("toy.yaml", on_step=3)  # pyright: ignore[reportArgumentType]
    assert not Path("runs/toy").exists()
    with pytest.raises(UserError, match="did you mean max_steps"):
        train("toy.yaml", {"training.max_step": 3})
    train("toy.yaml", {"training.max_steps": 2})
    with pytest.raises(UserError, match=r"exists already.*`--resume auto` \(in Python: resume=True\)"):
        train("toy.yaml")
    with pytest.raises(UserError, match="names no test data"):
        evaluate("runs/toy")
    with pytest.raises(UserError, match=r"\['a', 'b'\] stands where a path is needed"):
        evaluate("runs/toy", src=["a", "b"], ref="c")  # pyright: ignore[reportArgumentType]
    no_paths: list[dict[str, Any]] = [
        {"run": None}, {"run": "runs/toy", "src": "a", "ref": 5}, {"run": "runs/toy", "data_root": 5},
    ]  # fmt: skip
    for given in no_paths:
        with pytest.raises(UserError, match=r"(None|5) stands where a path is needed"):
            evaluate(**given)
    no_flags = [{"lowercase": "x"}, {"save": None}, {"progress": 1}]
    for given in no_flags:
        with pytest.raises(UserError, match=r"(lowercase|save|progress) is .*\. Give True or False\."):
            evaluate("runs/toy", split="validation", **given)
    for split in ("", []):
        with pytest.raises(UserError, match=r"There is no split (''|\[\])\. Use train, validation or test"):
            evaluate("runs/toy", split=split)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="src and ref go together"):
        evaluate("runs/toy", src="data/valid.en")
    with pytest.raises(UserError, match="src and split were both given"):
        evaluate("runs/toy", split="test", src="data/valid.en", ref="data/valid.es")
    with pytest.raises(UserError, match="src and data_root were both given"):
        evaluate("runs/toy", data_root="data", src="data/valid.en", ref="data/valid.es")


def test_what_a_loaded_translator_cannot_follow_is_refused_by_name(folder: Path) -> None:
    run = train("toy.yaml", {"training.max_steps": 2}).run
    translator = transformer_mt.Translator.load(run, precision="fp32")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"checkpoint": "last"}, "checkpoint is 'last', and this translator is loaded already"),
        ({"device": "cpu"}, "device is 'cpu', and this translator is loaded already"),
        ({"precision": "bf16"}, "precision is bf16, and this translator was loaded in fp32"),
    ]
    for given, said in refused:
        with pytest.raises(UserError, match=said):
            evaluate(translator, split="validation", **given)
        with pytest.raises(UserError, match=said):
            score(translator, ["one."], ["uno."], **given)
    with pytest.raises(UserError, match="precision is int8, and this translator was loaded in fp32"):
        translator.translate(["one."], precision="int8")
    assert translator.translate(["one."], precision="fp32") == translator.translate(["one."])
    with pytest.raises(UserError, match="constraints is unordered, and what is evaluated has none"):
        evaluate(run, split="validation", constraints="unordered")
    with pytest.raises(UserError, match="n_best is 3, and the best translation of a whole source is scored"):
        evaluate(run, split="validation", n_best=3)
    with pytest.raises(UserError, match="beam_sizes: unknown key, did you mean beam_size"):
        translator.translate(["one."], beam_sizes=None)


def test_a_home_is_meant_in_every_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    run = train("~/toy.yaml", {"training.max_steps": 2}, runs="~/runs").run
    assert run == folder / "runs/toy"
    assert evaluate("~/runs/toy", src="~/data/valid.en", ref="~/data/valid.es", beam_size=1, save=False).rows
    with pytest.raises(UserError, match="~nobodyxyz/x is not the folder of a run"):
        evaluate("~nobodyxyz/x")
    assert train("toy.yaml", {"training.max_steps": 2}, runs="~nobodyxyz/x").run == Path("~nobodyxyz/x/toy")


def test_the_names_are_those_of_the_package() -> None:
    assert set(transformer_mt.__all__) <= set(dir(transformer_mt))
    assert all(getattr(transformer_mt, name) for name in transformer_mt.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        transformer_mt.trian  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    assert torch.is_grad_enabled()
