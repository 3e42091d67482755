import re
from typing import Any

import numpy as np
import pytest
import torch
from translators import toy_translator

from transformer_mt.cli.search_flags import SCORE_FLAGS
from transformer_mt.config.sections.decoding import SCORING, DecodingConfig, SearchConfig
from transformer_mt.decoding.demands import list_of_texts
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError

TWO_OF_A_BEAM = DecodingConfig.model_validate({"beam_size": 3, "lines": {"n_best": 2}})


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
        ({"too_long": "cut"}, "too_long: 'cut' is not allowed; must be 'blank', 'truncate' or 'split'."),
        ({"beam": 3}, "beam: unknown key, did you mean beam_size?"),
        (
            {"temperature": 0},
            "temperature: 0 would be the likeliest token at every step; leave sampling out (with beam_size 1 that is "
            "greedy search), or give a number above 0.",
        ),
        ({"temperature": -0.5}, "temperature: -0.5 is not allowed; must be more than 0."),
        ({"sampling_topk": -1}, "sampling_topk: -1 is not allowed; must be at least 0."),
        ({"sampling_topp": 0.0}, "sampling_topp: 0.0 is not allowed; must be more than 0."),
        ({"sampling_topp": 1.5}, "sampling_topp: 1.5 is not allowed; must be at most 1."),
        (
            {"beam_size": 4, "sampling_topk": 10},
            "beam_size is 4, and sampling_topk 10 asks for samples, which have no beam. Leave one of them out; n_best "
            "is the number of samples.",
        ),
        (
            {"diverse_beam_groups": 2, "temperature": 0.7},
            "diverse_beam_groups is 2, and temperature 0.7 asks for samples, which have no beam; leave one of them "
            "out.",
        ),
        (
            {"beam_size": 5, "diverse_beam_groups": 2},
            "diverse_beam_groups is 2, which does not divide beam_size 5; use beam_size 6, for example.",
        ),
        (
            {"beam_size": 1, "diverse_beam_groups": 2},
            "diverse_beam_groups is 2, which does not divide beam_size 1; use beam_size 2, for example.",
        ),
        (
            {"diverse_beam_strength": 0.3},
            "diverse_beam_strength is 0.3, and a beam of one group has nothing to keep clear of. Give "
            "diverse_beam_groups too, or leave it out.",
        ),
        (
            {"diverse_beam_strength": 0.3, "temperature": 0.7},
            "diverse_beam_strength is 0.3, and temperature 0.7 asks for samples, which have no beam. Leave one of them "
            "out.",
        ),
        (
            {"mbr": "bleu", "mbr_candidates": 2, "n_best": 3},
            "n_best is 3, and mbr_candidates 2 leaves no more to choose from. Use mbr_candidates 3 or more.",
        ),
        (
            {"mbr": "bleu", "mbr_candidates": 2, "n_best": 3, "temperature": 1.0},
            "n_best is 3, and mbr_candidates 2 leaves no more to choose from. Use mbr_candidates 3 or more.",
        ),
        (
            {"seed": 3},
            "seed is 3, and nothing is drawn by chance. Ask for samples with sampling_topk, sampling_topp or "
            "temperature, or leave seed out.",
        ),
        *(
            (
                {"seed": 3, **given},
                f"seed is 3, and {key} is {given[key]}, which is of a search, where nothing is drawn by chance. Leave "
                "one of them out.",
            )
            for key, given in (
                ("beam_size", {"beam_size": 2}),
                ("diverse_beam_groups", {"diverse_beam_groups": 2}),
                ("diverse_beam_strength", {"diverse_beam_strength": 1.0}),
                ("constraints", {"constraints": "ordered"}),
                ("glossary", {"glossary": "terms.tsv"}),
            )
        ),
    ],
)
def test_values_that_are_none_are_told_by_name(options: dict, said: str) -> None:
    with pytest.raises(UserError) as caught:
        search_options(DecodingConfig(), **options)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("config", "given", "key"),
    [
        ({"temperature": 1.0}, {"constraints": "unordered"}, "temperature"),
        ({"glossary": "terms.tsv"}, {"constraints": "ordered"}, "glossary"),
        ({"beam_size": 1}, {"mbr": "chrf", "diverse_beam_groups": 2}, "beam_size"),
        ({"constraints": "unordered"}, {"sampling_topk": 5}, "constraints"),
        ({"mbr": "bleu", "mbr_candidates": 2}, {"n_best": 3}, "mbr_candidates"),
        ({"diverse_beam_groups": 2}, {"constraints": "unordered"}, "diverse_beam_groups"),
        ({}, {"constraints": "unordered", "temperature": 1.0}, None),
    ],
)
def test_it_is_said_what_comes_from_the_config(config: dict, given: dict, key: str | None) -> None:
    with pytest.raises(UserError) as caught:
        search_options(DecodingConfig(**config), **given)
    assert re.findall(r"(\w+) is from the config\.", str(caught.value)) == [key] * (key is not None)


