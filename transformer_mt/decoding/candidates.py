"""The few tokens of a step's logits that a search looks at, found without sorting or copying a vocabulary."""

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.errors import UserError

# Of a CPU's 8,000 logits the best in blocks of so many are found in one pass over memory, then the best of those
# blocks: a third to two thirds of what torch.topk takes.
BLOCK = 32
NUM_SPECIAL = 4
assert {PAD_ID, UNK_ID, BOS_ID, EOS_ID} == set(range(NUM_SPECIAL)), "the special tokens come first"


def best_tokens(logits: Tensor, num_best: int) -> tuple[Tensor, Tensor]:
    """`logits.topk(num_best)`, of equal ones any: logits (rows, vocab_size) -> values and tokens (rows, num_best)."""
    num_blocks = logits.size(1) // BLOCK
    if logits.device.type != "cpu" or num_blocks <= 2 * num_best:
        return logits.topk(num_best)
    # A block is every `num_blocks`-th column, so that the maximum of all blocks at once is taken over whole vectors.
    blocks = logits[:, : num_blocks * BLOCK].unflatten(1, (BLOCK, num_blocks))
    first = blocks.amax(dim=1).topk(num_best, sorted=False).indices  # the best tokens lie in the best blocks
    in_blocks = blocks.gather(2, first[:, None].expand(-1, BLOCK, -1)).flatten(1)
    values, places = torch.cat((in_blocks, logits[:, num_blocks * BLOCK :]), dim=1).topk(num_best)
    tokens = places // num_best * num_blocks + first.gather(1, places % num_best)
    rest = places - in_blocks.size(1)
    return values, torch.where(rest < 0, tokens, rest + num_blocks * BLOCK)


def allowed_tokens(logits: Tensor, num_best: int, allow_unk: bool, must_end: Tensor | None) -> tuple[Tensor, Tensor]:
    """The best tokens among those that may come next; the logit of a token that may not is -inf.

    logits (rows, vocab_size); must_end (rows,) marks rows at their largest length, where only EOS may come, None where
    there is none -> logits and tokens (rows, at most num_best). Raises UserError where a logit is not a number.
    """
    words = logits[:, NUM_SPECIAL:]
    num_words = min(num_best, words.size(1))
    values, tokens = best_tokens(words, num_words)
    others = [EOS_ID, UNK_ID] if allow_unk else [EOS_ID]
    special = torch.tensor(others, device=logits.device).expand(len(logits), -1)
    values = torch.cat((logits[:, others], values), dim=1)
    tokens = torch.cat((special, tokens + NUM_SPECIAL), dim=1)
    # A model's output that is not a number is so for every token: a search would find nothing, and not end.
    if values.isnan().any():
        raise UserError(
            "The model's output is not a number. Use --precision fp32, or an earlier checkpoint (--checkpoint step_N)."
        )
    if must_end is not None:
        values = values.masked_fill(must_end[:, None] & (tokens != EOS_ID), -torch.inf)
    values, order = values.topk(min(num_best, values.size(1)))
    return values, tokens.gather(1, order)


def allowed_log_probs(logits: Tensor, num_best: int, allow_unk: bool, must_end: Tensor | None) -> tuple[Tensor, Tensor]:
    """`allowed_tokens` with log-probabilities for logits. What may not come keeps its share: they need not sum to 1."""
    values, tokens = allowed_tokens(logits, num_best, allow_unk, must_end)
    return values - logits.logsumexp(dim=-1, keepdim=True), tokens
