import pytest

from transformer_mt.config.schema import DecodingConfig
from transformer_mt.decoding.options import search_options
from transformer_mt.errors import UserError


def test_the_largest_length_is_a_function_of_the_source() -> None:
    options = search_options(DecodingConfig(max_length_ratio=1.5, max_length_extra=3))
    assert options.max_length(10, positions=512) == 18
    assert options.max_length(1, positions=512) == 4
    assert options.max_length(10, positions=16) == 16


def test_what_is_given_replaces_the_config() -> None:
    config = DecodingConfig(beam_size=4, length_penalty=0.6, batch_size=32)
    plain = search_options(config)
    assert (plain.beam_size, plain.norm.alpha, plain.batch_size, plain.n_best) == (4, 0.6, 32, 1)
    changed = search_options(config, beam_size=2, length_penalty=0.0, batch_size=7, n_best=2)
    assert (changed.beam_size, changed.norm.alpha, changed.batch_size, changed.n_best) == (2, 0.0, 7, 2)
    assert search_options(config, n_best=6).beam_size == 6, "the beam grows where nobody said how wide it is"
    with pytest.raises(UserError, match="n_best is 3, and beam_size 2 finds no more than 2"):
        search_options(config, beam_size=2, n_best=3)
