"""Beam search, batched over sentences.

At each step every live hypothesis of a sentence is extended by every token, and the 2K best candidates are looked at:
2K, because at most K of them can be EOS, so that K remain to go on with. Of the K best, those that end are finished;
the K best that do not end live on.

A sentence stops when `patience` times K hypotheses are finished (Kasai et al. 2022) and no live one scores better, as
it stands, than the worst of the `n_best` wanted. It also stops when `n_best` are finished and no live one can reach
their worst score, even if it grew to its largest length at no cost; this never changes the result of the first rule. K
finished hypotheses alone are no reason to stop: where one continuation is nearly certain, the others among the K best
may end at whatever cost.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, count

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction, without
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Hypotheses, Rules
from transformer_mt.decoding.search.top_tokens import best_extensions


@dataclass
class Sentence:
    """The finished hypotheses of one sentence."""

    index: int
    max_length: int
    finished: list[Hypothesis] = field(default_factory=list)

    def is_done(self, best_live: float, length: int, options: SearchOptions) -> bool:
        """The stopping rule. `best_live` is the highest log-probability of the live hypotheses, all of `length` tokens;
        -inf if none lives.
        """
        if best_live == -torch.inf:
            return True
        if len(self.finished) < options.n_best:
            return False
        worst_wanted = self.best(options.n_best)[-1].score
        enough = math.ceil(options.beam_size * options.patience)
        if len(self.finished) >= enough and best_live / options.norm(length) <= worst_wanted:
            return True
        return best_live / options.norm(self.max_length) < worst_wanted

    def best(self, n_best: int) -> list[Hypothesis]:
        """Up to `n_best` of what is finished, best score first."""
        return sorted(self.finished, key=lambda h: h.score, reverse=True)[:n_best]


@dataclass
class Beams:
    """Live hypotheses of the sentences still searched. Dead places hold -inf."""

    sentences: list[Sentence]
    tokens: Tensor  # (sentences, rows_per_sentence, length), BOS first
    log_probs: Tensor  # (sentences, rows_per_sentence)

    @classmethod
    def begin(cls, max_lengths: Sequence[int], device: torch.device) -> "Beams":
        """One hypothesis a sentence, of BOS alone."""
        return cls(
            [Sentence(i, max_length) for i, max_length in enumerate(max_lengths)],
            torch.full((len(max_lengths), 1, 1), BOS_ID, device=device),
            torch.zeros(len(max_lengths), 1, device=device),
        )

    def hypotheses(self) -> Hypotheses:
        """All places as rows, the dead ones too."""
        sentences = torch.tensor([sentence.index for sentence in self.sentences], device=self.tokens.device)
        return Hypotheses(self.tokens[:, :, 1:].flatten(0, 1), sentences.repeat_interleave(self.tokens.size(1)))

    def must_end(self, length: int) -> Tensor | None:
        """Which sentences (sentences,) may have no more than `length` tokens; None where all may."""
        if all(sentence.max_length > length for sentence in self.sentences):
            return None
        return torch.tensor([s.max_length <= length for s in self.sentences], device=self.tokens.device)

    def take(self, totals: Tensor, parents: Tensor, tokens: Tensor, options: SearchOptions) -> tuple[Tensor, Tensor]:
        """Finish what ends among the K best candidates, and go on with the K best that do not end.

        totals, parents and tokens (sentences, up to 2K), best first. Returns the parent of each new live hypothesis
        within its sentence (sentences, K), and which candidates were finished (sentences, K).
        """
        beam_size = options.beam_size
        ends = (tokens == EOS_ID) & (totals > -torch.inf)
        finished = ends[:, :beam_size]
        self.finish(totals, parents, finished, options.norm(self.tokens.size(2)))
        # Candidates come best first, so a stable sort that moves the ended ones last leaves the K best to go on with.
        live = ends.int().argsort(dim=1, stable=True)[:, :beam_size]
        dead = ends.gather(1, live)
        self.log_probs = totals.gather(1, live).masked_fill(dead, -torch.inf)
        parents, tokens = parents.gather(1, live), tokens.gather(1, live)
        history = self.tokens.gather(1, parents[:, :, None].expand(-1, -1, self.tokens.size(2)))
        self.tokens = torch.cat((history, tokens[:, :, None]), dim=2)
        return parents, finished

    def finish(self, totals: Tensor, parents: Tensor, ends: Tensor, norm: float) -> None:
        """Note the hypotheses that end; totals and parents (sentences, any), ends (sentences, up to as many)."""
        places, ranks = ends.nonzero(as_tuple=True)
        histories = self.tokens[places, parents[places, ranks], 1:].tolist()
        for place, tokens, log_prob in zip(places.tolist(), histories, totals[places, ranks].tolist(), strict=True):
            self.sentences[place].finished.append(Hypothesis(tokens, log_prob, log_prob / norm))

    def keep(self, places: Tensor) -> None:
        """Drop all sentences but those at these places."""
        self.sentences = [self.sentences[place] for place in places.tolist()]
        self.tokens, self.log_probs = self.tokens[places], self.log_probs[places]


def beam_search(
    decoder: StepFunction,
    max_lengths: Sequence[int],
    options: SearchOptions,
    device: torch.device,
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """Up to `n_best` hypotheses a sentence, best score first. `max_lengths` count EOS."""
    results: list[list[Hypothesis]] = [[] for _ in max_lengths]
    beams = Beams.begin(max_lengths, device)
    for length in count(1):
        logits = decoder.step(beams.tokens[:, :, -1].flatten())
        rows_per_sentence = beams.log_probs.size(1)
        parents = _advance(beams, logits.float(), length, options, rules)
        best_live = beams.log_probs[:, 0].tolist()
        done = [
            sentence.is_done(best, length, options) for sentence, best in zip(beams.sentences, best_live, strict=True)
        ]
        for sentence in compress(beams.sentences, done):
            results[sentence.index] = sentence.best(options.n_best)
        if all(done):
            break
        kept = without(torch.tensor(done, device=device)) if any(done) else None
        follow(decoder, beams, parents, rows_per_sentence, kept)
    return results


def _advance(beams: Beams, logits: Tensor, length: int, options: SearchOptions, rules: Rules | None) -> Tensor:
    """Extend all hypotheses to `length` tokens: finish what ends among the K best, keep the K best that go on.

    logits (sentences * rows_per_sentence, vocab_size). Returns the parent of each new live hypothesis within its
    sentence (sentences, beam_size).
    """
    beam_size, must_end = options.beam_size, beams.must_end(length)
    forbid = None if rules is None else partial(rules, hypotheses=beams.hypotheses())
    totals, parents, tokens = best_extensions(
        logits, 2 * beam_size, options.allow_unk, must_end, beams.log_probs, forbid
    )
    return beams.take(totals, parents, tokens, options)[0]


def follow(decoder: StepFunction, beams: Beams, parents: Tensor, rows_per_sentence: int, kept: Tensor | None) -> None:
    """Drop sentences that are not `kept` and tell the decoder which old row each new row continues."""
    places = torch.arange(len(parents), device=parents.device)
    if kept is not None:
        places, parents = kept, parents[kept]
        beams.keep(kept)
    decoder.reorder((places[:, None] * rows_per_sentence + parents).flatten(), kept)
