"""The tokens that a search may not take next. A rule forbids by -inf and changes no other score.

Every rule is asked before each step, about all hypotheses at once. A search without rules asks nobody.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_mt.config.special_ids import EOS_ID, NUM_SPECIAL, UNK_ID
from transformer_mt.decoding.search.options import SearchOptions


@dataclass(frozen=True)
class WordEdges:
    """The ids of the entries of a vocabulary that go on with the word before them, and of those that end within a word,
    so that the next entry may go on with it.
    """

    continuing: Sequence[int] = ()
    ending_within: Sequence[int] = ()


@dataclass(frozen=True)
class Writing:
    """One way to write a phrase. With `after_break` it is the phrase only where no word stands directly before it. With
    `ends_in_word` it is the phrase only where the token after it begins another word. Its first `num_spaces` tokens are
    white space.
    """

    tokens: tuple[int, ...]
    after_break: bool = False
    ends_in_word: bool = False
    num_spaces: int = 0


@dataclass(frozen=True)
class Demand:
    """What a caller demands of one translation: it begins with the tokens of `prefix`, and holds none of the sequences
    `avoided`. Where `ends_in_word`, the token after the prefix begins another word. Of each of the `constraints` it
    holds one of the writings, and two may share tokens. Translations at different `place`s have different samples.
    """

    prefix: tuple[int, ...] = ()
    ends_in_word: bool = False
    avoided: tuple[tuple[int, ...], ...] = ()
    constraints: tuple[tuple[Writing, ...], ...] = ()
    place: tuple[int, ...] = ()

    @property
    def tokens_of_constraints(self) -> int:
        """How many tokens the constraints take at least."""
        return sum(min(len(way.tokens) for way in phrase if not way.after_break) for phrase in self.constraints)


@dataclass(frozen=True)
class Hypotheses:
    """The hypotheses that a step extends: their tokens so far (rows, length), without BOS, and the place of their
    sentence in the batch (rows,).
    """

    tokens: Tensor
    sentences: Tensor


# Forbids next tokens in place; logits (rows, vocab_size).
Rule = Callable[[Tensor, Hypotheses], None]


class MinLength:
    """No end before `length` tokens, unless the largest length comes first."""

    def __init__(self, length: int, limits: Tensor) -> None:
        """limits (sentences,), EOS counted."""
        self._least = torch.full_like(limits, length).minimum(limits - 1)

    def __call__(self, logits: Tensor, hypotheses: Hypotheses) -> None:
        too_short = self._least[hypotheses.sentences] > hypotheses.tokens.size(1)
        logits[:, EOS_ID].masked_fill_(too_short, -torch.inf)


class NoRepeat:
    """No n tokens in a row that the hypothesis has already (Paulus et al. 2018, section 2.5, for n = 3)."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __call__(self, logits: Tensor, hypotheses: Hypotheses) -> None:
        tokens, n = hypotheses.tokens, self._n
        if tokens.size(1) < n:
            return
        windows = tokens.unfold(1, n, 1)
        tail = tokens[:, tokens.size(1) - n + 1 :]
        rows, places = (windows[:, :, :-1] == tail[:, None]).all(dim=2).nonzero(as_tuple=True)
        logits[rows, windows[rows, places, -1]] = -torch.inf


class Avoid:
    """None of a sentence's sequences of tokens anywhere."""

    def __init__(self, demands: Sequence[Demand], device: torch.device) -> None:
        by_length: dict[int, list[tuple[int, ...]]] = {}
        for sequence in sorted({sequence for demand in demands for sequence in demand.avoided}):
            by_length.setdefault(len(sequence), []).append(sequence)
        # Of each length the sequences (number, length), and whether a sentence avoids them (sentences, number).
        self._tables = [
            (
                torch.tensor(sequences, device=device),
                torch.tensor([[sequence in demand.avoided for sequence in sequences] for demand in demands]).to(device),
            )
            for sequences in by_length.values()
        ]

    def __call__(self, logits: Tensor, hypotheses: Hypotheses) -> None:
        length = hypotheses.tokens.size(1)
        for sequences, is_avoided in self._tables:
            begun = sequences.size(1) - 1
            if begun <= length:
                is_begun = (hypotheses.tokens[:, None, length - begun :] == sequences[:, :-1]).all(dim=2)
                rows, which = (is_begun & is_avoided[hypotheses.sentences]).nonzero(as_tuple=True)
                logits[rows, sequences[which, -1]] = -torch.inf