@pytest.mark.parametrize("given", [{"sampling_topk": 0}, {"sampling_topp": 0.9}, {"temperature": 1.0}])
def test_what_asks_for_samples_needs_no_word_on_the_beam(given: dict) -> None:
    for config in (DecodingConfig(), DecodingConfig(beam_size=6, diverse_beam_groups=3)):
        assert not search_options(config).is_sampling
        options = search_options(config, n_best=9, seed=4, **given)
        assert options.is_sampling
        assert (options.beam_size, options.diverse_beam_groups, options.num_rows, options.n_best) == (1, 1, 9, 9)
        assert search_options(config, beam_size=1, **given).is_sampling, "as CTranslate2 is asked for it"
        sampling = DecodingConfig(beam_size=8, **given)
        assert search_options(sampling, n_best=2).is_sampling
        for beam in (1, 4):
            searched = search_options(sampling, beam_size=beam)
            assert not searched.is_sampling, "whoever asks for a beam gets none of the config's samples"
            assert searched.beam_size == searched.num_rows == beam
        assert search_options(sampling, diverse_beam_groups=4).of_group.beam_size == 2


# A value of each key of the search that is null by default.
NULLABLE: dict[str, Any] = {
    "to": "de", "max_length": 5, "mbr": "bleu", "mbr_candidates": 7, "sampling_topk": 3, "sampling_topp": 0.5,
    "temperature": 0.5, "avoid": "words.txt", "constraints": "unordered", "glossary": "terms.tsv",
}  # fmt: skip


@pytest.mark.parametrize("key", SearchConfig.model_fields)
def test_none_switches_off_what_is_null_by_default_and_is_refused_elsewhere(key: str) -> None:
    if key not in NULLABLE:
        with pytest.raises(UserError, match=f"^{key}: "):
            search_options(DecodingConfig(), **{key: "none"})
        return
    config = DecodingConfig(**{key: NULLABLE[key]})
    assert getattr(search_options(config), key) == NULLABLE[key]
    assert search_options(config, **{key: "none"}) == search_options(DecodingConfig())


def test_what_is_switched_off_leaves_room_for_what_it_excludes() -> None:
    config = DecodingConfig(constraints="ordered")
    with pytest.raises(UserError, match=r"constraints is from the config\. Give constraints none to leave it out\.$"):
        search_options(config, sampling_topk=3)
    assert search_options(config, sampling_topk=3, constraints="none").is_sampling
    both = DecodingConfig(sampling_topk=3, temperature=0.5, beam_size=6)
    assert search_options(both, temperature="none").is_sampling, "by the other key"
    assert search_options(both, temperature="none", sampling_topk="none").beam_size == 6
    assert search_options(both, temperature="none", sampling_topp=0.9).is_sampling
    with pytest.raises(UserError, match="mbr_candidates is 9, and mbr is not asked for"):
        search_options(DecodingConfig(mbr="chrf"), mbr="none", mbr_candidates=9)


