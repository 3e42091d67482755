"""Claims about work, memory and parameters of untrained models: decoding, caches, experts, norms."""

from typing import Any

import torch
from measuring.comparing import least_seconds
from measuring.uncached import PlainDecoder
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from measured_claims.claim import Finding, Settings, decided
from measured_claims.models import encoded, transformer, words
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.cache import DecoderCache
from transformer_mt.model.model_size import model_size
from transformer_mt.model.parts.norms import NORMS
from transformer_mt.model.transformer import Transformer

BOS_ID = 2
# Jiang et al. 2024, table 1 and section 1: all parameters, and those that a token uses, in thousands of millions.
MIXTRAL: dict[str, Any] = {"d_model": 4096, "d_ff": 14336, "num_heads": 32, "num_kv_heads": 8, "num_decoder_layers": 32}
MIXTRAL_VOCABULARY, MIXTRAL_STORED, MIXTRAL_USED = 32_000, 47, 13


def flops_of_step(step: PlainDecoder | DecoderCache, model: Transformer) -> int:
    """The operations of one more token, of one row. Of attention's fused kernel torch's counter knows nothing."""
    token = torch.tensor([BOS_ID])
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        if isinstance(step, PlainDecoder):
            step.step(token)
        else:
            model.decode_step(token, step)
    return counter.get_total_flops()


def filled_cache(model: Transformer, length: int) -> DecoderCache:
    """The cache after so many tokens of one sentence of 8 words."""
    with torch.inference_mode():
        cache = model.start(words(1, 8))
        for _ in range(length):
            model.decode_step(torch.tensor([BOS_ID]), cache)
    assert isinstance(cache, DecoderCache)
    return cache


def cached_decoding(settings: Settings) -> Finding:
    """A step behind so many tokens: with keys and values of the past, and with the whole past computed again."""
    d_model, lengths = (16, (64, 256)) if settings.small else (64, (16, 64, 256))
    model = transformer(d_model, 2)
    src, rows, counts = words(1, 8), [], []
    for length in lengths:
        plain = PlainDecoder(model, src)
        plain.tgt_in = words(1, length - 1)
        counts.append((flops_of_step(filled_cache(model, length - 1), model), flops_of_step(plain, model)))
        rows.append([f"{length}", *(f"{count / 1e6:,.2f}" for count in counts[-1])])
    longer = lengths[-1] / lengths[-2]
    cached, again = (counts[-1][side] / counts[-2][side] for side in (0, 1))
    rows.append([f"{lengths[-1]} beside {lengths[-2]}", f"{cached:.2f} times", f"{again:.2f} times"])
    heads = ("tokens so far", "with a cache, MFLOP a step", "without, MFLOP a step")
    return Finding(heads, rows, decided(cached <= longer and again > longer))


def bytes_of(cache: DecoderCache) -> int:
    """Of the keys and values of the past."""
    return sum(part.nbytes for layer in cache.layers for part in (layer.k, layer.v) if part is not None)


def shared_heads(settings: Settings) -> Finding:
    """Keys and values of 64 tokens, by the number of heads that have their own."""
    length = 16 if settings.small else 64
    sizes = {
        number: bytes_of(filled_cache(transformer(num_heads=8, num_kv_heads=number, layers=2), length))
        for number in (8, 4, 2, 1)
    }
    rows = [[f"{number}", f"{size:,}", f"1/{sizes[8] / size:g}"] for number, size in sizes.items()]
    holds = all(size * 8 == sizes[8] * number for number, size in sizes.items())
    return Finding(("heads of keys and values, of 8", "bytes of the cache", "share"), rows, decided(holds))


def window_reach(settings: Settings) -> Finding:
    """How far back the last position of an encoder depends on a word, by gradients that are not zero."""
    window, depths = 4, (1, 2) if settings.small else (1, 2, 3, 4)
    length = window * depths[-1] + 2
    rows, hold = [], []
    for depth in depths:
        memory, vectors = encoded(
            transformer(layers=depth, attention_window=window, positions="none"), words(1, length)
        )
        (gradient,) = torch.autograd.grad(memory[0, -1].square().sum(), vectors)
        first = int((gradient[0].abs().sum(dim=-1) > 0).nonzero()[0])
        reach, expected = length - 1 - first, depth * (window - 1)
        hold.append(reach == expected)
        rows.append([f"{depth}", f"{reach}", f"{expected}"])
    heads = (f"layers, window of {window}", "farthest word that is seen", "layers x (window - 1)")
    return Finding(heads, rows, decided(all(hold)))


def num_visible(model: Transformer, cache: DecoderCache) -> int:
    """The number of keys that the newest token attended to."""
    mask = model.decoder.step_context(cache, cache.next_at - 1).mask
    assert isinstance(mask, torch.Tensor)
    return int((mask == 0).sum())


def window_memory(settings: Settings) -> Finding:
    """Bytes of keys and values as a translation grows, under a window of 16 tokens."""
    lengths = (32, 64) if settings.small else (32, 64, 256)
    model = transformer(attention_window=16)
    caches = [filled_cache(model, length) for length in lengths]
    rows = [
        [f"{length}", f"{bytes_of(cache):,}", f"{num_visible(model, cache)}"]
        for length, cache in zip(lengths, caches, strict=True)
    ]
    heads = ("tokens so far", "bytes of the cache", "keys that a step attends to")
    return Finding(heads, rows, decided(bytes_of(caches[-1]) == bytes_of(caches[0])))


def experts(settings: Settings) -> Finding:
    """Counted, not allocated. What a token uses is what a model with so many experts has in all."""
    rows, counts, published = [], [], (MIXTRAL_STORED, MIXTRAL_USED)
    for num_experts in (8, 2):
        config = ModelConfig(preset="mixtral", architecture="decoder_only", num_encoder_layers=0, norm="rmsnorm",
                             activation="swiglu", positions="rotary", bias=False, tie_embeddings="none", max_len=4096,
                             num_experts=num_experts, experts_per_token=2, **MIXTRAL)  # fmt: skip
        counts.append(model_size(config, MIXTRAL_VOCABULARY, MIXTRAL_VOCABULARY).parameters)
    for name, count, wanted in zip(("stored", "used by a token"), counts, published, strict=True):
        rows.append([name, f"{count / 1e9:.1f}", f"{wanted}"])
    holds = all(round(count / 1e9) == wanted for count, wanted in zip(counts, published, strict=True))
    heads = ("parameters of Mixtral 8x7B", "counted, in billions", "published")
    return Finding(heads, rows, decided(holds))


def norm_cost(settings: Settings) -> Finding:
    """Both ways through each norm, over 2,048 vectors."""
    d_model, rounds = (32, 2) if settings.small else (512, 30)
    x = torch.randn(2048, d_model, generator=torch.Generator().manual_seed(1)).requires_grad_()
    norms = {kind: NORMS[kind].make(ModelConfig(d_model=d_model)) for kind in ("layernorm", "rmsnorm")}

    def both_ways(norm: torch.nn.Module) -> None:
        norm(x).sum().backward()

    seconds = least_seconds([lambda norm=norm: both_ways(norm) for norm in norms.values()], rounds)
    sizes = [sum(parameter.numel() for parameter in norm.parameters()) for norm in norms.values()]
    rows = [
        [f"`{kind}`", f"{size:,}", f"{second / seconds[0]:.2f}"]
        for kind, size, second in zip(norms, sizes, seconds, strict=True)
    ]
    return Finding(("norm", "parameters", "time, as a ratio"), rows, decided(seconds[1] < seconds[0]))
