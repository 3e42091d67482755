"""What else a model might have said at each position of a target."""

from dataclasses import dataclass

import torch

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.translator import Translator
from transformer_mt.inspect.trace import NUM_BEST, Candidate, candidates


@dataclass(frozen=True)
class Choice:
    """A position of the target, EOS the last: the token there, its place among all by probability, from 1, and the
    likeliest tokens.
    """

    taken: Candidate
    rank: int
    best: list[Candidate]


@torch.inference_mode()
def choices(translator: Translator, src: list[int], tgt: list[int], number: int = NUM_BEST) -> list[Choice]:
    """The choices along a target, given as ids without special tokens: each after the target's own beginning."""
    device, tokenizer = translator.device, translator.tgt_tokenizer
    src_ids = torch.tensor([[*src, EOS_ID]], device=device)
    logits = translator.model(src_ids, torch.tensor([[BOS_ID, *tgt]], device=device))[0]
    found = []
    for token, probabilities in zip([*tgt, EOS_ID], logits.double().softmax(dim=-1).cpu(), strict=True):
        best, taken = candidates(tokenizer, probabilities, token, number)
        rank = int((probabilities > probabilities[token]).sum()) + 1
        found.append(Choice(taken, rank, best))
    return found
