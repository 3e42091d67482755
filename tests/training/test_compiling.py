"""A compiled step is the step, compiled no more often than is said; and what hinders it is named."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from toy import toy_config, write_toy_corpus
from trainings import metrics

from transformer_mt.config.run_folder import RunFolder
from transformer_mt.config.schema import ModelConfig, TrainingConfig
from transformer_mt.errors import UserError
from transformer_mt.machine.device import Choice
from transformer_mt.training import compiling
from transformer_mt.training import run as run_module
from transformer_mt.training.compiling import choose_compile
from transformer_mt.training.run import start_or_resume

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


@pytest.mark.parametrize(
    "num_heads",
    [pytest.param(2, id="heads of 8", marks=pytest.mark.slow), pytest.param(1, id="of 16, which numba would take")],
)
def test_a_compiled_training_is_the_training_and_compiles_no_more_than_is_said(
    num_heads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Graphs are traced and differentiated as ever, and then run as they are: no compiler of C++ or Triton.

    Dropout is off, since on a CPU its random numbers are not torch's. Among the batches are some of one row.
    """
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    corpus = write_toy_corpus(tmp_path / "toy")
    found = {}
    for compile_it in (False, True):
        config = toy_config(
            corpus, model={"dropout": 0.0, "num_heads": num_heads, "num_encoder_layers": 2, "num_decoder_layers": 2},
            training={"compile": compile_it, "max_tokens": 16, "max_steps": 30, "log_every_steps": 5},
            validation={"every_steps": 30, "num_translated": 0},
        )  # fmt: skip
        run = RunFolder(tmp_path / str(compile_it))
        start_or_resume(config, run, resume=False)
        lines = [json.loads(line) for line in run.metrics.read_text().split("\n")[:-1]]
        found[compile_it] = [line for line in lines if line["kind"] == "train"]
    # Uncompiled, the one head is numba's, which sums in another order, and thirty steps of Adam widen what that does.
    tolerance = 1e-4 if num_heads == 2 else 2e-3
    for plain, compiled in zip(found[False], found[True], strict=True):
        for name in ("loss", "nll", "grad_norm"):
            assert compiled[name] == pytest.approx(plain[name], rel=tolerance)
    # Three pieces: encoder layers, decoder layers, cross-entropy; the batches have more shapes than that.
    assert "compiled_graphs" not in found[False][-1]
    assert 3 <= found[True][-1]["compiled_graphs"] <= 6
    said = capsys.readouterr().out
    assert "compile: on (as asked)" in said
    assert re.search(r"compiled before the first step: 3 graphs in \d+ s, 3 in all; at most 6 are expected", said)


@pytest.mark.parametrize(
    ("training", "model", "missing", "named"),
    [
        ({"deterministic": True}, {}, None, "training.deterministic"),
        ({}, {"num_experts": 2}, None, "model.num_experts"),
        ({"sharding": "full"}, {}, None, "training.sharding"),
        ({}, {}, "compiler", "no C\\+\\+ compiler here \\(no-such-compiler\\)"),
        ({}, {}, "triton", "no Triton"),
        ({}, {}, "C compiler", "no C compiler here"),
        ({}, {}, "header", r"no .*Python\.h \(Debian: apt install python3-dev\) here"),
    ],
)
def test_what_hinders_is_named(
    training: dict, model: dict, missing: str | None, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler" if missing == "compiler" else "python3")
    monkeypatch.setattr(compiling, "find_spec", lambda name: None if missing == "triton" else name)
    which = shutil.which
    monkeypatch.setattr(
        compiling.shutil, "which", lambda name: None if missing == "C compiler" and name != "python3" else which(name)
    )
    if missing == "header":
        monkeypatch.setattr(compiling.sysconfig, "get_path", lambda name: "nowhere")
    for wanted in ("auto", True):
        settings = TrainingConfig.model_validate({"max_steps": 1, "compile": wanted, **training})
        if wanted is True:
            with pytest.raises(UserError, match=f"training.compile is true, and .*{named}"):
                choose_compile(settings, ModelConfig.model_validate(model), CUDA, num_processes=2)
        else:
            off = choose_compile(settings, ModelConfig.model_validate(model), CUDA, num_processes=2)
            assert off.value == "off"
            assert "as asked" not in off.reason


def test_auto_is_off_on_a_cpu_and_false_is_off_anywhere() -> None:
    model = ModelConfig()
    for wanted, device in (("auto", CPU), (False, CPU), (False, CUDA)):
        settings = TrainingConfig.model_validate({"max_steps": 1, "compile": wanted})
        assert choose_compile(settings, model, device).value == "off"


@pytest.mark.parametrize("wanted", ["auto", True])
def test_a_compiler_that_fails_is_said_and_done_without_if_nobody_asked_for_it(
    wanted: str | bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The training is then that of `compile: false`."""

    def fails(graph: object, inputs: object) -> None:
        raise RuntimeError("no such file: Python.h")

    monkeypatch.setattr(compiling, "BACKEND", fails)
    monkeypatch.setattr(
        run_module,
        "choose_compile",
        lambda training, *more: Choice("off" if training.compile is False else "on", "planted"),
    )
    torch._dynamo.reset()
    corpus = write_toy_corpus(tmp_path / "toy")
    runs = {}
    for compile_it in (False, wanted):
        runs[compile_it] = RunFolder(tmp_path / str(compile_it))
        config = toy_config(corpus, training={"compile": compile_it})
        if compile_it is True:
            with pytest.raises(
                UserError, match=r"could not be compiled here: .*Python\.h.* Set training.compile: auto"
            ):
                start_or_resume(config, runs[compile_it], resume=False)
            return
        start_or_resume(config, runs[compile_it], resume=False)
    said = capsys.readouterr().out
    assert re.search(r"warning: The step could not be compiled here: .*Python\.h.* Training goes on uncompiled", said)
    assert metrics(runs[False].path) == metrics(runs["auto"].path)
    states = [json.loads((run.step(20) / "state.json").read_text()) for run in runs.values()]
    assert [state["compiled"] for state in states] == [False, False]
