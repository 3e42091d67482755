"""The life of a process that searches: it loads the models, says so, and does one job after another."""

import contextlib
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch

from transformer_mt.config.switching_off import NONE
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.inspect.attention import MAX_TOKENS, pair_attention
from transformer_mt.inspect.sentence_pair import sentence_pair
from transformer_mt.machine.memory import free_cached_memory, is_out_of_memory, keep_freed_memory
from transformer_mt.serving.chosen import Chosen
from transformer_mt.storage import checkpoint_files

DIGITS = 3  # of a weight of attention: a picture shows no more


@dataclass(frozen=True)
class Setup:
    """What a process loads: the runs, by the checkpoint of each, and how. `decoding` changes keys of their search."""

    runs: list[Chosen]
    device: str = "cpu"
    decoding: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Work for the translator of one run: its name in `WORKS`, and its arguments."""

    work: str
    run: int
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """What came of a job: a result, or the error. The first outcome of a process has the notes of its translators.
    `is_last` where the process ends with it.
    """

    result: Any = None
    error: Exception | None = field(default=None)
    is_last: bool = False


def look(translator: Translator, source: str, target: str, to: str | None) -> bytes:
    """Every attention of the model on a pair of sentences, as JSON: words, and weights by layer and head. A tag of the
    language `to` is one of the words. Raises UserError for a blank side and for a long one.

    They are millions of numbers. The server would answer nobody while it wrote them.
    """
    source = translator.languages.read(source, to)
    src, tgt = sentence_pair(translator, source, target, MAX_TOKENS)
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    attentions = pair_attention(translator.model, src, tgt, *tokenizers, (source, target))
    shown = [attention.for_a_page(DIGITS) for attention in attentions]
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


WORKS: dict[str, Callable[..., Any]] = {"search": Translator.translate_lines, "look": look}


def live(end: Connection, setup: Setup) -> None:
    """Do the jobs that come, until nobody is left to send one."""
    # Both signals may reach every process of a group. The server finishes what is begun, and needs this one for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    logging.getLogger(checkpoint_files.__name__).setLevel(logging.ERROR)  # the server has told what is missing
    with contextlib.suppress(EOFError, ConnectionError):
        try:
            translators = _load(setup)
        except Exception as error:
            end.send(Outcome(error=_told(error), is_last=True))
            return
        end.send(Outcome([translator.note for translator in translators]))
        while True:
            job = end.recv()
            try:
                outcome = Outcome(WORKS[job.work](translators[job.run], *job.arguments))
            except Exception as error:
                outcome = Outcome(error=_told(error), is_last=_is_last(error, torch.device(setup.device)))
            end.send(outcome)
            if outcome.is_last:
                return


def _load(setup: Setup) -> list[Translator]:
    keep_freed_memory()
    translators = []
    for run in setup.runs:
        translator = Translator.load(run.run, run.name, setup.device, setup.decoding.get("precision"))
        # What is read or made at the first search is so before anybody waits for it, or hears that a file is not there.
        to = translator.languages.names[:1]  # any will do
        translator.translate(["."], **{"to": next(iter(to), None), "constraints": NONE, **setup.decoding})
        run.check()  # now, because it may have changed until it was read
        translators.append(translator)
    return translators


def _is_last(error: Exception, device: torch.device) -> bool:
    """Whether the process can do nothing more, as is so of a GPU after some errors. Its memory is made free."""
    if device.type == "cpu" or isinstance(error, UserError):
        return False
    if is_out_of_memory(error):
        free_cached_memory(device)
        return False
    return True


def _told(error: Exception) -> Exception:
    """The error as it can be sent. One that is no user's is told on standard error, with its traceback."""
    if isinstance(error, UserError):
        return UserError(str(error))
    traceback.print_exc(file=sys.stderr)
    return RuntimeError(f"{type(error).__name__}: {error}")
