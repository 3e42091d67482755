"""Every key of the section `decoding` is an option of each verb that searches, every key of `decoding.lines` one
of `tmt translate`; see `cli/search_flags.py`.
"""

import re
import shutil
import typing
from pathlib import Path
from typing import get_args

import pytest
import yaml
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
    assert dict(TABLES)[section][key].can_be_none == (section.model_fields[key].default is None)
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


def test_none_after_a_flag_switches_off_what_the_config_says(call, trained: Path) -> None:
    """After the flag of a number too. The file is not there, and the run has no calibration."""
    of_search = {"max_length": 1, "sampling_topk": 4, "temperature": 9.0, "avoid": "nowhere.txt"}
    of_lines = {"reject_below": 1.0, "alignment": "hard"}
    run = shutil.copytree(trained / "runs" / "toy", trained / "switched")
    mapping = yaml.safe_load((run / "config.yaml").read_text())
    mapping["decoding"] |= of_search
    mapping["decoding"]["lines"] |= of_lines
    (run / "config.yaml").write_text(yaml.safe_dump(mapping))

    def off(*keys: str) -> list[str]:
        return [text for key in keys for text in (f"--{key.replace('_', '-')}", "none")]

    assert call("translate", "--run", "switched", "seven eight.").returncode == 2
    result = call("translate", "--run", "switched", *off(*of_search, *of_lines), "seven eight.")
    assert (result.stdout, result.returncode) == ("ocho siete.\n", 0), result.stderr
    files = ("--src", "data/valid.en", "--ref", "data/valid.es")
    switched, plain = (
        call("evaluate", "--run", *options, *files).stdout.splitlines()[:2]
        for options in (["switched", *off(*of_search, "constraints")], ["runs/toy"])
    )
    assert switched == plain
    assert plain[0].startswith("BLEU ")


@pytest.mark.parametrize("flag", ["--sampling-topk", "--temperature"])
def test_what_is_neither_a_number_nor_none_is_refused_by_name(call, flag: str) -> None:
    result = call("translate", flag, "off", "a")
    assert result.returncode == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert re.search(rf"Invalid value for '{flag}': 'off' is not a valid (integer|float), and not none", said)
