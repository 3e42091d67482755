"""A few real steps, a validation, a checkpoint and a search, in processes whose memory is for nothing else."""

import json
import math
import multiprocessing
import os
import sys
import tempfile
import traceback
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from transformer_mt.config.loading import parse_run_config
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.preparation import prepare_training_data
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.machine.device import choose_device
from transformer_mt.storage.run_folder import RunFolder
from transformer_mt.training.run import start_or_resume
from transformer_mt.training.stop_signals import unwind_on_signals

# The first steps and validations load kernels. A step behind a validation or a save has waited for it.
WARM_UP, EVERY, SAVED, NUM_STEPS = 3, 4, 14, 16
DISTURBED = (*range(EVERY, SAVED, EVERY), SAVED)
# Where those steps take fewer seconds, a second training has more of them, and logs so many together.
SECONDS, TOGETHER = 2.0, 10
# A GPU prepares in its first steps for later ones (see `pass_graphs.py`), so the fastest `TOGETHER` of so many count.
ON_A_GPU = 300
SAMPLE = 4  # batches of the search


@dataclass(frozen=True)
class Measured:
    """Seconds of a target token in a step, of a validation with its checkpoint, of another checkpoint, and those that
    the first validations took beyond a later one. Bytes of the training and of a search: of the process, or on a GPU of
    torch's tensors there; None on Windows, and of a model that writes no text. What `max_tokens: auto` came to.
    """

    seconds_a_token: float
    validation_seconds: float
    first_validations_seconds: float
    checkpoint_seconds: float
    training_bytes: int | None
    decoding_bytes: int | None
    max_tokens: int
    micro_batches: int
    steps: int


def measure(config: RunConfig, tgt_a_src: float) -> Measured:
    """Train a few steps as the config says, in a folder that is deleted afterwards. `tgt_a_src`: target tokens for each
    of the source, by which the search of an untrained model, which knows no end, is made as long as a trained one's.
    Raises UserError where the training would.
    """
    with unwind_on_signals(), tempfile.TemporaryDirectory(prefix="tmt-explain-") as folder:
        few = few_steps(config, tgt_a_src)
        bytes_of_training, state = _in_a_process(_train, few, folder)
        writes = config.model.architecture != "encoder_only"
        bytes_of_search = _in_a_process(_search, few, folder)[0] if writes else None
        seconds, tokens = _of_steps(folder)
        paced, steps = [step for step in seconds if step > WARM_UP and step - 1 not in DISTURBED], NUM_STEPS
        whole, num_tokens = sum(seconds[step] for step in paced), sum(tokens[step] for step in paced)
        on_a_gpu = choose_device(config.training.device).value.startswith("cuda")
        if on_a_gpu or whole < SECONDS:
            steps = ON_A_GPU if on_a_gpu else TOGETHER * (1 + math.ceil(SECONDS * len(paced) / whole / TOGETHER))
            with tempfile.TemporaryDirectory(prefix="longer-", dir=folder) as longer:
                _in_a_process(_train, _steps_alone(few, steps), longer)
                seconds_of_lines, tokens_of_lines = _of_steps(longer)
            lines = tokens_of_lines.keys()
            if on_a_gpu:
                lines = [min(lines, key=lambda line: seconds_of_lines[line] / tokens_of_lines[line])]
            whole, num_tokens = (sum(each[line] for line in lines) for each in (seconds_of_lines, tokens_of_lines))
    pace = whole / num_tokens
    *asides, save = (max(0.0, seconds[step + 1] - pace * tokens[step + 1]) for step in DISTURBED)
    validation = min(asides)  # one may have waited for the machine
    beyond = sum(one - validation for one in asides)
    max_tokens, micro_batches = state
    num_bytes = (bytes_of_training, bytes_of_search)
    return Measured(pace, validation, beyond, save, *num_bytes, max_tokens, micro_batches, steps)


