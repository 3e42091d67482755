"""The arena of recorded steps: how large it is, when there is none, and that no earlier batch shows in a later one."""

from functools import partial

import pytest
import torch
from recordings import Recordings, assert_same, begun
from searches import model_of, search, sources

from transformer_mt.decoding.fast_layers.cuda_graphs import GraphedDecoders
from transformer_mt.decoding.model_decoder import ModelDecoder
from transformer_mt.machine.cuda_graphs import power_of_two
from transformer_mt.model.cache import LANES


@torch.inference_mode()
def test_without_room_or_where_it_must_be_deterministic_there_is_no_arena() -> None:
    """One sentence of 16 positions and 20 steps takes 2 layers' keys and values, 16 numbers each, of 48 slots."""
    model = model_of("sinusoidal, pre-norm")
    needed = 2 * 2 * 16 * (32 + 16) * 4
    src = sources(model.output.out_features, [15], 1)
    tight, roomy = (GraphedDecoders(partial(Recordings, room)) for room in (needed - 1, needed))
    assert tight.begin(model, src, 20, 1) is None
    assert tight.arena is None
    assert roomy.begin(model, src, 20, 1) is not None
    two = sources(model.output.out_features, [15, 15], 1)
    assert roomy.begin(model, two, 20, 1) is None
    assert roomy.arena is None, "what is there is given up first"
    decoder = roomy.begin(model, src, 20, 1)
    assert decoder is not None
    assert_same(search(decoder, [20], 1), search(ModelDecoder(model, src), [20], 1))
    torch.use_deterministic_algorithms(True)
    try:
        assert roomy.begin(model, src, 20, 1) is None
    finally:
        torch.use_deterministic_algorithms(False)


@torch.inference_mode()
def test_a_larger_arena_is_as_large_as_all_before_where_there_is_room_and_forgets_what_was_captured() -> None:
    model = model_of("sinusoidal, pre-norm")
    decoders = GraphedDecoders(Recordings)
    capture = decoders.capture
    assert isinstance(capture, Recordings)
    for lengths, rows, sizes in (
        ([3] * 9, 1, (16, 1, 32, 16)),
        ([17], 3, (16, 3, 64, 32)),
        ([2, 2], 2, (16, 3, 64, 32)),
    ):
        begun(decoders, model, sources(model.output.out_features, lengths, 1), [20], rows)
        assert decoders.arena is not None
        assert decoders.arena.sizes == sizes
    assert capture.num_forgotten == 1


@torch.inference_mode()
def test_numbers_of_an_earlier_batch_that_are_not_finite_reach_no_later_one() -> None:
    model = model_of("sinusoidal, pre-norm")
    decoders = GraphedDecoders(Recordings)
    src, limits = sources(model.output.out_features, [8, 1, 5], 1), [20, 20, 20]
    expected = search(ModelDecoder(model, src), limits, 3)
    search(begun(decoders, model, src, limits, 3), limits, 3)
    spoil(decoders)
    assert_same(search(begun(decoders, model, src, limits, 3), limits, 3), expected)


def spoil(decoders: GraphedDecoders) -> None:
    assert decoders.arena is not None
    decoders.arena.heads.fill_(torch.nan)
    decoders.arena.memory.fill_(torch.nan)


@torch.inference_mode()
def test_a_long_source_leaves_nothing_to_a_shorter_one_in_the_same_room() -> None:
    """Sources of 61 and 41 tokens: both have room for 64, filled up to 64 and to 48."""
    model = model_of("sinusoidal, pre-norm", max_len=64)
    decoders = GraphedDecoders(Recordings)
    long, short = (sources(model.output.out_features, lengths, 1) for lengths in ([60, 60], [40, 33]))
    expected = search(ModelDecoder(model, short), [9, 9], 2)
    search(begun(decoders, model, long, [9, 9], 2), [9, 9], 2)
    spoil(decoders)
    assert_same(search(begun(decoders, model, short, [9, 9], 2), [9, 9], 2), expected)
    search(begun(decoders, model, long, [9, 9], 2), [9, 9], 2)
    assert_same(search(begun(decoders, model, short, [9, 9], 2), [9, 9], 2), expected)


@pytest.mark.parametrize("beam_size", [1, 3])
@torch.inference_mode()
def test_a_batch_that_was_never_searched_leaves_nothing_to_the_next(beam_size: int) -> None:
    """Positions are looked up in a table, which has none before the first."""
    model = model_of("learned, pre-norm")
    decoders = GraphedDecoders(Recordings)
    begun(decoders, model, sources(model.output.out_features, [5] * 8, 1), [9] * 8, beam_size)
    src = sources(model.output.out_features, [5] * 5, 2)
    expected = search(ModelDecoder(model, src), [9] * 5, beam_size)
    assert_same(search(begun(decoders, model, src, [9] * 5, beam_size), [9] * 5, beam_size), expected)


@pytest.mark.parametrize(("size", "rounded"), [(0, 16), (1, 16), (16, 16), (17, 32), (64, 64), (65, 128)])
def test_sizes_are_rounded_up_to_powers_of_two(size: int, rounded: int) -> None:
    assert power_of_two(size, LANES) == rounded
    assert power_of_two(max(1, size)) == (rounded if size > 8 else 1)
