"""A side of bench_decode.py: our decoder, or CTranslate2's, over the same lines in batches of several sizes."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring.peak_memory import peak_memory


@dataclass(frozen=True)
class Measured:
    """The best of a side's batch sizes. Peak memory in bytes, of all its processes; `texts` as the sources come."""

    seconds: float
    batch_size: int
    num_tokens: int
    memory: int
    texts: list[str]


PASSES = {"cpu": (0, 1), "cuda": (3, 5)}  # over all lines: untimed, and timed, of which the best counts


def best_of(
    translate: Callable[[list[str], int], list[str]],
    count: Callable[[list[str]], int],
    lines: list[str],
    sizes: list[int],
    device: str,
) -> Measured:
    """`translate(lines, batch_size)` gives the texts, and `count` how many tokens they hold, EOS counted."""
    translate(lines[:64], min(sizes))
    found = []
    untimed, timed = PASSES[device]
    for size in sizes:
        for _ in range(untimed):
            translate(lines, size)  # ours captures a step when its size comes the third time, and keeps it
        seconds, texts = float("inf"), []
        for _ in range(timed):  # on a GPU a pass takes a tenth of a second, and differs from the next by a third
            start = time.perf_counter()
            texts = translate(lines, size)
            seconds = min(seconds, time.perf_counter() - start)
        # On a GPU memory is read now, because a side may keep what a larger size took.
        memory = 0 if device == "cpu" else peak_memory(lambda size=size: translate(lines, size), device)
        found.append((seconds, size, memory, texts))
    seconds, size, memory, texts = min(found)
    return Measured(seconds, size, count(texts), memory or peak_memory(lambda: translate(lines, size)), texts)


def counter(tokenizer: Any) -> Callable[[list[str]], int]:
    """Counts the tokens of texts by either side's tokenizer."""
    return lambda texts: sum(len(row) + 1 for row in tokenizer.encode_batch(texts))


def ours(job: dict, run: Path, lines: list[str], sizes: list[int]) -> Measured:
    """As `tmt translate` does it; or `eager`, without graphs; or `plain`, with nothing remembered. Another checkout is
    asked in the same way, so that only what all have is used.
    """
    from transformer_mt import Translator
    from transformer_mt.machine.memory import keep_freed_memory

    keep_freed_memory()
    translator = Translator.load(run, device=job["device"], precision=job["kind"])
    if job["side"] in ("eager", "plain"):
        give_up_graphs(translator)
    if job["side"] == "plain":
        from measuring.uncached import PlainDecoder

        translator.decoder = PlainDecoder
    config = translator.config

    def translate(texts: list[str], size: int) -> list[str]:
        rules = {"length_norm": "average", "length_penalty": 1.0, "batch_size": size}
        decoding = config.decoding.model_copy(update=rules)  # what every checkout goes by
        translator.config = config.model_copy(update={"decoding": decoding})
        return translator.translate(texts, beam_size=job["beam_size"])

    with translator.keep_processes():  # as `tmt translate` does
        return best_of(translate, counter(translator.tgt_tokenizer), lines, sizes, job["device"])


def give_up_graphs(translator: Any) -> None:
    """With what belongs to them, as a translator has it that was made without."""
    from transformer_mt.decoding.fast_layers.packed_weights import packed

    translator.graphs = None
    translator.search_model = packed(translator.model, translator.precision)


def ctranslate2(job: dict, lines: list[str], sizes: list[int]) -> Measured:
    """On a CPU the better of two ways to use the threads: a batch on each, or all of them on one batch."""
    from transformer_mt.export.ctranslate2 import ExportedTranslator

    threads = job["threads"]

    def with_workers(workers: int) -> Measured:
        translator = ExportedTranslator(
            job["export"], threads=threads // workers, compute_type=job["kind"], device=job["device"], workers=workers
        )

        def translate(texts: list[str], size: int) -> list[str]:
            return translator.translate(texts, beam_size=job["beam_size"], length_penalty=1.0, max_batch_size=size)

        return best_of(translate, counter(translator.tgt_tokenizer), lines, sizes, job["device"])

    ways = {1, threads} if job["device"] == "cpu" else {1}
    return min((with_workers(workers) for workers in ways), key=lambda found: found.seconds)


def measured(job: dict) -> Measured:
    """In the process of the side."""
    if job["side"] == "ct2":
        return ctranslate2(job, job["lines"], job["sizes"])
    import torch

    torch.set_num_threads(job["threads"])
    return ours(job, Path(job["run"]), job["lines"], job["sizes"])


def free_the_device(job: dict) -> None:
    """Give back what a side took of a GPU, whose memory the next one is measured by."""
    gc.collect()
    if job["device"] == "cuda":
        import torch

        torch.cuda.empty_cache()
