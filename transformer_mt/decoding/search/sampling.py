"""Sampling: every token is drawn by chance, by the model's own probabilities or by those of the likeliest tokens.

What may be drawn is decided in this order. PAD, BOS, what the rules forbid, and UNK unless it is allowed are left out.
Then come `temperature`, `sampling_topk` (Fan et al. 2018) and `sampling_topp` (the nucleus of Holtzman et al. 2020, of
what is left). The probabilities of what remains are made to add up to 1. A sample's score is the model's own all the
same: that of the untempered distribution over all tokens.

A token is drawn by the Gumbel-max trick: the largest of logit / temperature + a Gumbel number. The number is a function
of the sample's key, the step and the token. So a sample depends on nothing else of its batch, and differences of
rounding between batches or devices change it very seldom.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction, without
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.random_numbers import gumbel, key_of, keys_of_step
from transformer_mt.decoding.search.rules import Hypotheses, Rules
from transformer_mt.decoding.search.top_tokens import NORMALIZED_AT_ONCE, Totals, refuse_nan

FIRST_WIDTH = 16  # tokens that are sorted to find a nucleus; where they are too few, WIDER times as many
WIDER = 8
DRAWN_AT_ONCE = 2**24  # numbers at once on a GPU, of 8 bytes each


@dataclass
class _Samples:
    """The samples of the sentences that have live ones: tensors (sentences, samples), tokens with their length too.

    The samples of a sentence do not stand in their order: `numbers` tells it. `sentences` (sentences,) are places in
    the batch. What a sample that has ended goes on with is of no account.
    """

    sentences: Tensor
    limits: Tensor  # (sentences,)
    numbers: Tensor
    keys: Tensor
    log_probs: Tensor
    is_live: Tensor
    tokens: Tensor  # (sentences, samples, length), without BOS

    def hypotheses(self) -> Hypotheses:
        """All samples as rows, the ended ones too."""
        return Hypotheses(self.tokens.flatten(0, 1), self.sentences.repeat_interleave(self.tokens.size(1)))

    def keep(self, places: Tensor, columns: Tensor) -> None:
        """Go on with these sentences (kept,), and of each with the samples in these columns (kept, any)."""
        self.sentences, self.limits = self.sentences[places], self.limits[places]
        self.numbers, self.keys, self.log_probs, self.is_live = (
            x[places].gather(1, columns) for x in (self.numbers, self.keys, self.log_probs, self.is_live)
        )
        self.tokens = self.tokens[places[:, None], columns]


def sampling(
    decoder: StepFunction,
    max_lengths: Sequence[int],
    options: SearchOptions,
    device: torch.device,
    rules: Rules | None = None,
    places: Sequence[tuple[int, ...]] | None = None,
) -> list[list[Hypothesis]]:
    """`n_best` samples of each sentence, independent of each other, in the order drawn; equal ones may be among them.
    `max_lengths` count EOS.

    Sample i of a sentence is a function of its source, options.seed, its place and i; by default its place is its
    number in the batch. Unless `options` ask for scores, log_prob and score are nan.
    """
    num_samples = options.n_best
    found: list[list[Hypothesis | None]] = [[None] * num_samples for _ in max_lengths]
    samples = _begin(max_lengths, options, device, places or [(i,) for i in range(len(max_lengths))])
    fed = torch.full((len(max_lengths),), BOS_ID, device=device)
    for length in count(1):
        logits = decoder.step(fed).float()
        if length == 1 and num_samples > 1:
            logits = logits.repeat_interleave(num_samples, dim=0)
            decoder.reorder(torch.arange(len(max_lengths), device=device).repeat_interleave(num_samples))
        _extend(samples, logits, length, options, rules)
        newest = samples.tokens[:, :, -1]
        ended = samples.is_live & (newest == EOS_ID)
        if ended.any():
            _finish(samples, ended, options.norm(length), found)
            if not samples.is_live.any():
                break
            _follow(decoder, samples)
        fed = samples.tokens[:, :, -1].flatten()
    return [[hypothesis for hypothesis in of_sentence if hypothesis is not None] for of_sentence in found]


def _begin(
    max_lengths: Sequence[int], options: SearchOptions, device: torch.device, places: Sequence[tuple[int, ...]]
) -> _Samples:
    numbers = torch.arange(options.n_best, device=device).expand(len(max_lengths), -1)
    keys = [[key_of(options.seed, *place, number) for number in range(options.n_best)] for place in places]
    return _Samples(
        torch.arange(len(max_lengths), device=device),
        torch.tensor(max_lengths, device=device),
        numbers,
        torch.tensor(keys, device=device),
        torch.full(numbers.shape, 0.0 if options.scored else torch.nan, device=device),
        torch.ones_like(numbers, dtype=torch.bool),
        numbers.new_empty(*numbers.shape, 0),
    )


def _extend(samples: _Samples, logits: Tensor, length: int, options: SearchOptions, rules: Rules | None) -> None:
    """Draw the next token of every sample, logits (sentences * samples, vocab_size)."""
    logits = logits.unflatten(0, samples.keys.shape)
    totals = Totals.of(logits, samples.log_probs) if options.scored else None
    if rules is not None:
        rules(logits.flatten(0, 1), hypotheses=samples.hypotheses())
    for token in (PAD_ID, BOS_ID) if options.allow_unk else (PAD_ID, BOS_ID, UNK_ID):
        logits[:, :, token] = -torch.inf
    keys = keys_of_step(samples.keys.flatten(), length)
    tokens = draw(logits.flatten(0, 1), keys, options).view_as(samples.keys)
    tokens = tokens.masked_fill((samples.limits <= length)[:, None], EOS_ID)
    chosen = logits.gather(2, tokens[:, :, None])
    refuse_nan(chosen)
    if totals is not None:
        samples.log_probs = totals(chosen).squeeze(2)
    samples.tokens = torch.cat((samples.tokens, tokens[:, :, None]), dim=2)


def draw(logits: Tensor, keys: Tensor, options: SearchOptions) -> Tensor:
    """A token (rows,) of each row of logits (rows, vocab_size), which are -inf where a token may not come.

    keys (rows,) decide. Where a logit is not a number, one of those is drawn.
    """
    temperature, mass = options.temperature or 1.0, options.sampling_topp or 1.0
    if options.sampling_topk or mass < 1.0:
        drawn = torch.empty_like(keys)
        num_kept = options.sampling_topk or logits.size(1)
        for rows, part, tokens in likeliest(logits, num_kept, mass, temperature):
            # The scale is that of the logits: divided by a small temperature they would be infinite.
            places = (part + temperature * gumbel(keys[rows], tokens)).argmax(dim=1, keepdim=True)
            drawn[rows] = tokens.gather(1, places).squeeze(1)
        return drawn
    tokens = torch.arange(logits.size(1), device=logits.device)[None]
    at_once = max(1, (NORMALIZED_AT_ONCE if logits.device.type == "cpu" else DRAWN_AT_ONCE) // logits.size(1))
    parts = zip(logits.split(at_once), keys.split(at_once), strict=True)
    return torch.cat([(part + temperature * gumbel(own, tokens)).argmax(dim=1) for part, own in parts])


def likeliest(
    logits: Tensor, num_kept: int, mass: float, temperature: float
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The logits and tokens, best first, of the `num_kept` likeliest of each row, and of these of the fewest that have
    the probability `mass` together. The logits of others that come along are -inf.

    The rows come in parts of one width, each as the numbers of its rows (some,), their logits and their tokens (some,
    width). Few rows need a wide one: in a model that was trained with label smoothing a nucleus may be most of the
    vocabulary, or one token.
    """
    num_kept = min(num_kept, logits.size(1))
    rows = torch.arange(len(logits), device=logits.device)
    if mass == 1.0:
        values, tokens = logits.topk(num_kept)
        yield rows, values, tokens
        return
    width = min(FIRST_WIDTH, num_kept)
    kept = logits if num_kept == logits.size(1) else logits.topk(num_kept).values
    best = kept.amax(dim=1, keepdim=True)
    whole = ((kept - best) / temperature).exp().sum(dim=1, keepdim=True)
    while len(rows):
        values, tokens = logits.topk(width)
        shares = ((values - best) / temperature).exp() / whole
        before = shares.cumsum(dim=1) - shares
        values = values.masked_fill(before >= mass, -torch.inf)
        is_left = before[:, -1] < mass if width < num_kept else torch.zeros_like(rows, dtype=torch.bool)
        yield rows[~is_left], values[~is_left], tokens[~is_left]
        rows, logits, best, whole = (one[is_left] for one in (rows, logits, best, whole))
        width = min(width * WIDER, num_kept)


