"""Search against hand-computed winners, exhaustive enumeration, and teacher-forced scores."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from translators import rules

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.decoding.model_decoder import ModelDecoder
from transformer_mt.decoding.search.beam import beam_search
from transformer_mt.decoding.search.greedy import Hypothesis, greedy_search
from transformer_mt.decoding.search.options import LENGTH_NORMS, LengthNorm
from transformer_mt.model.transformer import Transformer

CPU = torch.device("cpu")
A, B, C = 4, 5, 6
VOCAB = 7
PLAIN = LengthNorm("gnmt", 0.0)


class Table:
    """A decoder that looks the next probabilities up by the prefix, one table a sentence.

    It keeps each row's prefix as a cache would, so that a wrong reorder shows at once.
    """

    def __init__(self, tables: list[dict[tuple[int, ...], dict[int, float]]]) -> None:
        self.tables = tables
        self.sentences = list(range(len(tables)))
        self.rows: list[tuple[int, ...]] = [() for _ in tables]
        self.num_rows_fed: list[int] = []

    def step(self, tokens: Tensor) -> Tensor:
        self.rows = [(*prefix, token) for prefix, token in zip(self.rows, tokens.tolist(), strict=True)]
        self.num_rows_fed.append(len(self.rows))
        logits = torch.full((len(self.rows), VOCAB), -torch.inf)
        per_sentence = len(self.rows) // len(self.sentences)
        for i, prefix in enumerate(self.rows):
            row = self.tables[self.sentences[i // per_sentence]].get(prefix[1:], {EOS_ID: 1.0})
            for token, probability in row.items():
                logits[i, token] = math.log(probability)
        return logits

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        self.rows = [self.rows[i] for i in index.tolist()]
        if sentences is not None:
            self.sentences = [self.sentences[i] for i in sentences.tolist()]


def beam(tables, size: int, norm: LengthNorm = PLAIN, n_best: int = 1, limit: int = 10) -> list[list[Hypothesis]]:
    return beam_search(Table(tables), [limit] * len(tables), rules(size, n_best, norm), CPU)


# Greedy takes A (0.6) and is left with 0.6 * 0.4; B (0.4) leads to 0.4 * 0.9.
GARDEN_PATH = {(): {A: 0.6, B: 0.4}, (A,): {A: 0.3, B: 0.3, EOS_ID: 0.4}, (B,): {EOS_ID: 0.9, A: 0.1}}


def test_beam_finds_what_greedy_misses() -> None:
    (greedy,) = greedy_search(Table([GARDEN_PATH]), [10], rules(), CPU)
    assert greedy[0].tokens == [A]
    assert greedy[0].log_prob == pytest.approx(math.log(0.6 * 0.4), abs=1e-5)
    (found,) = beam([GARDEN_PATH], 2)
    assert found[0].tokens == [B]
    assert found[0].log_prob == pytest.approx(math.log(0.4 * 0.9), abs=1e-5)


# "A EOS" has 0.5; "B B B EOS" has 0.5 * 0.8^3 = 0.256. Without a penalty the short one wins. gnmt at alpha 1 divides
# by 7/6 and 9/6: log .5 / 1.1667 = -0.594 against log .256 / 1.5 = -0.908: still the short one. `average` at alpha 1
# divides by 2 and 4: -0.347 against -0.341: the long one.
LONG_OR_SHORT = {(): {A: 0.5, B: 0.5}, (A,): {EOS_ID: 1.0}, (B,): {B: 0.8, C: 0.2}, (B, B): {B: 0.8, C: 0.2},
                 (B, B, B): {EOS_ID: 0.8, C: 0.2}}  # fmt: skip


@pytest.mark.parametrize(
    ("norm", "winner", "score"),
    [
        (PLAIN, [A], math.log(0.5)),
        (LengthNorm("gnmt", 1.0), [A], math.log(0.5) / (7 / 6)),
        (LengthNorm("average", 1.0), [B, B, B], math.log(0.5 * 0.8**3) / 4),
    ],
)
def test_length_norm_flips_a_winner(norm: LengthNorm, winner: list[int], score: float) -> None:
    (found,) = beam([LONG_OR_SHORT], 5, norm)
    assert found[0].tokens == winner
    assert found[0].score == pytest.approx(score, abs=1e-5)


OF_13_TOKENS = {"gnmt": 3.0, "average": 13.0}


@pytest.mark.parametrize("kind", LENGTH_NORMS)
def test_length_norms_by_hand(kind: str) -> None:
    assert LengthNorm(kind, 1.0)(13) == pytest.approx(OF_13_TOKENS[kind])
    assert LengthNorm(kind, 0.6)(13) == pytest.approx(OF_13_TOKENS[kind] ** 0.6)
    assert LengthNorm(kind, 0.0)(40) == 1.0
    norms = [LengthNorm(kind, 0.6)(length) for length in range(1, 300)]
    assert norms == sorted(norms), "a beam ends by what a longer hypothesis can still reach"


def test_stops_when_k_are_finished() -> None:
    """Beam 2: A ends at the second step, B at the third; nothing is fed after that."""
    table = {(): {A: 0.6, B: 0.4}, (A,): {EOS_ID: 1.0}, (B,): {C: 1.0}, (B, C): {EOS_ID: 0.6, A: 0.4}}
    decoder = Table([table])
    (found,) = beam_search(decoder, [10], rules(2, 2), CPU)
    assert [h.tokens for h in found] == [[A], [B, C]]
    assert decoder.num_rows_fed == [1, 2, 2]


def test_k_finished_do_not_stop_what_is_better_than_they_are() -> None:
    """Beam 2: at each of the first two steps what is left beside A, which is nearly certain, ends at once."""
    table = {
        (): {A: 0.9, EOS_ID: 0.1},
        (A,): {A: 0.9, EOS_ID: 0.1},
        (A, A): {A: 0.9, EOS_ID: 0.1},
        (A, A, A): {EOS_ID: 1.0},
    }
    (found,) = beam([table], 2)
    assert found[0].tokens == [A, A, A]
    assert found[0].log_prob == pytest.approx(math.log(0.9**3), abs=1e-5)


def test_stops_early_when_no_live_hypothesis_can_win() -> None:
    """`A EOS` has 0.9; whatever B (0.1) becomes, it stays below."""
    table = {(): {A: 0.9, B: 0.1}, (A,): {EOS_ID: 1.0}, (B,): {B: 1.0}, (B, B): {B: 1.0}}
    decoder = Table([table])
    (found,) = beam_search(decoder, [10], rules(2), CPU)
    assert [h.tokens for h in found] == [[A]]
    assert len(decoder.num_rows_fed) == 2


def test_pad_bos_and_unk_are_never_generated() -> None:
    table = {(): {PAD_ID: 0.4, BOS_ID: 0.3, UNK_ID: 0.2, A: 0.1}}
    for found in (beam([table], 3), greedy_search(Table([table]), [10], rules(), CPU)):
        assert found[0][0].tokens == [A]
        assert found[0][0].log_prob == pytest.approx(math.log(0.1), abs=1e-5)
    (with_unk,) = greedy_search(Table([table]), [10], rules(allow_unk=True), CPU)
    assert with_unk[0].tokens == [UNK_ID]


def test_the_largest_length_ends_a_hypothesis() -> None:
    endless = {(A,) * n: {A: 0.9, EOS_ID: 0.1} for n in range(20)}
    (found,) = beam([endless], 4, n_best=4, limit=4)
    assert sorted(len(h.tokens) for h in found) == [0, 1, 2, 3]
    (greedy,) = greedy_search(Table([endless]), [4], rules(), CPU)
    assert greedy[0].tokens == [A] * 3
    assert greedy[0].log_prob == pytest.approx(math.log(0.9**3 * 0.1), abs=1e-5)


def random_table(seed: int, depth: int) -> dict[tuple[int, ...], dict[int, float]]:
    generator = torch.Generator().manual_seed(seed)
    table = {}
    for length in range(depth):
        for prefix in itertools.product((A, B, C), repeat=length):
            row = torch.rand(4, generator=generator).softmax(0).tolist()
            table[prefix] = dict(zip((A, B, C, EOS_ID), row, strict=True))
    return table


def enumerate_all(
    table, limit: int, norm: LengthNorm, wanted: Callable[[tuple[int, ...]], bool] = lambda tokens: True
) -> list[tuple[float, list[int]]]:
    """Every hypothesis that is `wanted` of at most `limit` tokens, EOS counted, scored by hand, best first."""
    scored = []
    for length in range(limit):
        for tokens in filter(wanted, itertools.product((A, B, C), repeat=length)):
            log_prob = sum(math.log(table[tokens[:i]][token]) for i, token in enumerate((*tokens, EOS_ID)))
            scored.append((log_prob / norm(length + 1), list(tokens)))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("norm", [PLAIN, *(LengthNorm(kind, 0.6) for kind in LENGTH_NORMS)])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_is_exhaustive(norm: LengthNorm, seed: int) -> None:
    table = random_table(seed, 4)
    expected = enumerate_all(table, 4, norm)
    (found,) = beam([table], 200, norm, n_best=10, limit=4)
    for hypothesis, (score, tokens) in zip(found, expected, strict=False):
        assert hypothesis.tokens == tokens
        assert hypothesis.score == pytest.approx(score, abs=1e-5)
    assert len(found) == 10


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_batch_is_its_sentences_one_by_one(size: int) -> None:
    tables = [random_table(seed, depth) for seed, depth in zip(range(10, 16), (5, 2, 4, 1, 5, 3), strict=True)]
    options = rules(size, size, LengthNorm("gnmt", 0.6))
    limits = [6, 3, 5, 2, 4, 6]
    together = beam_search(Table(tables), limits, options, CPU)
    alone = [beam_search(Table([t]), [n], options, CPU)[0] for t, n in zip(tables, limits, strict=True)]
    assert together == alone


@pytest.mark.parametrize("seed", range(6))
def test_beam_of_one_without_penalty_is_greedy(seed: int) -> None:
    tables = [random_table(seed, 4), random_table(seed + 100, 5)]
    greedy = greedy_search(Table(tables), [5, 6], rules(), CPU)
    assert beam_search(Table(tables), [5, 6], rules(), CPU) == greedy


@pytest.mark.parametrize("beam_size", [1, 4])
def test_scores_are_teacher_forced_scores(beam_size: int) -> None:
    torch.manual_seed(3)
    config = ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2, max_len=30)
    model = Transformer(config, 40, 40).eval()
    model.output.weight.data.mul_(3)  # sharper than at the start, so that hypotheses differ
    src = torch.randint(4, 40, (5, 7), generator=torch.Generator().manual_seed(4))
    src[1, 3:] = src[4, 5:] = PAD_ID
    norm = LengthNorm("gnmt", 0.6)
    options = rules(beam_size, beam_size, norm)
    with torch.inference_mode():
        decoder = ModelDecoder(model, src)
        if beam_size == 1:
            found = greedy_search(decoder, [12] * 5, options, CPU)
        else:
            found = beam_search(decoder, [12] * 5, options, CPU)
        for sentence, hypotheses in enumerate(found):
            assert hypotheses
            for hypothesis in hypotheses:
                tgt_in = torch.tensor([[BOS_ID, *hypothesis.tokens]])
                tgt_out = torch.tensor([*hypothesis.tokens, EOS_ID])
                log_probs = model(src[sentence : sentence + 1], tgt_in)[0].log_softmax(-1)
                total = log_probs[torch.arange(len(tgt_out)), tgt_out].sum().item()
                assert hypothesis.log_prob == pytest.approx(total, abs=1e-4)
                assert hypothesis.score == pytest.approx(total / norm(len(tgt_out)), abs=1e-4)
