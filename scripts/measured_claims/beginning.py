"""Claims about a model before its first step: its loss, and the size of its gradients."""

import math

import torch

from measured_claims.claim import Finding, Settings, decided
from measured_claims.models import FIRST_WORD, transformer, words
from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.model.loss import batch_loss
from transformer_mt.model.transformer import Transformer


def initial_loss(settings: Settings) -> Finding:
    """Random words, random weights; output and embedding not tied, and tied."""
    d_model, rows, off = 64, [], []
    for size in (100, 1000) if settings.small else (100, 1000, 10_000):
        generator = torch.Generator().manual_seed(1)
        batch = [torch.randint(FIRST_WORD, size, (16, 12), generator=generator) for _ in range(3)]
        found = []
        for tied in ("none", "decoder"):
            torch.manual_seed(1)
            config = ModelConfig(d_model=d_model, d_ff=128, num_heads=4, num_encoder_layers=2, num_decoder_layers=2,
                                 dropout=0.0, tie_embeddings=tied)  # fmt: skip
            with torch.no_grad():
                nll = float(batch_loss(Transformer(config, size, size), *batch, label_smoothing=0.0).nll)
            found.append(nll / batch[2].numel())
        if size > 10 * d_model:
            off.append(abs(found[0] - math.log(size)))
        rows.append([f"{size:,}", f"{math.log(size):.2f}", *(f"{one:.2f}" for one in found)])
    return Finding(("words", "ln V", "nll, not tied", "nll, tied"), rows, decided(max(off) < 0.2))


def gradients(settings: Settings) -> Finding:
    """The norm of the gradient of the last feed-forward's last matrix, by the depth of both stacks."""
    depths = (2, 6) if settings.small else (2, 6, 12, 24)
    ids = words(16, 12)
    rows, shrinks = [], {}
    for position in ("post", "pre"):
        norms = []
        for depth in depths:
            model = transformer(layers=depth, norm_position=position, tie_embeddings="none").train()
            (batch_loss(model, ids, ids, ids, 0.0).loss / ids.numel()).backward()
            gradient = model.get_parameter(f"decoder.layers.{depth - 1}.feed_forward.out_proj.weight").grad
            assert gradient is not None
            norms.append(float(gradient.norm()))
        shrinks[position] = norms[-1] / norms[0]
        rows.append([f"{position}-norm", *(f"{norm:.3f}" for norm in norms), f"{shrinks[position]:.2f}"])
    expected = math.sqrt(depths[0] / depths[-1])
    heads = ("norm", *(f"{depth} layers" for depth in depths), "last beside first")
    holds = shrinks["post"] > (1 + expected) / 2 and shrinks["pre"] < (1 + expected) / 2
    return Finding(heads, rows, decided(holds))
