"""The search that a batch asks for: one with constraints, or another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from transformer_mt.decoding.search.choose_search import choose_search
from transformer_mt.decoding.search.constrained_beam import Found, beam_sizes, constrained_beam_search
from transformer_mt.decoding.search.constraints import Constraints
from transformer_mt.decoding.search.greedy import StepFunction
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Demand, WordEdges, make_rules


@dataclass(frozen=True)
class BatchSearch:
    """`run` searches, given the decoder of the batch; a sentence has at most `num_rows` hypotheses at a time."""

    run: Callable[[StepFunction], list[Found]]
    num_rows: int


def batch_search(
    options: SearchOptions, limits: Sequence[int], demands: Sequence[Demand], edges: WordEdges, device: torch.device
) -> BatchSearch:
    """The search of sentences whose largest lengths are `limits`, EOS counted. All of them have constraints, or none.

    Those with constraints are searched with a beam under `beam_size: 1` too.
    """
    rules = make_rules(options, limits, demands, edges.continuing, device)
    if any(demand.constraints for demand in demands):
        constraints = Constraints(demands, options.constraints == "ordered", edges, device)
        return BatchSearch(
            lambda decoder: constrained_beam_search(decoder, limits, options, device, constraints, rules),
            int(beam_sizes(constraints, options.beam_size).max()),
        )
    search = choose_search(options, demands)
    return BatchSearch(
        lambda decoder: [Found(hypotheses) for hypotheses in search(decoder, limits, options, device, rules)],
        options.num_rows,
    )