def _finish(samples: _Samples, ended: Tensor, norm: float, found: list[list[Hypothesis | None]]) -> None:
    """Note the samples that ended with their newest token."""
    places, columns = ended.nonzero(as_tuple=True)
    for sentence, number, log_prob, tokens in zip(
        samples.sentences[places].tolist(),
        samples.numbers[places, columns].tolist(),
        samples.log_probs[places, columns].tolist(),
        samples.tokens[places, columns, :-1].tolist(),
        strict=True,
    ):
        found[sentence][number] = Hypothesis(tokens, log_prob, log_prob / norm)
    samples.is_live &= ~ended


def _follow(decoder: StepFunction, samples: _Samples) -> None:
    """Drop sentences without live samples. The others keep as many places as the one with most live samples needs, up
    to the next power of two, so that a GPU sees few sizes.
    """
    num_rows, num_live = samples.is_live.size(1), samples.is_live.sum(dim=1)
    is_done = num_live == 0
    width = min(num_rows, 1 << (int(num_live.max()) - 1).bit_length())
    any_done = bool(is_done.any())
    if not any_done and width == num_rows:
        return
    places = without(is_done)
    columns = (~samples.is_live[places]).int().argsort(dim=1, stable=True)[:, :width]
    samples.keep(places, columns)
    decoder.reorder((places[:, None] * num_rows + columns).flatten(), places if any_done else None)
