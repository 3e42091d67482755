"""What a translator makes of a line: hypotheses as text, with what is known of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformer_mt.aligning.alignment import HardLinks, SoftLinks
from transformer_mt.decoding.evidence import Evidence
from transformer_mt.decoding.search.options import SearchOptions


@dataclass(frozen=True)
class WordConfidence:
    """A word of a translation, and the probability that it is right, 0 to 1."""

    word: str
    confidence: float


@dataclass(frozen=True)
class Confidence:
    """How sure one may be of a sentence and of its words, each 0 to 1; see `finishing.confidence`."""

    sentence: float
    words: tuple[WordConfidence, ...]


@dataclass(frozen=True)
class Translation:
    """One hypothesis as text. `log_prob` sums over `tokens` and EOS; `score` is that, divided by the length norm.

    `utility` is what `mbr` chose by (see `minimum_bayes_risk`), 0 to 100. `alignment` is (source word, target word) of
    each link, or with its probability (source word, target word, p); words are stretches without white space, counted
    from 0. Both are None where they were not asked for. So is `confidence`, which is worked out from `evidence`: what
    the model says of the words of each part that it translated by itself.
    """

    text: str
    score: float
    log_prob: float
    tokens: list[str]
    utility: float | None = None
    alignment: HardLinks | SoftLinks | None = None
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence | None = None

    @property
    def rank(self) -> float:
        """What is larger for a better hypothesis of the same line."""
        return self.score if self.utility is None else self.utility


def side_by_side(text: str, parts: Sequence[Translation], options: SearchOptions) -> Translation:
    """The translations as one, whose text is given. It has all their tokens and an EOS of each, and the mean of their
    utilities.
    """
    tokens = [token for part in parts for token in part.tokens]
    log_prob = sum(part.log_prob for part in parts)
    coverage = sum(part.score - part.log_prob / options.norm(len(part.tokens) + 1) for part in parts)
    score = log_prob / options.norm(len(tokens) + len(parts)) + (coverage if options.coverage_penalty else 0.0)
    utilities = [part.utility for part in parts if part.utility is not None]
    utility = sum(utilities) / len(utilities) if utilities else None
    evidence = tuple(one for part in parts for one in part.evidence)
    return Translation(text, score, log_prob, tokens, utility, evidence=evidence)


def in_order(hypotheses: list[Translation], options: SearchOptions) -> list[Translation]:
    """Those of a line that are made of several parts' in the order of an n-best list: the best first, but samples as
    they were drawn.
    """
    return hypotheses if options.keeps_order else sorted(hypotheses, key=lambda h: -h.rank)


@dataclass(frozen=True)
class Translated:
    """A source line and its hypotheses: none for a blank line, and for a `too_long` one left blank. The best comes
    first; samples come in the order drawn, unless `mbr` has chosen.

    `unknown_words` are those of the source that the model has no entry for and reads as UNK, in their order. `problem`
    says why no translation meets what was demanded of it. `is_aligned`: alignments were asked for;
    `is_judged`: confidences were, beside the texts. A `rejected` line is left to a person: nothing of it is `written`.
    """

    source: str
    hypotheses: list[Translation]
    too_long: bool = False
    unknown_words: tuple[str, ...] = ()
    problem: str = ""
    is_aligned: bool = False
    is_judged: bool = False
    rejected: bool = False

    @property
    def written(self) -> list[Translation]:
        """The hypotheses that are written as text."""
        return [] if self.rejected else self.hypotheses

    @property
    def text(self) -> str:
        """The first hypothesis, or nothing."""
        return self.written[0].text if self.written else ""