class Prefix:
    """The given beginning of each sentence, and after it no token that would go on with its last word."""

    def __init__(self, demands: Sequence[Demand], within_words: Tensor) -> None:
        """within_words: the ids of entries that go on with the word before them."""
        device = within_words.device
        rows = [torch.tensor(demand.prefix, dtype=torch.long) for demand in demands]
        self._tokens = pad_sequence(rows, batch_first=True, padding_value=-1).to(device)
        whole = [len(demand.prefix) if demand.ends_in_word else -1 for demand in demands]
        self._lengths_of_whole = torch.tensor(whole, device=device)
        self._within_words = within_words

    def forced(self, hypotheses: Hypotheses) -> tuple[Tensor, Tensor]:
        """The rows that must take a token, and this token."""
        length = hypotheses.tokens.size(1)
        if length >= self._tokens.size(1):
            return hypotheses.sentences[:0], hypotheses.sentences[:0]
        tokens = self._tokens[hypotheses.sentences, length]
        rows = (tokens >= 0).nonzero().squeeze(1)
        return rows, tokens[rows]

    def __call__(self, logits: Tensor, hypotheses: Hypotheses) -> None:
        ends_here = self._lengths_of_whole[hypotheses.sentences] == hypotheses.tokens.size(1)
        logits[ends_here.nonzero(), self._within_words] = -torch.inf


class Rules:
    """All rules of one batch."""

    def __init__(self, rules: Sequence[Rule], prefix: Prefix, allow_unk: bool) -> None:
        self._rules = rules
        self._prefix = prefix
        self._allow_unk = allow_unk

    def __call__(self, logits: Tensor, hypotheses: Hypotheses) -> None:
        """Forbid next tokens in place, logits (rows, vocab_size). Where nothing is left, the hypothesis may end. A
        prefix is stronger than any other rule.
        """
        rows, forced = self._prefix.forced(hypotheses)
        values, ends = logits[rows, forced], logits[:, EOS_ID].clone()
        for rule in self._rules:
            rule(logits, hypotheses)
        is_free = (logits[:, EOS_ID] > -torch.inf) | (logits[:, NUM_SPECIAL:] > -torch.inf).any(dim=1)
        if self._allow_unk:
            is_free |= logits[:, UNK_ID] > -torch.inf
        logits[:, EOS_ID] = torch.where(is_free, logits[:, EOS_ID], ends)
        logits[rows] = -torch.inf
        logits[rows, forced] = values


def make_rules(
    options: SearchOptions,
    limits: Sequence[int],
    demands: Sequence[Demand],
    within_words: Sequence[int],
    device: torch.device,
) -> Rules | None:
    """The rules that the options and demands of a batch ask for, None where they ask for none.

    limits: the largest length of each sentence, EOS counted. within_words: the ids of entries that go on with the word
    before them.
    """
    rules: list[Rule] = []
    if options.min_length > 0:
        rules.append(MinLength(options.min_length, torch.tensor(limits, device=device)))
    if options.no_repeat_ngram_size > 0:
        rules.append(NoRepeat(options.no_repeat_ngram_size))
    if any(demand.avoided for demand in demands):
        rules.append(Avoid(demands, device))
    has_prefix = any(demand.prefix for demand in demands)
    if not (rules or has_prefix):
        return None
    prefix = Prefix(demands, torch.tensor(within_words, dtype=torch.long, device=device))
    return Rules([*rules, prefix] if has_prefix else rules, prefix, options.allow_unk)
