"""The few tokens of a step's logits that a search looks at, found without sorting or copying a vocabulary."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from transformer_mt.config.special_ids import EOS_ID, NUM_SPECIAL, UNK_ID
from transformer_mt.decoding.fast_layers.find_kernels import kernels_for
from transformer_mt.errors import UserError

# On a CPU one pass over memory finds the best logit of each block of about so many, and a second one the best in the
# best blocks. The number of blocks is a multiple of `LANES`; with others the pass takes a third longer.
BLOCK = 16
LONG_BLOCK = 96  # where only the best of all is wanted
LANES = 32
NORMALIZED_AT_ONCE = 2**18  # logits, so that they and their exponentials stay in a core's cache


@dataclass(frozen=True)
class Totals:
    """Turns logits into the log-probability of a hypothesis and one more token.

    log_probs (sentences, rows, 1) and normalizer (sentences, rows, 1). Within a row a larger logit never has a smaller
    total, rounding included.
    """

    log_probs: Tensor
    normalizer: Tensor

    @classmethod
    def of(cls, logits: Tensor, log_probs: Tensor) -> "Totals":
        """logits (sentences, rows, vocab_size), log_probs (sentences, rows)."""
        return survey(logits, log_probs, LONG_BLOCK)[0]

    def __call__(self, logits: Tensor) -> Tensor:
        """The totals of rows extended by tokens of these logits (sentences, rows, any) -> the same shape."""
        return self.log_probs + (logits - self.normalizer)

    @property
    def are_bad(self) -> Tensor:
        """Whether the logits of a sentence leave no probabilities (sentences,): one is not a number, or is infinite."""
        return ~self.normalizer.isfinite().flatten(1).all(dim=1)

    def at(self, rows: Tensor) -> "Totals":
        """The totals of some rows of each sentence (sentences, any)."""
        return Totals(self.log_probs.gather(1, rows[:, :, None]), self.normalizer.gather(1, rows[:, :, None]))


def survey(logits: Tensor, log_probs: Tensor, size: int) -> tuple[Totals, Tensor | None]:
    """`Totals.of`, and from the same pass over memory the largest word of each block of about this size (sentences,
    rows, blocks); None where it takes a pass of its own.
    """
    found = _surveyed(logits, size)
    if found is None:
        return Totals(log_probs[:, :, None], _log_normalizer(logits)), None
    return Totals(log_probs[:, :, None], found[0]), found[1]


def largest_token(logits: Tensor, allow_unk: bool, maxima: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The largest of each row of logits (rows, vocab_size) and its token: a word, EOS or, if allowed, UNK.

    `maxima` (rows, blocks) are those of `survey`. Without them the value is nan where a logit of the row is nan.
    """
    words = logits[:, NUM_SPECIAL:]
    num_blocks = _num_blocks(words.size(1), LONG_BLOCK) if logits.device.type == "cpu" else 0
    if not num_blocks:
        return largest_at_once(logits, allow_unk)
    num_blocks = num_blocks if maxima is None else maxima.size(1)
    blocks, rest = _in_blocks(words, num_blocks)
    values, block = (blocks.amax(dim=1) if maxima is None else maxima).max(dim=1, keepdim=True)
    row = torch.arange(len(words))
    places = blocks[row, :, block.squeeze(1)].argmax(dim=1, keepdim=True) * num_blocks + block
    found = [(values, places)]
    if rest.size(1):
        values, in_rest = rest.max(dim=1, keepdim=True)
        found.append((values, in_rest + words.size(1) - rest.size(1)))
    return _with_special(logits, allow_unk, [(values, places + NUM_SPECIAL) for values, places in found])


def largest_at_once(logits: Tensor, allow_unk: bool) -> tuple[Tensor, Tensor]:
    """`largest_token` by one maximum, which takes one pass on a GPU."""
    values, tokens = logits[:, NUM_SPECIAL:].max(dim=1, keepdim=True)
    return _with_special(logits, allow_unk, [(values, tokens + NUM_SPECIAL)])