def few_steps(config: RunConfig, tgt_a_src: float) -> RunConfig:
    """The config with a few steps, each of them written down, validations and one checkpoint among them."""
    mapping = config.model_dump()
    mapping["training"] |= {
        "max_steps": NUM_STEPS, "max_epochs": None, "max_minutes": None, "schedule": "noam", "factor": 1.0, "lr": None,
        "warmup_steps": 1000, "decay_steps": None, "log_every_steps": 1, "checkpoint_every_steps": SAVED,
        "average_last": None, "keep_checkpoints": 1,
    }  # fmt: skip
    if mapping["training"]["consistency"]:
        mapping["training"]["consistency"]["start_step"] = 1
    mapping["validation"] |= {"every_steps": EVERY, "every_epochs": None, "patience": None}
    mapping["decoding"] |= {"max_length_ratio": round(tgt_a_src, 3), "max_length_extra": 1}
    return parse_run_config(mapping, "the config of a few steps")


def _steps_alone(few: RunConfig, steps: int) -> RunConfig:
    """What `few_steps` gave with so many of them, which no validation, checkpoint or line for each of them disturbs."""
    training = {"max_steps": steps, "checkpoint_every_steps": steps, "log_every_steps": TOGETHER}
    parts = {
        "training": few.training.model_copy(update=training),
        "validation": few.validation.model_copy(update={"every_steps": steps}),
    }
    return few.model_copy(update=parts)


def _of_steps(folder: str) -> tuple[dict[int, float], dict[int, int]]:
    """Seconds and target tokens up to each line of metrics from the one before, of the training in the folder."""
    lines = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    both = list(pairwise(line for line in lines if line["kind"] == "train"))
    seconds = {now["step"]: now["elapsed_seconds"] - before["elapsed_seconds"] for before, now in both}
    return seconds, {now["step"]: now["num_tokens"] - before["num_tokens"] for before, now in both}


def _in_a_process(work: Any, config: RunConfig, folder: str) -> tuple[int | None, Any]:
    """The `_peak_bytes` of a process that does this and nothing else, and what it returned; or its UserError."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_do, args=(work, sender, config, folder))
    process.start()
    sender.close()
    try:
        error, num_bytes, result = receiver.recv()
    except EOFError:
        process.join()
        raise UserError(
            f"The few steps that are measured ended without a result (status {process.exitcode}); memory may have run "
            "out. Use --no-measure for all that is known without them."
        ) from None
    finally:
        if process.is_alive() and sys.exc_info()[0] in (KeyboardInterrupt, SystemExit):  # by a signal
            process.kill()
        process.join()
    if error:
        raise UserError(error)
    return num_bytes, result


def _do(work: Any, sender: Connection, config: RunConfig, folder: str) -> None:
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        sys.stderr = nowhere  # the bar
        try:
            result = work(config, folder)
            sender.send(("", _peak_bytes(), result))
        except UserError as error:
            sender.send((str(error), 0, None))
        except Exception:  # whose traceback nobody would see
            told = "The few steps that are measured failed. Use --no-measure for all that is known without them."
            sender.send((f"{told}\n{traceback.format_exc()}", 0, None))


def _train(config: RunConfig, folder: str) -> tuple[int, int]:
    run = RunFolder(Path(folder) / "run")
    start_or_resume(config, run, resume=False)
    state = json.loads((run.step(run.steps()[-1]) / "state.json").read_text())
    return state["max_tokens"], state["micro_batches_per_update"]


def _search(config: RunConfig, folder: str) -> None:
    split = prepare_training_data(config).validation
    translator = Translator.load(str(Path(folder) / "run"), "last", config.training.device)
    number = min(len(split), SAMPLE * config.decoding.batch_size)
    translator.translate([src for src, _ in split.sample_texts(number, config.seed)])


def _peak_bytes() -> int | None:
    """Of this process so far. The system's own peak may be one that the process inherited from its parent. None on
    Windows, which Python asks for none.
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_reserved()  # graphs keep memory that torch counts as free
    try:
        lines = Path("/proc/self/status").read_text().split("\n")
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        if sys.platform == "win32":
            return None
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
