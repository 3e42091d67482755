"""What a beam has finished. It is noted where the search computes and read later: a GPU that is asked at each step what
has ended computes nothing meanwhile.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_mt.decoding.search.greedy import Hypothesis
from transformer_mt.decoding.search.options import SearchOptions

NUMBERS_AT_ONCE = 2**22  # of notes that wait to be read, 8 bytes each


class _Note(NamedTuple):
    """A step of some sentences: which of the candidates (sentences, any) end, and what these are. tokens (sentences,
    rows, length) are the hypotheses that they extend, BOS first.
    """

    sentences: Tensor
    ends: Tensor
    totals: Tensor
    parents: Tensor
    tokens: Tensor


def reads_later(device: torch.device) -> bool:
    """Whether notes wait: a CPU has no reason to."""
    return device.type != "cpu"


class Finished:
    """The finished hypotheses of the sentences of a batch, and when a sentence has enough of them.

    `scores` (sentences, n_best) are the best of each sentence that is still searched, `counts` (sentences,) how many it
    has.
    """

    def __init__(self, max_lengths: Sequence[int], options: SearchOptions, device: torch.device) -> None:
        self._options, self._reads_later = options, reads_later(device)
        self._found: list[list[Hypothesis]] = [[] for _ in max_lengths]
        self._notes: list[_Note] = []
        self._largest_norms = torch.tensor([options.norm(length) for length in max_lengths], device=device)
        self.scores = torch.full((len(max_lengths), options.n_best), -torch.inf, device=device)
        self.counts = torch.zeros(len(max_lengths), dtype=torch.long, device=device)

    def note(self, sentences: Tensor, ends: Tensor, totals: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Candidates that end: sentences (sentences,) by their place in the batch; ends, totals and parents (sentences,
        any); tokens (sentences, rows, length), BOS first, are the hypotheses before their last token.
        """
        if not self._reads_later and not ends.any():
            return
        scores = (totals / self._options.norm(tokens.size(2))).masked_fill(~ends, -torch.inf)
        self.scores = torch.cat((self.scores, scores), dim=1).topk(self._options.n_best).values
        self.counts = self.counts + ends.sum(dim=1)
        self._notes.append(_Note(sentences, ends, totals, parents, tokens))
        if not self._reads_later or sum(note.tokens.numel() for note in self._notes) > NUMBERS_AT_ONCE:
            self._read()

    def are_enough(self, best_live: Tensor, best_rival: Tensor, length: int) -> Tensor:
        """The stopping rule, of each sentence (sentences,). `best_live` are the highest log-probabilities of the live
        hypotheses, all of `length` tokens, -inf where none lives, and `best_rival` of those that are compared as they
        stand.
        """
        options, worst_wanted = self._options, self.scores[:, -1]
        enough = self.counts >= math.ceil(options.beam_size * options.patience)
        has_won = enough & (best_rival / options.norm(length) <= worst_wanted)
        cannot_lose = best_live / self._largest_norms < worst_wanted
        return (best_live == -torch.inf) | ((self.counts >= options.n_best) & (has_won | cannot_lose))

    def keep(self, places: Tensor) -> None:
        """Only the sentences at these places are searched on."""
        self.scores, self.counts, self._largest_norms = (
            x[places] for x in (self.scores, self.counts, self._largest_norms)
        )

    def best(self) -> list[list[Hypothesis]]:
        """Up to `n_best` of each sentence of the batch, best score first."""
        self._read()
        return [sorted(of_one, key=lambda h: h.score, reverse=True)[: self._options.n_best] for of_one in self._found]

    def _read(self) -> None:
        for sentences, ends, totals, parents, tokens in self._notes:
            places, ranks = ends.nonzero(as_tuple=True)
            histories = tokens[places, parents[places, ranks], 1:].tolist()
            norm = self._options.norm(tokens.size(2))
            for sentence, history, log_prob in zip(
                sentences[places].tolist(), histories, totals[places, ranks].tolist(), strict=True
            ):
                self._found[sentence].append(Hypothesis(history, log_prob, log_prob / norm))
        self._notes.clear()
