"""The search that the options ask for."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch

from transformer_mt.decoding.search.beam import beam_search
from transformer_mt.decoding.search.diverse_beam import diverse_beam_search
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction, greedy_search
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Demand, Rules
from transformer_mt.decoding.search.sampling import sampling


class Search(Protocol):
    """Hypotheses of each sentence of a batch, which `decoder` has begun; max_lengths count EOS."""

    def __call__(
        self,
        decoder: StepFunction,
        max_lengths: Sequence[int],
        options: SearchOptions,
        device: torch.device,
        rules: Rules | None = None,
    ) -> list[list[Hypothesis]]: ...


def choose_search(options: SearchOptions, demands: Sequence[Demand]) -> Search:
    """Sampling, greedy search, a plain or a diverse beam. Samples differ by the places of their demands."""
    if options.is_sampling:
        return partial(sampling, places=[demand.place for demand in demands])
    if options.diverse_beam_groups > 1:
        return diverse_beam_search
    return greedy_search if options.beam_size == 1 else beam_search
