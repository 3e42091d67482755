"""Small made-up languages as step functions of a search, and what may follow in them by its rules in words."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.search import beam, constrained_beam, diverse_beam, finished, greedy
from transformer_mt.decoding.search.greedy import are_dropped
from transformer_mt.decoding.search.options import LENGTH_NORMS, SearchOptions, search_options
from transformer_mt.decoding.search.rules import Demand, Rules, make_rules

Language = Callable[[tuple[int, ...]], Tensor]


def drop_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has ended stays for a while, and what a beam has finished is read a few steps later."""
    on_a_gpu = torch.device("cuda")
    for search in (greedy, beam, diverse_beam, constrained_beam):
        monkeypatch.setattr(search, "are_dropped", lambda ended, rows, _: are_dropped(ended, rows, on_a_gpu))
    monkeypatch.setattr(finished, "reads_later", lambda _: True)
    monkeypatch.setattr(finished, "NUMBERS_AT_ONCE", 30)


def random_language(seed: int, vocab_size: int, sharpness: float) -> Language:
    """Logits of what follows a prefix, drawn once and remembered."""
    known: dict[tuple[int, ...], Tensor] = {}

    def logits(prefix: tuple[int, ...]) -> Tensor:
        if prefix not in known:
            place = sum((token + 1) * 31**i for i, token in enumerate(prefix))
            generator = torch.Generator().manual_seed((seed * 1_000_003 + place) % 2**63)
            known[prefix] = torch.randn(vocab_size, generator=generator) * sharpness
        return known[prefix]

    return logits


class Languages:
    """One language a sentence, as a step function."""

    def __init__(self, languages: list[Language]) -> None:
        self.rows: list[tuple[Language, tuple[int, ...]]] = [(language, ()) for language in languages]

    def step(self, tokens: Tensor) -> Tensor:
        self.rows = [(language, (*prefix, t)) for (language, prefix), t in zip(self.rows, tokens.tolist(), strict=True)]
        return torch.stack([language(prefix) for language, prefix in self.rows])

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        self.rows = [self.rows[i] for i in index.tolist()]


def allowed_tokens(
    prefix: tuple[int, ...], vocab_size: int, limit: int, options: SearchOptions, demand: Demand, within: set[int]
) -> set[int]:
    """What may follow a prefix (without BOS), by the rules in words."""
    if len(prefix) + 1 == limit:
        return {EOS_ID}
    if len(prefix) < len(demand.prefix):
        return {demand.prefix[len(prefix)]}
    tokens = set(range(vocab_size)) - {PAD_ID, BOS_ID} - (set() if options.allow_unk else {UNK_ID})
    if len(prefix) < options.min_length:
        tokens -= {EOS_ID}
    n = options.no_repeat_ngram_size
    there = {prefix[i : i + n] for i in range(len(prefix) - n + 1)} if n else set()
    for token in list(tokens):
        longer = (*prefix, token)
        is_repeated = n > 0 and len(longer) >= n and longer[-n:] in there
        is_avoided = any(longer[-len(sequence) :] == sequence for sequence in demand.avoided)
        goes_on = demand.ends_in_word and len(prefix) == len(demand.prefix) and token in within
        if is_repeated or is_avoided or goes_on:
            tokens.discard(token)
    return tokens or {EOS_ID}


def random_demand(draw: random.Random, vocab_size: int, limit: int) -> Demand:
    """Half of them with a prefix, half with sequences to avoid."""

    def row(length: int) -> tuple[int, ...]:
        return tuple(draw.randrange(EOS_ID + 1, vocab_size) for _ in range(length))

    prefix = row(draw.randint(0, max(0, limit - 1))) if draw.random() < 0.5 and vocab_size > EOS_ID + 1 else ()
    avoided = {row(draw.randint(1, 3)) for _ in range(3)} if draw.random() < 0.5 and vocab_size > EOS_ID + 1 else ()
    return Demand(prefix, bool(prefix) and draw.random() < 0.5, tuple(avoided))


@dataclass
class Case:
    """A batch of sentences, each with its language, largest length and demand, and what the search is asked."""

    languages: list[Language]
    limits: list[int]
    options: SearchOptions
    demands: list[Demand]
    within: list[int]

    def rules(self) -> Rules | None:
        return make_rules(self.options, self.limits, self.demands, self.within, torch.device("cpu"))


def random_case(seed: int, with_rules: bool, beam_size: int | None = None, **changes: Any) -> Case:
    """A case drawn from a seed; `changes` are options of the search instead of those drawn."""
    draw = random.Random(seed)
    vocab_size, size = draw.choice([5, 6, 7, 9, 12]), beam_size or draw.choice([1, 2, 3, 4, 6, 8])
    languages = [
        random_language(seed * 10 + i, vocab_size, draw.choice([0.3, 1, 3])) for i in range(draw.randint(1, 4))
    ]
    limits = [draw.randint(1, 6) for _ in languages]
    given: dict[str, Any] = {"beam_size": size, "n_best": draw.randint(1, size), "allow_unk": draw.random() < 0.5}
    given |= {"length_norm": draw.choice(list(LENGTH_NORMS)), "length_penalty": draw.choice([0.0, 0.6, 1.0, 2.0, 5.0])}
    demands = [Demand() for _ in languages]
    if with_rules:
        given |= {"min_length": draw.choice([0, 0, 2, 4]), "no_repeat_ngram_size": draw.choice([0, 0, 1, 2, 3])}
        given["patience"] = draw.choice([1.0, 0.3, 1.7, 3.0])
        demands = [random_demand(draw, vocab_size, limit) for limit in limits]
    within = draw.sample(range(EOS_ID + 1, vocab_size), (vocab_size - EOS_ID - 1) // 2)
    return Case(languages, limits, search_options(DecodingConfig(), **{**given, **changes}), demands, within)
