"""Other toolkits' decoders for bench_decode.py, run by the Python of an environment that has them.

A list of one job comes as JSON on standard input, a list of one result goes as JSON to standard output. The models have
the shape of the trained one and random weights. Such a model does not end by itself, so a batch is made to write as
many tokens as the trained one's longest translation of it.
"""

import json
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from measuring.peak_memory import peak_memory

Decode = Callable[[Tensor, int], None]


def marian(job: dict[str, Any]) -> tuple[Decode, int]:
    """transformers' `generate`, with its cache."""
    from transformers import MarianConfig, MarianMTModel  # pyright: ignore[reportMissingImports]

    layers, heads = job["layers"], job["num_heads"]
    config = MarianConfig(
        vocab_size=job["vocab_size"], d_model=job["d_model"], encoder_layers=layers, decoder_layers=layers,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=job["d_ff"],
        decoder_ffn_dim=job["d_ff"], activation_function="relu", pad_token_id=0, eos_token_id=3,
        forced_eos_token_id=None, decoder_start_token_id=2, bos_token_id=2, max_position_embeddings=512,
    )  # fmt: skip
    model = MarianMTModel(config).eval().to(job["device"])
    model.generation_config.max_length = None

    def decode(src: Tensor, length: int) -> None:
        model.generate(src, attention_mask=(src != 0).long(), num_beams=job["beam_size"], do_sample=False,
                       min_new_tokens=length, max_new_tokens=length, use_cache=True)  # fmt: skip

    return decode, 0


def joey(job: dict[str, Any]) -> tuple[Decode, int]:
    """Joey NMT's `search`, as its `translate` calls it."""
    from joeynmt.batch import Batch  # pyright: ignore[reportMissingImports]
    from joeynmt.model import build_model  # pyright: ignore[reportMissingImports]
    from joeynmt.search import search  # pyright: ignore[reportMissingImports]
    from joeynmt.vocabulary import Vocabulary  # pyright: ignore[reportMissingImports]

    pad, bos, eos = 1, 2, 3
    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
        unk_id=0, pad_id=pad, bos_id=bos, eos_id=eos,
    )  # fmt: skip
    vocabulary = Vocabulary([f"token{i}" for i in range(job["vocab_size"] - 4)], special)
    side = {
        "type": "transformer", "num_layers": job["layers"], "num_heads": job["num_heads"],
        "embeddings": {"embedding_dim": job["d_model"], "scale": True, "dropout": 0.0},
        "hidden_size": job["d_model"], "ff_size": job["d_ff"], "dropout": 0.1, "layer_norm": "post",
    }  # fmt: skip
    model = build_model({"encoder": side, "decoder": dict(side), "tied_softmax": True}, vocabulary, vocabulary)
    model = model.eval().to(job["device"])

    def decode(src: Tensor, length: int) -> None:
        lengths = (src != pad).sum(dim=1)
        batch = Batch(src, lengths, None, None, None, torch.arange(len(src)), src.device, pad, eos, is_train=False)
        search(model, batch, length, job["beam_size"], 1.0, min_output_length=length, generate_unk=False)

    return decode, pad


SIDES = {"hf": marian, "joey": joey}


def main() -> None:
    """Warm up, then all sentences at each batch size; the best counts."""
    (job,) = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    decode, pad = SIDES[job["side"]](job)

    def translate(rows: list[tuple[list[int], int]], size: int) -> None:
        rows = sorted(rows, key=lambda row: -len(row[0]))
        for start in range(0, len(rows), size):
            sources = [src for src, _ in rows[start : start + size]]
            longest = max(map(len, sources))
            padded = torch.tensor([src + [pad] * (longest - len(src)) for src in sources])
            with torch.inference_mode():
                decode(padded.to(job["device"]), max(written for _, written in rows[start : start + size]))
        if job["device"] != "cpu":
            torch.cuda.synchronize()

    translate(job["rows"][:64], min(job["sizes"]))
    found = []
    on_gpu = job["device"] != "cpu"
    for size in job["sizes"]:
        if on_gpu:
            translate(job["rows"], size)
        start = time.perf_counter()
        translate(job["rows"], size)
        seconds = time.perf_counter() - start
        memory = peak_memory(lambda size=size: translate(job["rows"], size), job["device"]) if on_gpu else 0
        found.append((seconds, size, memory))
    seconds, size, memory = min(found)
    memory = memory or peak_memory(lambda: translate(job["rows"], size))
    num_tokens = sum(written for _, written in job["rows"])
    result = {"seconds": seconds, "batch_size": size, "num_tokens": num_tokens, "memory": memory, "texts": []}
    print(json.dumps([result]))


if __name__ == "__main__":
    main()
