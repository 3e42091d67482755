"""What a config and a caller ask to be done with each line, put together and held against each other."""

from typing import Any

import pytest

from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.config.sections.lines import LinesConfig
from transformer_mt.decoding.lines.line_options import LineOptions, line_options
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.errors import UserError

# A value of each key that is not its default.
OTHERS: dict[str, Any] = {
    "html": True, "keep": ["urls", "numbers"], "replace_unk": True, "unk_dictionary": "names.tsv", "alignment": "soft",
    "alignment_from": "attention", "alignment_layer": 2, "confidence": True, "reject_below": 0.5, "too_long": "split",
    "prefix": "tab", "n_best": 3, "format": "jsonl",
}  # fmt: skip
NEEDED: dict[str, dict[str, Any]] = {
    "unk_dictionary": {"replace_unk": True}, "alignment_from": {"alignment": "hard"},
    "alignment_layer": {"alignment": "hard", "alignment_from": "attention"},
}  # fmt: skip


def config_of(**lines: Any) -> DecodingConfig:
    return DecodingConfig.model_validate({"lines": lines})


def test_every_key_is_tried() -> None:
    assert OTHERS.keys() == LinesConfig.model_fields.keys()


@pytest.mark.parametrize("key", OTHERS)
def test_what_is_given_is_as_what_the_config_says_and_stronger(key: str) -> None:
    asked = NEEDED.get(key, {}) | {key: OTHERS[key]}
    of_config = line_options(config_of(**asked))
    assert of_config == line_options(config_of(), asked)
    assert getattr(of_config, key) == OTHERS[key]
    default = LinesConfig.model_fields[key].default
    assert getattr(line_options(config_of(**asked), {key: default}), key) == default


@pytest.mark.parametrize("key", OTHERS)
def test_none_switches_off_what_is_null_by_default_and_is_refused_elsewhere(key: str) -> None:
    config = config_of(**{key: OTHERS[key]})
    if LinesConfig.model_fields[key].default is None:
        assert line_options(config, {key: "none"}) == line_options(config_of())
    else:
        with pytest.raises(UserError, match=f"^{key}: 'none' is "):
            line_options(config, {key: "none"})


def test_constraints_that_are_switched_off_clash_with_nothing() -> None:
    for lines, order in (({"html": True}, "unordered"), ({"keep": ["urls"]}, "ordered")):
        config = DecodingConfig.model_validate({"constraints": order})
        with pytest.raises(UserError, match="--constraints none switches it off"):
            line_options(config, lines)
        assert not line_options(config, lines, {"constraints": "none"}).is_plain


@pytest.mark.parametrize("key", NEEDED)
def test_a_key_of_the_config_waits_for_what_it_needs(key: str) -> None:
    """So that a run may say which attention aligns, where an alignment is asked for."""
    assert line_options(config_of(**{key: OTHERS[key]})).is_plain
    with pytest.raises(UserError, match=f"--{key.replace('_', '-')} was given without --"):
        line_options(config_of(), {key: OTHERS[key]})


def test_what_a_search_must_know_is_told_to_it() -> None:
    assert line_options(config_of()).of_search == {"n_best": 1, "too_long": TooLong.BLANK, "scored": False}
    asked = line_options(config_of(n_best=2, too_long="split"))
    assert asked.of_search == {"n_best": 2, "too_long": TooLong.SPLIT, "scored": True}
    assert line_options(config_of(format="jsonl")).of_search["scored"]


def test_kinds_may_be_one_text_and_a_prefix_a_file() -> None:
    asked = line_options(config_of(prefix="tab"), {"keep": "urls, numbers", "prefix": "file.txt"})
    assert (asked.keep, asked.prefixes) == (["urls", "numbers"], "file.txt")
    assert line_options(config_of(prefix="tab")).prefixes == "tab"
    assert line_options(config_of(prefix="tab"), {"prefix": None}).prefixes is None


CLASHES = [
    ({"html": True}, {"alignment": "hard"}, {}, "--alignment none"),
    ({"html": True}, {"prefix": "tab"}, {}, "--prefix none"),
    ({"html": True}, {}, {"constraints": "unordered"}, "--constraints none"),
    ({"keep": ["urls"]}, {}, {"constraints": "ordered"}, "--constraints none"),
]


@pytest.mark.parametrize(("one", "other", "search", "off"), CLASHES)
def test_keys_that_do_not_go_together_are_named(
    one: dict[str, Any], other: dict[str, Any], search: dict[str, Any], off: str
) -> None:
    """By the option where one is given, and by the key where the config has it, with what switches that off."""
    (first,), (second,) = one, other or search
    with pytest.raises(UserError, match=f"^--{first} and --{second} were both given. .*: leave one out.$"):
        line_options(DecodingConfig(), one | other, search)
    key = f"decoding.{'lines.' * bool(other)}{second} (in the run's config, {off} switches it off)"
    with pytest.raises(UserError) as told:
        line_options(DecodingConfig.model_validate({"lines": other, **search}), one)
    assert str(told.value).startswith(f"--{first} and {key} were both given.")
    with pytest.raises(UserError, match=rf"^decoding.lines.{first} \(in .* and --{second} were both given"):
        line_options(config_of(**one), other, search)
    with pytest.raises(ValueError, match=rf"lines.{first} and (lines.)?{second} are both set: .*; leave one of them"):
        DecodingConfig.model_validate({"lines": one | other, **search})


def test_a_file_of_prefixes_is_no_less_a_prefix() -> None:
    with pytest.raises(UserError, match=r"^decoding.lines.html \(.*--no-html switches it off\) and --prefix were both"):
        line_options(config_of(html=True), {"prefix": "file.txt"})


def test_only_unk_is_replaced() -> None:
    for config, given, name in (({}, {"replace_unk": True}, "--replace-unk"), ({"replace_unk": True}, {}, "decoding")):
        with pytest.raises(UserError, match=f"^{name}.* and --no-allow-unk were both given. Only UNK is replaced"):
            line_options(config_of(**config), given, {"allow_unk": False})
    assert line_options(config_of(), {"replace_unk": True}).replace_unk


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep": "numbers,dates"}, "keep[1]: 'dates' is not one of placeholders, urls, emails, numbers."),
        ({"keep": ""}, "keep[0]: '' is not one of placeholders, urls, emails, numbers."),
        ({"reject_below": 1.5}, "reject_below: 1.5 is not allowed; must be at most 1."),
        ({"reject_below": float("nan")}, "reject_below: nan is not allowed; must be a finite number."),
        ({"n_best": 0}, "n_best: 0 is not allowed; must be at least 1."),
        ({"format": "xml"}, "format: 'xml' is not one of text, jsonl, moses."),
        ({"alignment": "firm"}, "alignment: 'firm' is not one of hard, soft."),
        ({"alignment": "hardish"}, "alignment: 'hardish' is not one of hard, soft, did you mean hard?"),
        ({"html": None}, "html: null is not allowed, true or false is needed."),
    ],
)
def test_values_that_make_no_sense_are_told_in_words(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as told:
        line_options(DecodingConfig(), given)
    assert str(told.value) == message


def test_what_obeys_none_of_the_keys_can_say_so() -> None:
    assert LinesConfig().unused == LineOptions().unused == ""
    assert LinesConfig(html=True, n_best=2).unused.startswith("decoding.lines.html, decoding.lines.n_best: for tmt ")
