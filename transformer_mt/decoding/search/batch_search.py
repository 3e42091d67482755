"""The search that a batch asks for: one with constraints, or another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from transformer_mt.decoding.search.beam import beam_search
from transformer_mt.decoding.search.constrained_beam import Found, beam_sizes, constrained_beam_search
from transformer_mt.decoding.search.constraints import Constraints
from transformer_mt.decoding.search.diverse_beam import diverse_beam_search
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction, greedy_search
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Demand, WordEdges, make_rules
from transformer_mt.decoding.search.sampling import sampling

Search = Callable[..., list[list[Hypothesis]]]


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


def choose_search(options: SearchOptions, demands: Sequence[Demand]) -> Search:
    """Sampling, greedy search, a plain or a diverse beam: given a decoder that has begun a batch, the largest lengths,
    options, device and rules, it finds hypotheses of each sentence. Samples differ by the places of their demands.
    """
    if options.is_sampling:
        return partial(sampling, places=[demand.place for demand in demands])
    if options.diverse_beam_groups > 1:
        return diverse_beam_search
    return greedy_search if options.beam_size == 1 else beam_search