def _with_special(logits: Tensor, allow_unk: bool, words: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The largest of a row's words (values and tokens, (rows, 1) each) and its special tokens."""
    special = _special(allow_unk)
    values, order = torch.cat((_columns(logits, special), *(values for values, _ in words)), dim=1).max(dim=1)
    of_special = [torch.full_like(words[0][1], token) for token in special]
    tokens = torch.cat((*of_special, *(tokens for _, tokens in words)), dim=1)
    return values, tokens.gather(1, order[:, None]).squeeze(1)


def _special(allow_unk: bool) -> list[int]:
    """The special tokens that a search may take."""
    return [EOS_ID, UNK_ID] if allow_unk else [EOS_ID]


def best_extensions(
    logits: Tensor,
    num_best: int,
    allow_unk: bool,
    must_end: Tensor | None,
    totals: Totals,
    maxima: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The best extensions of a sentence's hypotheses by one token, best first; of equal ones any.

    logits (sentences, rows, vocab_size), -inf where a token is forbidden. must_end (sentences,) marks sentences at
    their largest length, where only EOS may come; None where there is none. `maxima` are those of `survey`, where no
    word was forbidden since. Returns totals, rows within the sentence and tokens (sentences, at most num_best).
    """
    num_rows = logits.size(1)
    values, rows, tokens = best_tokens(logits[:, :, NUM_SPECIAL:], num_best, totals, maxima)
    special_rows = torch.arange(num_rows, device=logits.device).expand(len(logits), -1)
    special = [
        (totals(_columns(logits, [token])).squeeze(2), torch.full_like(special_rows, token))
        for token in _special(allow_unk)
    ]
    values = torch.cat((*(totals for totals, _ in special), values), dim=1)
    rows = torch.cat((*(special_rows for _ in special), rows), dim=1)
    tokens = torch.cat((*(tokens for _, tokens in special), tokens + NUM_SPECIAL), dim=1)
    if must_end is not None:
        values = values.masked_fill(must_end[:, None] & (tokens != EOS_ID), -torch.inf)
    values, order = values.topk(min(num_best, values.size(1)))
    return values, rows.gather(1, order), tokens.gather(1, order)


def _columns(logits: Tensor, tokens: list[int]) -> Tensor:
    """The logits of these tokens, taken by views: a list of indices would be copied to a GPU, which waits for it."""
    return torch.cat([logits[..., token : token + 1] for token in tokens], dim=-1)


def refuse_nan(values: Tensor) -> None:
    """Raise UserError for nan. A search over such logits would find nothing, and not end."""
    if values.isnan().any():
        raise not_a_number()


def not_a_number() -> UserError:
    """What a search says of nan."""
    return UserError(
        "The model's output is not a number. Use --precision fp32, or an earlier checkpoint (--checkpoint step_N)."
    )


def best_tokens(
    words: Tensor, num_best: int, totals: Totals, maxima: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest of a sentence's totals, best first: words (sentences, rows, width) and perhaps their `maxima` ->
    values, rows and places in their row (sentences, `num_best` or as many as there are).
    """
    num_rows, width = words.shape[1:]
    num_blocks = _num_blocks(width, BLOCK) if maxima is None else maxima.size(2)
    if words.device.type != "cpu" or num_rows * num_blocks <= 2 * num_best:
        # First the best of each row, so that no tensor is as large as the logits.
        values, places = words.topk(min(num_best, width))
        values, order = totals(values).flatten(1).topk(min(num_best, num_rows * places.size(2)))
        return values, order // places.size(2), places.flatten(1).gather(1, order)
    blocks, others = _in_blocks(words, num_blocks)
    block_size = blocks.size(2)
    if maxima is None:
        maxima = blocks.amax(dim=2)
    best_blocks = totals(maxima).flatten(1).topk(num_best, sorted=False).indices
    rows, columns = best_blocks // num_blocks, best_blocks % num_blocks
    in_blocks = totals.at(rows)(blocks[torch.arange(len(words))[:, None], rows, :, columns]).flatten(1)
    rest = totals(others)
    values, order = torch.cat((in_blocks, rest.flatten(1)), dim=1).topk(num_best)
    is_rest = order >= in_blocks.size(1)
    block, in_rest = (order // block_size).clamp_(max=num_best - 1), order - in_blocks.size(1)
    places = order % block_size * num_blocks + columns.gather(1, block)
    rest_width = max(1, rest.size(2))
    return (
        values,
        torch.where(is_rest, in_rest // rest_width, rows.gather(1, block)),
        torch.where(is_rest, num_blocks * block_size + in_rest % rest_width, places),
    )


def _in_blocks(words: Tensor, num_blocks: int) -> tuple[Tensor, Tensor]:
    """words (.., width) -> blocks (.., block_size, num_blocks) and the columns that are left over.

    A block is every `num_blocks`-th column, so that the maxima of all blocks are taken at once, over whole vectors.
    """
    block_size = words.size(-1) // num_blocks
    blocks = words[..., : num_blocks * block_size].unflatten(-1, (block_size, num_blocks))
    return blocks, words[..., num_blocks * block_size :]


@cache
def _num_blocks(width: int, size: int) -> int:
    """A multiple of `LANES` near width / size that leaves few columns over; 0 where there is none."""
    nearest = width // size // LANES * LANES
    choices = range(max(LANES, nearest * 3 // 4 // LANES * LANES), min(nearest * 3 // 2, width) + 1, LANES)
    return min(choices, key=lambda num_blocks: width % num_blocks, default=0)


def _surveyed(logits: Tensor, size: int) -> tuple[Tensor, Tensor] | None:
    """Normalizer and maxima of blocks by one compiled pass, where there is one for these logits."""
    width = logits.size(2) - NUM_SPECIAL
    kernels = kernels_for(logits)
    num_blocks = _num_blocks(width, size) or _num_blocks(width, BLOCK)
    if kernels is None or not num_blocks or not logits.is_contiguous():
        return None
    normalizers, maxima = kernels.survey(logits.flatten(0, 1), NUM_SPECIAL, num_blocks)
    return normalizers.view(*logits.shape[:2], 1), maxima.view(*logits.shape[:2], num_blocks)


def _log_normalizer(logits: Tensor) -> Tensor:
    """`logits.logsumexp(dim=-1, keepdim=True)`, a few rows at a time on a CPU."""
    if logits.device.type != "cpu":
        return logits.logsumexp(dim=-1, keepdim=True)
    rows = logits.flatten(0, 1)
    parts = rows.split(max(1, NORMALIZED_AT_ONCE // rows.size(1)))
    return torch.cat([part.logsumexp(dim=1, keepdim=True) for part in parts]).view(*logits.shape[:2], 1)
