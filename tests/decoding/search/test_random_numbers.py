"""Random numbers: the published sequence of SplitMix64, Gumbel's distribution, and nothing that hangs together."""

import math

import pytest
import torch

from transformer_mt.decoding.search import random_numbers
from transformer_mt.decoding.search.random_numbers import gumbel, key_of, keys_of_step

# The first numbers that the reference implementation (Vigna 2015, splitmix64.c) gives from these states.
PUBLISHED = {
    0: [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F],
    1234567: [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821],
}


@pytest.mark.parametrize("state", PUBLISHED)
def test_the_numbers_are_those_of_splitmix64(state: int) -> None:
    keys = torch.tensor([state])
    found = [keys_of_step(keys, step).item() % 2**64 for step in range(1, len(PUBLISHED[state]) + 1)]
    assert found == PUBLISHED[state]


def test_a_key_is_the_same_in_numbers_and_in_tensors() -> None:
    for number in (0, 1, 7, 2**31, 2**63 - 1):
        first = keys_of_step(torch.tensor([0]), 1).item() % 2**64
        assert key_of(number) == keys_of_step(torch.tensor([_signed((first ^ number) - random_numbers.GOLDEN)]), 1)


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def test_keys_of_other_numbers_and_of_another_order_are_others() -> None:
    few = [(a, b) for a in range(40) for b in range(40)]
    keys = {key_of(*numbers) for numbers in few} | {key_of(*numbers, 0) for numbers in few} | {key_of(1), key_of()}
    assert len(keys) == 2 * len(few) + 2
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_gumbel_numbers_have_gumbels_distribution() -> None:
    keys = torch.tensor([key_of(3, i) for i in range(400)])
    numbers = gumbel(keys, torch.arange(500)[None]).double()
    n = numbers.numel()
    assert numbers.mean().item() == pytest.approx(0.5772156649, abs=4 * math.sqrt(math.pi**2 / 6 / n))
    assert numbers.var().item() == pytest.approx(math.pi**2 / 6, rel=0.02)
    # Kolmogorov and Smirnov: beyond 1.63 / sqrt(n) once in a hundred.
    ranked = numbers.flatten().sort().values
    share = torch.exp(-torch.exp(-ranked))
    steps = torch.arange(1, n + 1, dtype=torch.double) / n
    assert (share - steps).abs().max().item() < 1.63 / math.sqrt(n)


def test_neighbours_do_not_hang_together() -> None:
    keys = torch.tensor([[key_of(1, place, sample) for sample in range(8)] for place in range(50)]).flatten()
    uniform = torch.stack(
        [torch.exp(-torch.exp(-gumbel(keys_of_step(keys, step), torch.arange(40)[None]))) for step in range(9)]
    )
    uniform = (uniform.double() - 0.5) * math.sqrt(12)  # (steps, samples, tokens)
    for dim in range(3):
        for distance in (1, 2, 8):
            a, b = (
                uniform.narrow(dim, 0, uniform.size(dim) - distance),
                uniform.narrow(dim, distance, uniform.size(dim) - distance),
            )
            assert abs((a * b).mean().item()) < 3.5 / math.sqrt(a.numel()), (dim, distance)


@pytest.mark.parametrize("bits", [0, -1])
def test_no_bits_make_a_number_that_is_none(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """-inf would forbid a token that is perhaps the only one, and inf would choose one of probability 0."""
    monkeypatch.setattr(random_numbers, "_mixed", lambda keys: torch.full_like(keys, bits))
    (number,) = gumbel(torch.tensor([5]), torch.tensor([[7]]))
    assert number.isfinite().all()


def test_numbers_follow_their_counters_whatever_else_is_asked_for() -> None:
    keys = torch.tensor([5, -9])
    everything = gumbel(keys, torch.arange(100)[None])
    some = torch.tensor([[3, 99, 0], [7, 7, 42]])
    assert gumbel(keys, some).equal(everything.gather(1, some))
    assert gumbel(keys[1:], some[1:]).equal(everything[1:].gather(1, some[1:]))
