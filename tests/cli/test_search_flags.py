"""Every key of the config's section `decoding` is an option of each verb that searches; see `cli/search_flags.py`."""

import typing
from typing import get_args

import pytest
from typer.main import get_command

from transformer_mt.cli.main import app
from transformer_mt.cli.search_flags import FLAGS
from transformer_mt.cli.verbs.translate import Format
from transformer_mt.config.sections.decoding import DecodingConfig
from transformer_mt.decoding.lines.line_formats import FORMATS

VERBS = ("translate", "evaluate")


def test_every_key_of_the_section_has_its_flag() -> None:
    assert FLAGS.keys() == DecodingConfig.model_fields.keys()


@pytest.mark.parametrize("key", FLAGS)
def test_a_flag_takes_what_its_key_takes(key: str) -> None:
    hint = typing.get_type_hints(DecodingConfig)[key]
    if type(None) in get_args(hint):
        hint = get_args(hint)[0]  # int of `int | None`
    kinds = {type(choice) for choice in get_args(hint)} if typing.get_origin(hint) is typing.Literal else {hint}
    assert kinds == {FLAGS[key].type}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_searches_has_all_flags(verb: str) -> None:
    command = get_command(app).commands[verb]  # pyright: ignore[reportAttributeAccessIssue]
    names = {option for parameter in command.params for option in parameter.opts}
    assert {f"--{key.replace('_', '-')}" for key in FLAGS} <= names


def test_the_formats_of_translate_are_those_that_can_be_written() -> None:
    assert {choice.value for choice in Format} == FORMATS.keys()
