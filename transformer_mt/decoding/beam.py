"""Beam search, batched over sentences.

At each step every live hypothesis of a sentence is extended by every token, and the 2K best candidates are looked at:
2K, because at most K of them can be EOS, so that K remain to go on with. Of the K best, those that end are finished;
the K best that do not end live on.

Stopping rule, a sentence at a time: when K hypotheses are finished and no live one has, as it stands, a better score
than the worst of the `n_best` wanted; or when `n_best` are finished and no live one can still reach their worst score,
even if it gained no more cost up to its largest length. The second part never changes what the first would have
returned. K finished alone are no reason to stop: where one continuation is nearly certain, what else is among the K
best may end, at whatever cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress, count

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.candidates import best_extensions
from transformer_mt.decoding.search import Hypothesis, LengthNorm, StepFunction, without


@dataclass
class _Sentence:
    """What one sentence has finished so far."""

    index: int
    max_length: int
    finished: list[Hypothesis] = field(default_factory=list)

    def is_done(self, best_live: float, length: int, beam_size: int, n_best: int, norm: LengthNorm) -> bool:
        """The stopping rule. `best_live` is the highest log-probability of a live hypothesis, all of `length` tokens;
        -inf if none lives.
        """
        if best_live == -torch.inf:
            return True
        if len(self.finished) < n_best:
            return False
        worst_wanted = sorted((h.score for h in self.finished), reverse=True)[n_best - 1]
        if len(self.finished) >= beam_size and best_live / norm(length) <= worst_wanted:
            return True
        return best_live / norm(self.max_length) < worst_wanted


@dataclass
class _Beams:
    """Live hypotheses of the sentences still searched. Dead places hold -inf."""

    tokens: Tensor  # (sentences, rows_per_sentence, length)
    log_probs: Tensor  # (sentences, rows_per_sentence)


def beam_search(
    decoder: StepFunction,
    max_lengths: Sequence[int],
    beam_size: int,
    n_best: int,
    norm: LengthNorm,
    allow_unk: bool,
    device: torch.device,
) -> list[list[Hypothesis]]:
    """Up to `n_best` (<= beam_size) hypotheses a sentence, best score first. `max_lengths` count EOS."""
    sentences = [_Sentence(i, max_length) for i, max_length in enumerate(max_lengths)]
    results: list[list[Hypothesis]] = [[] for _ in max_lengths]
    beams = _Beams(
        torch.full((len(sentences), 1, 1), BOS_ID, device=device), torch.zeros(len(sentences), 1, device=device)
    )
    for length in count(1):
        logits = decoder.step(beams.tokens[:, :, -1].flatten())
        rows_per_sentence = beams.log_probs.size(1)
        must_end = None
        if any(sentence.max_length <= length for sentence in sentences):
            must_end = torch.tensor([s.max_length <= length for s in sentences], device=device)
        parents = _advance(beams, logits.float(), must_end, allow_unk, beam_size, sentences, norm, length)
        best_live = beams.log_probs[:, 0].tolist()
        done = [
            sentence.is_done(best, length, beam_size, n_best, norm)
            for sentence, best in zip(sentences, best_live, strict=True)
        ]
        for sentence in compress(sentences, done):
            results[sentence.index] = sorted(sentence.finished, key=lambda h: h.score, reverse=True)[:n_best]
        if all(done):
            break
        kept = without(torch.tensor(done, device=device)) if any(done) else None
        _follow(decoder, beams, parents, rows_per_sentence, kept)
        if kept is not None:
            sentences = [sentences[place] for place in kept.tolist()]
    return results


def _advance(
    beams: _Beams,
    logits: Tensor,
    must_end: Tensor | None,
    allow_unk: bool,
    beam_size: int,
    sentences: list[_Sentence],
    norm: LengthNorm,
    length: int,
) -> Tensor:
    """Extend by one token: finish what ends among the K best, keep the K best that go on.

    logits (sentences * rows_per_sentence, vocab_size). Returns the parent of each new live hypothesis within its
    sentence (sentences, beam_size).
    """
    totals, parents, tokens = best_extensions(logits, 2 * beam_size, allow_unk, must_end, beams.log_probs)
    ends = (tokens == EOS_ID) & (totals > -torch.inf)
    _finish(beams, totals, parents, ends[:, :beam_size], sentences, norm, length)
    # Candidates come best first, so a stable sort that moves the ended ones last leaves the K best to go on with.
    live = ends.int().argsort(dim=1, stable=True)[:, :beam_size]
    dead = ends.gather(1, live)
    beams.log_probs = totals.gather(1, live).masked_fill(dead, -torch.inf)
    parents, tokens = parents.gather(1, live), tokens.gather(1, live)
    history = beams.tokens.gather(1, parents[:, :, None].expand(-1, -1, beams.tokens.size(2)))
    beams.tokens = torch.cat((history, tokens[:, :, None]), dim=2)
    return parents


def _finish(
    beams: _Beams,
    totals: Tensor,
    parents: Tensor,
    ends: Tensor,
    sentences: list[_Sentence],
    norm: LengthNorm,
    length: int,
) -> None:
    places, ranks = ends.nonzero(as_tuple=True)
    histories = beams.tokens[places, parents[places, ranks], 1:].tolist()
    for place, tokens, log_prob in zip(places.tolist(), histories, totals[places, ranks].tolist(), strict=True):
        sentences[place].finished.append(Hypothesis(tokens, log_prob, log_prob / norm(length)))


def _follow(decoder: StepFunction, beams: _Beams, parents: Tensor, rows_per_sentence: int, kept: Tensor | None) -> None:
    """Drop sentences that are not `kept` and tell the decoder which old row each new row continues."""
    places = torch.arange(len(parents), device=parents.device)
    if kept is not None:
        places, parents = kept, parents[kept]
        beams.tokens, beams.log_probs = beams.tokens[kept], beams.log_probs[kept]
    decoder.reorder((places[:, None] * rows_per_sentence + parents).flatten(), kept)
