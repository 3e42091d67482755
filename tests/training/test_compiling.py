"""A compiled step is the step, compiled no more often than is said; and what hinders it is named."""

import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from toy import toy_config, write_toy_corpus
from trainings import metrics

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.training import TrainingConfig
from transformer_mt.data.batches.batching import Batch, make_batch
from transformer_mt.errors import UserError
from transformer_mt.machine.device import Choice
from transformer_mt.model.architectures import ARCHITECTURES
from transformer_mt.model.parts.positions import POSITIONS
from transformer_mt.model.stack import Stack
from transformer_mt.model.transformer import Decoder, Encoder
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training import compiling
from transformer_mt.training import run as run_module
from transformer_mt.training.compiling import choose_compile
from transformer_mt.training.micro_batch import add_gradient
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.sharing.alone import WithLoss

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_heads", [pytest.param(2, id="heads of 8"), pytest.param(1, id="of 16, which numba would take")]
)
def test_a_compiled_training_is_the_training_and_compiles_no_more_than_is_said(
    num_heads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Graphs are traced and differentiated as ever, and then run as they are: no compiler of C++ or Triton.

    Dropout is off, since on a CPU its random numbers are not torch's. Among the batches are some of one row. No layer
    sees a length that is a multiple of 8, for which a GPU has other kernels.
    """
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    seen: list[int] = []
    passes = {cls: cls.forward for cls in (Encoder, Decoder)}
    for cls, forward in passes.items():

        def noted(self, tokens, *more, forward=forward):
            if self.is_compiled and self.training:
                seen.append(tokens.ids.size(1))
            return forward(self, tokens, *more)

        monkeypatch.setattr(cls, "forward", noted)
    corpus = write_toy_corpus(tmp_path / "toy")
    found = {}
    for compile_it in (False, True):
        config = toy_config(
            corpus, model={"dropout": 0.0, "num_heads": num_heads, "num_encoder_layers": 2, "num_decoder_layers": 2},
            training={"compile": compile_it, "proofs": "off", "max_tokens": 16, "max_steps": 30, "log_every_steps": 5},
            validation={"every_steps": 30, "num_translated": 0},
        )  # fmt: skip
        run = RunFolder(tmp_path / str(compile_it))
        start_or_resume(config, run, resume=False)
        found[compile_it] = [line for line in metrics(run.path) if line["kind"] == "train"]
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
    assert len(seen) >= 2 * 30
    assert 9 in seen
    assert all(length % 8 for length in seen)


LONGEST = (32, 32)  # for which positions matter: widened, it is one longer than the model has positions
WIDENED = [
    ((5, 7), "encoder_decoder", (5, 7)),
    ((8, 7), "encoder_decoder", (9, 7)),
    ((5, 16), "encoder_decoder", (5, 17)),
    ((24, 8), "encoder_decoder", (25, 9)),
    (LONGEST, "encoder_decoder", (33, 33)),
    (LONGEST, "decoder_only", (32, 33)),
    ((8, 16), "decoder_only", (8, 17)),
    ((8, 7), "decoder_only", (8, 7)),
    ((3, 5), "decoder_only", (3, 6)),
]


@pytest.mark.parametrize(
    ("shape", "architecture", "wide", "positions"),
    [
        pytest.param(
            *case, positions, marks=[] if case[0] == LONGEST or positions == "relative_bias" else pytest.mark.slow
        )
        for case in WIDENED
        for positions in POSITIONS
    ],
)
def test_a_compiled_batch_has_no_length_of_a_multiple_of_8(
    shape: tuple, architecture: str, wide: tuple, positions: str
) -> None:
    """The same pairs, the same loss and gradients."""
    torch.manual_seed(0)
    encoder = {"num_encoder_layers": 1 if architecture == "encoder_decoder" else 0}
    model = {"architecture": architecture, "d_model": 16, "d_ff": 16, "num_heads": 2, "num_decoder_layers": 1,
             "dropout": 0.0, "max_len": 32, "positions": positions, **encoder}  # fmt: skip
    network = ARCHITECTURES[architecture](ModelConfig.model_validate(model), 20, 20).train()
    rows = [torch.randint(5, 20, (3, length - 1)).numpy() for length in shape]
    for side in rows:
        side[0, :] = 7
    batch = make_batch([rows[0][0], rows[0][1][:1], rows[0][2]], [rows[1][0], rows[1][1], rows[1][2][:1]])
    assert (batch.src.size(1), batch.tgt_out.size(1)) == shape
    step = compiling.CompiledStep(network)
    step.undo()
    stacks = [module for module in network.modules() if isinstance(module, Stack)]
    widened = step.widened(batch)
    assert (widened.src.size(1), widened.tgt_in.size(1)) == wide
    again = Batch.of(widened.src, widened.tgt_in, widened.tgt_out)
    assert (again.num_tokens, again.num_padding) == (widened.num_tokens, widened.num_padding)
    assert torch.equal(again.real, widened.real)
    found = []
    for one in (batch, widened):
        for stack in stacks:  # as if compiled, which here it is not
            stack.is_compiled = one is widened
        network.zero_grad()
        loss = WithLoss(network)(one, 0.1)
        loss.loss.backward()
        found.append([loss.loss, loss.nll, *(parameter.grad for parameter in network.parameters())])
    for plain, padded in zip(*found, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-5, atol=1e-5)


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
    for compile_it in (False, wanted) if wanted == "auto" else (wanted,):
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


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("bf16", 0.1)])
def test_what_is_compiled_on_a_gpu_is_right_for_every_length(precision: str, tolerance: float) -> None:
    """Whichever comes first, and without compiling for each: see the module's docstring."""
    settings = TrainingConfig.model_validate({"max_steps": 1})
    config = ModelConfig.model_validate({"d_model": 64, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 2,
                                         "num_decoder_layers": 2, "dropout": 0.0})  # fmt: skip
    if (choice := choose_compile(settings, config, CUDA)).value == "off":
        pytest.skip(choice.reason)
    torch.manual_seed(0)
    network = ARCHITECTURES["encoder_decoder"](config, 100, 100).cuda().train()
    torch._dynamo.reset()
    step, found = compiling.CompiledStep(network), []
    for src_len, tgt_len, num_rows in [(8, 8, 6), (9, 7, 5), (16, 5, 4), (5, 24, 3), (24, 16, 2), (7, 8, 1)]:
        rows = [[torch.randint(5, 100, (length - 1,)).numpy()] * num_rows for length in (src_len, tgt_len)]
        batch, gradients = make_batch(*rows).to(CUDA), []
        for compiled in (True, False):
            with_loss = WithLoss(network)
            network.zero_grad()
            with nullcontext() if compiled else compiling.uncompiled():
                if compiled:
                    with_loss.cross_entropy = step.cross_entropy
                scaler = torch.GradScaler("cuda", enabled=False)
                given = step.widened(batch) if compiled else batch
                add_gradient(with_loss, given, 1, precision, 0.1, batch.num_tokens, scaler)
            gradients.append([parameter.grad for parameter in network.parameters()])
        found.append(gradients)
    for compiled, plain in found:
        differences = torch.cat([(one - other).flatten() for one, other in zip(compiled, plain, strict=True)])
        assert differences.norm() <= tolerance * torch.cat([gradient.flatten() for gradient in plain]).norm()
    assert step.num_graphs <= step.most_graphs


def test_a_recurrent_network_is_not_compiled() -> None:
    model = ModelConfig(architecture="rnn")
    with pytest.raises(UserError, match=r"training.compile is true, and model.architecture is rnn, .* auto, or false"):
        choose_compile(TrainingConfig(max_steps=1, compile=True), model, torch.device("cpu"))
    found = choose_compile(TrainingConfig(max_steps=1), model, torch.device("cuda"))
    assert (found.value, "model.architecture is rnn" in found.reason) == ("off", True)
