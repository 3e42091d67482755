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

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from transformer_mt.config.special_ids import BOS_ID, EOS_ID
from transformer_mt.decoding.search.finished import Finished
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction, are_dropped, without
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Hypotheses, Rules
from transformer_mt.decoding.search.top_tokens import BLOCK, best_extensions, not_a_number, survey


@dataclass
class Beams:
    """Live hypotheses of the sentences still searched, and what these have finished. Dead places hold -inf.

    A sentence that is done may stay for a while: it goes on, and finishes nothing more.
    """

    sentences: Tensor  # (sentences,), their places in the batch
    limits: Tensor  # (sentences,), their largest lengths
    tokens: Tensor  # (sentences, rows_per_sentence, length), BOS first
    log_probs: Tensor  # (sentences, rows_per_sentence)
    is_done: Tensor  # (sentences,)
    is_bad: Tensor  # (sentences,): it was not done before the newest step, and is bad by `Totals.are_bad`
    finished: Finished

    @classmethod
    def begin(cls, max_lengths: Sequence[int], options: SearchOptions, device: torch.device) -> "Beams":
        """One hypothesis a sentence, of BOS alone."""
        sentences = torch.arange(len(max_lengths), device=device)
        return cls(
            sentences,
            torch.tensor(max_lengths, device=device),
            torch.full((len(sentences), 1, 1), BOS_ID, device=device),
            torch.zeros(len(sentences), 1, device=device),
            torch.zeros_like(sentences, dtype=torch.bool),
            torch.zeros_like(sentences, dtype=torch.bool),
            Finished(max_lengths, options, device),
        )

    def hypotheses(self) -> Hypotheses:
        """All places as rows, the dead ones too."""
        return Hypotheses(self.tokens[:, :, 1:].flatten(0, 1), self.sentences.repeat_interleave(self.tokens.size(1)))

    def take(self, totals: Tensor, parents: Tensor, tokens: Tensor, options: SearchOptions) -> tuple[Tensor, Tensor]:
        """Finish what ends among the K best candidates, and go on with the K best that do not end.

        totals, parents and tokens (sentences, up to 2K), best first. Returns the parent of each new live hypothesis
        within its sentence (sentences, K), and which candidates end among the K best (sentences, K).
        """
        beam_size = options.beam_size
        ends = (tokens == EOS_ID) & (totals > -torch.inf)
        self.finish(totals, parents, ends[:, :beam_size])
        # Candidates come best first, so a stable sort that moves the ended ones last leaves the K best to go on with.
        live = ends.int().argsort(dim=1, stable=True)[:, :beam_size]
        totals, parents, tokens, dead = (x.gather(1, live) for x in (totals, parents, tokens, ends))
        self.go_on(totals.masked_fill(dead, -torch.inf), parents, tokens)
        return parents, ends[:, :beam_size]

    def finish(self, totals: Tensor, parents: Tensor, ends: Tensor) -> None:
        """Note the hypotheses that end; totals and parents (sentences, any), ends (sentences, up to as many)."""
        width = ends.size(1)
        ends = ends & ~self.is_done[:, None]
        self.finished.note(self.sentences, ends, totals[:, :width], parents[:, :width], self.tokens)

    def go_on(self, totals: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """The live hypotheses are these parents, each with one more token; all (sentences, any)."""
        self.log_probs = totals
        history = self.tokens.gather(1, parents[:, :, None].expand(-1, -1, self.tokens.size(2)))
        self.tokens = torch.cat((history, tokens[:, :, None]), dim=2)

    def judge(self) -> None:
        """Which sentences are done after the newest step."""
        best_live, best_rival = self.log_probs.amax(dim=1), self.rivals().amax(dim=1)
        self.is_done = self.is_done | self.finished.are_enough(best_live, best_rival, self.tokens.size(2) - 1)

    def rivals(self) -> Tensor:
        """The log-probabilities of the live hypotheses that a sentence waits for while one of them stands better than
        what is finished; -inf in the places of others. (sentences, rows_per_sentence).
        """
        return self.log_probs

    def keep(self, places: Tensor) -> None:
        """Drop all sentences but those at these places."""
        self.sentences, self.limits, self.is_done = (x[places] for x in (self.sentences, self.limits, self.is_done))
        self.tokens, self.log_probs = self.tokens[places], self.log_probs[places]
        self.finished.keep(places)


def beam_search(
    decoder: StepFunction,
    max_lengths: Sequence[int],
    options: SearchOptions,
    device: torch.device,
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """Up to `n_best` hypotheses a sentence, best score first. `max_lengths` count EOS."""
    beams, shortest = Beams.begin(max_lengths, options, device), min(max_lengths)
    for length in count(1):
        logits = decoder.step(beams.tokens[:, :, -1].flatten()).float()
        rows_per_sentence = beams.log_probs.size(1)
        must_end = beams.limits <= length if length >= shortest else None
        parents = _advance(beams, logits.unflatten(0, (-1, rows_per_sentence)), must_end, options, rules)
        beams.judge()
        num_done = count_done(beams.is_done, beams.is_bad)
        if num_done == len(beams.sentences):
            return beams.finished.best()
        kept = without(beams.is_done) if are_dropped(num_done, len(beams.sentences), device) else None
        follow(decoder, [beams], parents, rows_per_sentence, kept)
    raise AssertionError("a sentence has a largest length")


def count_done(is_done: Tensor, is_bad: Tensor) -> int:
    """How many sentences are done; both (sentences,). Without rules and constraints it is the one question to the
    device at a step. Raises UserError where one is bad.
    """
    num_done, num_bad = torch.stack((is_done.sum(), is_bad.sum())).tolist()
    if num_bad:
        raise not_a_number()
    return num_done


def _advance(
    beams: Beams, logits: Tensor, must_end: Tensor | None, options: SearchOptions, rules: Rules | None
) -> Tensor:
    """Extend all hypotheses by a token: finish what ends among the K best, keep the K best that go on.

    logits (sentences, rows_per_sentence, vocab_size); must_end as in `best_extensions`. Returns the parent of each new
    live hypothesis within its sentence (sentences, beam_size).
    """
    so_far, maxima = survey(logits, beams.log_probs, BLOCK)
    beams.is_bad = so_far.are_bad & ~beams.is_done
    if rules is not None:
        rules(logits.flatten(0, 1), beams.hypotheses())
        maxima = None
    num_best = 2 * options.beam_size
    totals, parents, tokens = best_extensions(logits, num_best, options.allow_unk, must_end, so_far, maxima)
    return beams.take(totals, parents, tokens, options)[0]


def follow(
    decoder: StepFunction, groups: list[Beams], parents: Tensor, rows_per_sentence: int, kept: Tensor | None
) -> None:
    """Drop sentences that are not `kept` and tell the decoder which old row each new row of all groups continues."""
    places = torch.arange(len(parents), device=parents.device)
    if kept is not None:
        places, parents = kept, parents[kept]
        for beams in groups:
            beams.keep(kept)
    decoder.reorder((places[:, None] * rows_per_sentence + parents).flatten(), kept)
