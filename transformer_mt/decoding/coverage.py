"""The coverage penalty: a translation that looks at no part of the source's end has probably left it out."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from transformer_mt.config.special_ids import BOS_ID, PAD_ID
from transformer_mt.data.batches.batching import pad_rows, pad_sources
from transformer_mt.decoding.ensemble import members_of
from transformer_mt.decoding.search.greedy import Hypothesis
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.masks import is_real
from transformer_mt.model.parts.attention import Attention

IdPair = tuple[Sequence[int], Sequence[int]]  # source and target, both without special tokens
LEAST = 1e-10  # a sum of attention that is rounded to nothing would forbid a translation for good


def source_weights(model: TranslationModel, src: Tensor, tgt_in: Tensor, layer: int = -1) -> Tensor:
    """How the target attends to the source in a layer, averaged over heads; of an ensemble also over models. Layers are
    counted as Python counts; where a model has too few, it is the nearest.

    src (batch, src_len), tgt_in (batch, tgt_len) -> (batch, tgt_len, src_len). In a decoder-only model a row also
    attends to the target so far, so its weights on the source sum to less than 1.
    """
    found = [_source_weights(member, src, tgt_in, layer) for member in members_of(model)]
    return torch.stack(found).mean(dim=0)


@torch.inference_mode()
def coverages(model: TranslationModel, pairs: Sequence[IdPair]) -> list[float]:
    """For each pair the sum over its source tokens i, EOS among them, of log(min(sum_j p_ij, 1)), where p_ij is the
    attention of target token j to it (Wu et al. 2016, equation 14, without its factor). 0 at best. One batch.
    """
    device = next(model.parameters()).device
    src = pad_sources([src for src, _ in pairs]).to(device)
    tgt_in = pad_rows([[BOS_ID, *tgt] for _, tgt in pairs]).to(device)
    weights = source_weights(model, src, tgt_in).float()
    covered = weights.masked_fill((tgt_in == PAD_ID)[:, :, None], 0).sum(dim=1).clamp(LEAST, 1)
    return covered.log().masked_fill(~is_real(src), 0).sum(dim=1).tolist()


def _source_weights(model: TranslationModel, src: Tensor, tgt_in: Tensor, layer: int) -> Tensor:
    attentions = model.source_attentions
    recorded: list[Tensor] = []
    this_thread = threading.get_ident()

    def record(module: nn.Module, inputs: tuple) -> None:
        assert isinstance(module, Attention)
        if threading.get_ident() == this_thread:  # another may go through the same module
            recorded.append(module.weights_of(inputs))

    attention = attentions[max(-len(attentions), min(layer, len(attentions) - 1))]
    with attention.register_forward_pre_hook(record):
        model.hidden_states(src, tgt_in)
    return torch.cat(recorded, dim=2).mean(dim=1)[:, -tgt_in.size(1) :, : src.size(1)]


def by_coverage(
    model: TranslationModel, rows: Sequence[Sequence[int]], found: list[list[Hypothesis]], options: SearchOptions
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, given as ids without EOS, with the penalty in their scores; the `n_best` of these,
    best first. Samples stay in their order.
    """
    pairs = [(row, hypothesis.tokens) for row, of_row in zip(rows, found, strict=True) for hypothesis in of_row]
    each = iter(
        coverage
        for start in range(0, len(pairs), options.batch_size)
        for coverage in coverages(model, pairs[start : start + options.batch_size])
    )
    scored = [[replace(h, score=h.score + options.coverage_penalty * next(each)) for h in of_row] for of_row in found]
    if options.keeps_order:
        return scored
    return [sorted(of_row, key=lambda h: h.score, reverse=True)[: options.n_best] for of_row in scored]
