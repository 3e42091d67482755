"""The step under torch.compile: the layers of a stack and the cross-entropy, each as one compiled piece.

Layers of one class share their code, so a model has two or three pieces however deep it is. A piece is compiled once
for all shapes: sizes stay symbols, apart from a size of 1, for which torch compiles once more. So the number of
compilations has a bound, and no batch is padded to a fixed shape. The layers are compiled one by one, because then the
gradients of a layer are ready before those of the layer below, and several processes can exchange them meanwhile.

No length that the layers see is a multiple of 8. On a GPU the kernels of attention want masks with rows of such lengths
and copy all others first. A piece that is compiled without the copy works for multiples of 8 alone: at another length
torch from 2.10 on compiles once more, while 2.8 and 2.9 fail in the backward pass. So batches of such a length get a
column of padding, even if the model has no position for it.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch._dynamo import config as dynamo_config
from torch._dynamo.exc import TorchDynamoException
from torch.fx.experimental import _config as fx_config

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.sections.training import TrainingConfig
from transformer_mt.data.batches.batching import Batch
from transformer_mt.errors import UserError
from transformer_mt.machine.device import Choice
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.loss import cross_entropy_sums
from transformer_mt.model.stack import Stack
from transformer_mt.paths import exists

BACKEND = "inductor"  # the tests take another, because this one compiles for too long
OLDEST_GPU = (7, 0)  # the oldest that Triton compiles for
SHAPES_A_PIECE = 2  # batches of several rows, and of one
ALIGNMENT = 8  # of the lengths that kernels of attention take without a copy
# A piece may be compiled so often before torch leaves it uncompiled: kernels may need it for more than sizes.
MOST_RECOMPILES = 64


def choose_compile(
    training: TrainingConfig, model: ModelConfig, device: torch.device, num_processes: int = 1
) -> Choice:
    """`on` or `off`, and why. auto: `on` where the device is a GPU and nothing speaks against it.

    Raises UserError where the config asks for compiling and something speaks against it.
    """
    wanted = training.compile
    if wanted is False:
        return Choice("off", "as asked")
    if wanted == "auto" and device.type != "cuda":
        return Choice("off", f"it does not pay on {device.type}")
    hindrance = _hindrance(training, model, device, num_processes)
    if hindrance is None:
        return Choice("on", "as asked" if wanted is True else "it is a GPU")
    if wanted is True:
        raise UserError(f"training.compile is true, and {hindrance}. Set training.compile: auto, or false.")
    return Choice("off", hindrance)


def _hindrance(training: TrainingConfig, model: ModelConfig, device: torch.device, num_processes: int) -> str | None:
    """The first thing that speaks against compiling, in words."""
    if training.deterministic:
        return "training.deterministic is true, and compiled code depends on the first batch of a process"
    if model.architecture == "rnn":
        return "model.architecture is rnn, whose loop over positions would be compiled anew for each length"
    if model.num_experts > 1:
        return "model.num_experts is more than 1, and experts have shapes that depend on the data"
    if training.sharding == "full" and num_processes > 1:
        return "training.sharding is full, and compiling was never tried with it"
    compiler = os.environ.get("CXX", "g++" if sys.platform.startswith("linux") else "c++")
    if shutil.which(compiler) is None:
        return f"there is no C++ compiler here ({compiler}), which it needs"
    if device.type == "cuda" and find_spec("triton") is None:
        return "there is no Triton here, which it needs on a GPU"
    if device.type == "cuda" and (missing := _missing_for_triton()):
        return f"there is no {missing} here, which Triton needs"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST_GPU:
        return f"{torch.cuda.get_device_name(device)} is older than what Triton compiles for"
    return None


def _missing_for_triton() -> str | None:
    """What is missing for the C code with which Triton starts its kernels from this Python; None where nothing is."""
    if not any(shutil.which(compiler) for compiler in (os.environ.get("CC", "cc"), "gcc", "clang")):
        return "C compiler"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if exists(header) else f"{header} (Debian: apt install python3-dev)"


class CompiledStep:
    """A model's layers, compiled in place, and the compiled cross-entropy that goes with them.

    The parameters keep their names. `most_graphs` is the number of compilations to expect at most, in all; where
    `gpu/output_loss.py` computes the loss, the cross-entropy is never called, and so never compiled.
    """

    def __init__(self, model: TranslationModel) -> None:
        # Sizes that are equal in the first batch may differ later: each gets its own symbol, which saves a graph.
        if hasattr(fx_config, "use_duck_shape"):  # the oldest torch that we support lacks it, and compiles more graphs
            fx_config.use_duck_shape = False
        limit = "recompile_limit" if hasattr(dynamo_config, "recompile_limit") else "cache_size_limit"
        setattr(dynamo_config, limit, max(MOST_RECOMPILES, getattr(dynamo_config, limit)))
        # A symbol for a number would be a float64 on the device, in the innermost loop of the loss.
        if hasattr(dynamo_config, "specialize_float"):
            dynamo_config.specialize_float = True
        # It would cut each layer where DDP sends gradients; they are sent layer by layer anyway.
        dynamo_config.optimize_ddp = False
        self._model = model
        self._stacks = [module for module in model.modules() if isinstance(module, Stack)]
        layers = [layer for stack in self._stacks for layer in stack.layers]
        for stack in self._stacks:
            stack.is_compiled = True
        for layer in layers:
            layer.compile(dynamic=True, backend=BACKEND)
        self.cross_entropy: Any = torch.compile(cross_entropy_sums, dynamic=True, backend=BACKEND)
        self.most_graphs = SHAPES_A_PIECE * (len({type(layer) for layer in layers}) + 1)
        self._before = _graphs_so_far()
        self._told = 0

    def widened(self, batch: Batch) -> Batch:
        """The batch, with one more column where a length that the layers see is a multiple of 8 (see above)."""
        if self._model.goes_unpadded():  # they see one row
            return batch
        src_len, tgt_len = batch.src.size(1), batch.tgt_out.size(1)
        is_stream = self._model.config.architecture == "decoder_only"  # whose layers see both as one
        src_columns = int(src_len % ALIGNMENT == 0 and not is_stream)
        seen = src_len + tgt_len if is_stream else tgt_len
        return batch.widened(src_columns, int(seen % ALIGNMENT == 0))

    def undo(self) -> None:
        """Put the layers back as they were before."""
        for stack in self._stacks:
            stack.is_compiled = False
            for layer in stack.layers:
                layer._compiled_call_impl = None

    @property
    def num_graphs(self) -> int:
        """How many graphs were compiled since this object was made."""
        return _graphs_so_far() - self._before

    def news(self, when: str, seconds: float) -> str | None:
        """A sentence on what was compiled since the last call, None where nothing was."""
        if self.num_graphs == self._told:
            return None
        more, self._told = self.num_graphs - self._told, self.num_graphs
        return (
            f"compiled {when}: {more} graphs in {seconds:.0f} s, {self._told} in all; at most {self.most_graphs} are "
            "expected"
        )


def why_not_compiled(error: Exception) -> str | None:
    """The compiler's message in one line; None where the error is not one of compiling."""
    if not isinstance(error, TorchDynamoException | subprocess.CalledProcessError):
        return None
    paragraph = str(error).strip().partition("\n\n")[0]  # what follows is advice to developers
    return " ".join(paragraph.split()) or type(error).__name__


def uncompiled() -> AbstractContextManager:
    """While inside, compiled layers compute uncompiled. For validations, pictures and replays."""
    return torch.compiler.set_stance("force_eager")


def _graphs_so_far() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]
