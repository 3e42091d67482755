"""Claims about attention's scores, heads and positions, of untrained parts."""

import torch
from measuring.comparing import least_seconds
from torch import Tensor

from measured_claims.claim import Finding, Settings, decided
from measured_claims.models import encoded, transformer, words
from transformer_mt.model.parts.attention import MultiHeadAttention, attention_scores, attention_weights
from transformer_mt.model.parts.positions import ROTARY_BASE, sinusoidal_table


def scale(settings: Settings) -> Finding:
    """Queries and keys of independent normal numbers. The gradient of a softmax is made of p (1 - p), which is 0 where
    one weight has everything.
    """
    rows, hold = [], []
    num = 200 if settings.small else 1000
    for d_k in (4, 16, 64, 256):
        generator = torch.Generator().manual_seed(1)
        q, k = (torch.randn(num, 1, length, d_k, generator=generator) for length in (1, 32))
        found = []
        for factor in (1.0, None):
            variance = float(attention_scores(q, k, scale=factor).var())
            weights = attention_weights(q, k, scale=factor)
            largest = float(weights.amax(dim=-1).mean())
            slope = float((weights * (1 - weights)).sum(dim=-1).mean())
            found.append((variance, largest, slope))
        plain, scaled = found
        hold.append(abs(plain[0] / d_k - 1) < 0.25 and abs(scaled[0] - 1) < 0.25)
        rows.append([f"{d_k}", *(f"{a:.2f} / {b:.2f}" for a, b in zip(plain, scaled, strict=True))])
    saturates = plain[1] > 2 * scaled[1] and plain[2] < scaled[2] / 2
    heads = ("d_k", "variance of q . k: plain / scaled", "largest of 32 weights", "p (1 - p), summed")
    return Finding(heads, rows, decided(all(hold) and saturates))


def heads_cost(settings: Settings) -> Finding:
    """One module with 1 head and one with 8, over 16 sentences of 32 words."""
    d_model, rounds = (32, 2) if settings.small else (256, 15)
    numbers = (1, 2, 8)
    x = torch.randn(16, 32, d_model, generator=torch.Generator().manual_seed(1))
    modules = [MultiHeadAttention(d_model, number, 0.0, True).eval() for number in numbers]

    def both_ways(module: MultiHeadAttention) -> None:
        module(x, x, None).sum().backward()

    seconds = least_seconds([lambda module=module: both_ways(module) for module in modules], rounds)
    sizes = [sum(parameter.numel() for parameter in module.parameters()) for module in modules]
    rows = [
        [f"{number}", f"{size:,}", f"{second / seconds[0]:.2f}"]
        for number, size, second in zip(numbers, sizes, seconds, strict=True)
    ]
    holds = len(set(sizes)) == 1 and seconds[-1] < 1.5 * seconds[0]
    return Finding(("heads", "parameters", "time, as a ratio"), rows, decided(holds))


def shift(d_model: int, distance: int) -> Tensor:
    """The matrix M with PE(pos + distance) = PE(pos) M for every pos: each pair of a sine and a cosine is turned."""
    angle = distance * ROTARY_BASE ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    turns = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), dim=-1).view(-1, 2, 2)
    return torch.block_diag(*turns)


def sinusoids(settings: Settings) -> Finding:
    """A table of random vectors beside it has its best matrix, by least squares."""
    length, d_model = (256, 16) if settings.small else (2048, 128)
    table = sinusoidal_table(length, d_model).double()
    chance = torch.randn(length, d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rows, worst = [], 0.0
    for distance in (1, 7, 64):
        error = float((table[:-distance] @ shift(d_model, distance) - table[distance:]).abs().max())
        best = torch.linalg.lstsq(chance[:-distance], chance[distance:]).solution
        of_chance = float((chance[:-distance] @ best - chance[distance:]).abs().max())
        worst = max(worst, error)
        rows.append([f"{distance}", f"{error:.1e}", f"{of_chance:.1f}"])
    heads = ("distance", "largest error, sinusoids", "largest error, random vectors")
    return Finding(heads, rows, decided(worst < 1e-4 and of_chance > 0.1))


def order(settings: Settings) -> Finding:
    """An encoder reads a sentence and the same words in another order; each word's two vectors are compared."""
    length = 8 if settings.small else 32
    ids = words(1, length)
    turned = torch.randperm(length, generator=torch.Generator().manual_seed(1))
    rows, change = [], {}
    for kind in ("none", "sinusoidal", "learned", "rotary", "relative_bias", "alibi"):
        model = transformer(layers=2, positions=kind)
        with torch.no_grad():
            as_it_is, other = encoded(model, ids)[0][:, turned], encoded(model, ids[:, turned])[0]
        change[kind] = float((other - as_it_is).norm() / as_it_is.norm())
        rows.append([f"`{kind}`", f"{change[kind]:.1e}"])
    holds = change.pop("none") < 1e-5 and min(change.values()) > 0.01
    return Finding(("positions", "change of the vectors, as a share"), rows, decided(holds))
