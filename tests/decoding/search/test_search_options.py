from typing import Any

import numpy as np
import pytest

from transformer_mt.config.schema import DecodingConfig
from transformer_mt.decoding.demands import list_of_texts
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError


def test_the_largest_length_is_a_function_of_the_source() -> None:
    options = search_options(DecodingConfig(max_length_ratio=1.5, max_length_extra=3))
    assert options.largest_length(10, positions=512) == 18
    assert options.largest_length(1, positions=512) == 4
    assert options.largest_length(10, positions=16) == 16


def test_what_is_given_replaces_the_config() -> None:
    config = DecodingConfig(beam_size=4, length_penalty=0.6, batch_size=32)
    plain = search_options(config)
    assert (plain.beam_size, plain.norm.alpha, plain.batch_size, plain.n_best) == (4, 0.6, 32, 1)
    changed = search_options(config, beam_size=2, length_penalty=0.0, batch_size=7, n_best=2)
    assert (changed.beam_size, changed.norm.alpha, changed.batch_size, changed.n_best) == (2, 0.0, 7, 2)
    assert search_options(config, n_best=6).beam_size == 6, "the beam grows where nobody said how wide it is"
    with pytest.raises(
        UserError, match=r"n_best is 3, and beam_size 2 finds no more than 2\. Use beam_size 3 or more\."
    ):
        search_options(config, beam_size=2, n_best=3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beam_size": 2.5}, "beam_size: 2.5 is a number with a point or an exponent, a whole number is needed."),
        ({"beam_size": "4"}, "beam_size: '4' is text, a whole number is needed (write 4, without quotes)."),
        ({"batch_size": 0}, "batch_size: 0 is not allowed; must be at least 1."),
        ({"n_best": -1, "beam_size": 1}, "n_best: -1 is not allowed; must be at least 1."),
        ({"length_penalty": "1"}, "length_penalty: '1' is text, a number is needed (write 1, without quotes)."),
        ({"length_penalty": 10.5}, "length_penalty: 10.5 is not allowed; must be at most 10."),
        (
            {"min_length": 10, "max_length": 5},
            "min_length is 10 and max_length 5: no translation is both; lower min_length.",
        ),
        ({"beam": 3}, "beam: unknown key, did you mean beam_size?"),
    ],
)
def test_values_that_are_none_are_told_by_name(options: dict, said: str) -> None:
    with pytest.raises(UserError) as caught:
        search_options(DecodingConfig(), **options)
    assert str(caught.value) == said


def test_numbers_of_numpy_are_numbers() -> None:
    given: dict[str, Any] = {"beam_size": np.int64(3), "length_penalty": np.float32(0.5)}
    options = search_options(DecodingConfig(), **given)
    assert (options.beam_size, options.norm.alpha) == (3, 0.5)


def test_what_is_no_list_of_texts_and_no_path_is_told() -> None:
    with pytest.raises(UserError, match=r"not what is of type NoneType\. Give it a list\."):
        list_of_texts(None)  # pyright: ignore[reportArgumentType]
    for run in (None, 3):
        with pytest.raises(UserError, match=rf"not of the type {type(run).__name__}\. Give its path\."):
            Translator.load(run)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("text", "kind"), [(None, "NoneType"), (b"one", "bytes"), (1, "int")])
def test_what_is_no_text_is_told_by_its_place(text: object, kind: str) -> None:
    with pytest.raises(UserError, match=f"^Text 2 of 3 is of type {kind}. Give it as str.$"):
        list_of_texts(["a", text, "b"])  # pyright: ignore[reportArgumentType]