def test_groups_of_the_config_are_switched_off_by_one_group() -> None:
    config = DecodingConfig(diverse_beam_groups=2)
    with pytest.raises(
        UserError, match=r"diverse_beam_groups is from the config\. Give diverse_beam_groups 1 to leave"
    ):
        search_options(config, constraints="unordered")
    assert search_options(config, constraints="unordered", diverse_beam_groups=1).constraints == "unordered"


def test_groups_of_the_config_are_those_of_its_beam() -> None:
    config = DecodingConfig(beam_size=6, diverse_beam_groups=3)
    assert search_options(config).of_group.beam_size == 2
    assert search_options(config, beam_size=9, n_best=5).of_group.n_best == 3
    assert search_options(config, n_best=7).beam_size == 9, "a beam that grows stays divisible"
    greedy = search_options(config, beam_size=1)
    assert (greedy.beam_size, greedy.diverse_beam_groups) == (1, 1)


def test_numbers_of_numpy_are_numbers() -> None:
    given: dict[str, Any] = {"beam_size": np.int64(3), "length_penalty": np.float32(0.5)}
    options = search_options(DecodingConfig(), **given)
    assert (options.beam_size, options.norm.alpha) == (3, 0.5)


@pytest.mark.parametrize("value", [np.array([1, 2]), np.array([]), torch.tensor([1, 2])], ids=["two", "none", "torch"])
@pytest.mark.parametrize("config", [DecodingConfig(), DecodingConfig(sampling_topk=3), TWO_OF_A_BEAM])
def test_an_array_is_no_value_of_any_option(config: DecodingConfig, value: Any) -> None:
    translator = toy_translator("word")
    for key in SearchOptions.model_fields:
        with pytest.raises(UserError, match=rf"\b{key}\b"):
            search_options(config, **{key: value})
        with pytest.raises(UserError, match=rf"\b{key}\b"):
            translator.translate(["one two."], **{key: value})
    of_one = search_options(DecodingConfig(), **{"beam_size": np.array([3]), "length_penalty": torch.tensor(0.5)})
    assert (of_one.beam_size, of_one.norm.alpha) == (3, 0.5)


def test_what_is_no_list_of_texts_and_no_path_is_told() -> None:
    with pytest.raises(UserError, match=r"not what is of type NoneType\. Give it a list\."):
        list_of_texts(None)  # pyright: ignore[reportArgumentType]
    for run in (None, 3):
        with pytest.raises(UserError, match=rf"not of the type {type(run).__name__}\. Give its path\."):
            Translator.load(run)  # pyright: ignore[reportArgumentType]
    for checkpoint, meant in ((7, "step_7"), ([7], "step_7"), (2.5, "step_200")):
        with pytest.raises(UserError, match=rf"^A checkpoint is a name such as 'step_200', .* Give '{meant}'\.$"):
            Translator.load("runs/s", checkpoint)  # pyright: ignore[reportArgumentType]


def test_what_no_config_has_is_an_option_of_translate_too() -> None:
    """That of scores was given to the search twice."""
    translator = toy_translator("word")
    plain, options = translator.translate(["one two."]), search_options(DecodingConfig())
    for key in SearchOptions.model_fields.keys() - DecodingConfig.model_fields.keys():
        assert translator.translate(["one two."], **{key: getattr(options, key)}) == plain, key
    with pytest.raises(UserError, match="scored: 3 is a number, true or false is needed"):
        translator.translate(["one two."], scored=3)


@pytest.mark.parametrize("name", list(TooLong))
def test_a_name_stands_for_what_is_done_with_long_lines(name: TooLong) -> None:
    given: dict[str, Any] = {"too_long": str(name)}
    assert search_options(DecodingConfig(), **given).too_long is name


@pytest.mark.parametrize(("text", "kind"), [(None, "NoneType"), (b"one", "bytes"), (1, "int")])
def test_what_is_no_text_is_told_by_its_place(text: object, kind: str) -> None:
    with pytest.raises(UserError, match=f"^Text 2 of 3 is of type {kind}. Give it as str.$"):
        list_of_texts(["a", text, "b"])  # pyright: ignore[reportArgumentType]


def test_the_command_and_python_score_by_the_same_keys() -> None:
    assert SCORE_FLAGS == SCORING
