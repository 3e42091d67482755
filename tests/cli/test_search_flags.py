"""Every key of the section `decoding` is an option of each verb that searches, every key of `decoding.lines` one
of `tmt translate`; see `cli/search_flags.py`.
"""

import typing
from typing import get_args

import pytest
from typer.main import get_command

from transformer_mt.cli.main import app
from transformer_mt.cli.search_flags import FLAGS, LINE_FLAGS
from transformer_mt.config.sections.decoding import DecodingConfig, SearchConfig
from transformer_mt.config.sections.lines import LinesConfig

VERBS = ("translate", "evaluate")
TABLES = ((SearchConfig, FLAGS), (LinesConfig, LINE_FLAGS))


def test_every_key_of_the_section_has_its_flag() -> None:
    for section, flags in TABLES:
        assert flags.keys() == section.model_fields.keys()
    assert DecodingConfig.model_fields.keys() - FLAGS.keys() == {"lines"}


@pytest.mark.parametrize(("section", "key"), [(section, key) for section, flags in TABLES for key in flags])
def test_a_flag_takes_what_its_key_takes(section: type[SearchConfig | LinesConfig], key: str) -> None:
    hint = typing.get_type_hints(section)[key]
    if type(None) in get_args(hint):
        hint = get_args(hint)[0]  # int of `int | None`
    if typing.get_origin(hint) is list:  # as an option they are parted by commas
        hint = get_args(hint)[0]
    kinds = {type(choice) for choice in get_args(hint)} if typing.get_origin(hint) is typing.Literal else {hint}
    assert kinds == {dict(TABLES)[section][key].type}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_searches_has_all_flags(verb: str) -> None:
    command = get_command(app).commands[verb]  # pyright: ignore[reportAttributeAccessIssue]
    names = {option for parameter in command.params for option in parameter.opts}
    wanted = FLAGS.keys() | (LINE_FLAGS.keys() if verb == "translate" else set())
    assert {f"--{key.replace('_', '-')}" for key in wanted} <= names
