"""What every verb does before it begins; see `cli/verb_command.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from transformer_mt.cli.main import app


def verbs(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, *path, name)
        else:
            yield (*path, name), command


VERBS = dict(verbs(get_command(app)))


@pytest.mark.parametrize("columns", ["80", "99", "100", "120"])
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_names_of_options_are_whole_in_the_help(verb: tuple[str, ...], columns: str) -> None:
    shown = CliRunner(env={"COLUMNS": columns}).invoke(app, [*verb, "--help"], prog_name="tmt").output
    names = [name for option in VERBS[verb].params for name in (*option.opts, *option.secondary_opts) if "--" in name]
    assert "--help" in shown
    assert [name for name in names if name not in shown.replace("│", " ").split()] == []
    written = sum((getattr(option, "help", None) or "").count("…") for option in VERBS[verb].params)
    assert shown.count("…") == written


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("translate", "--input", "toy.yaml", "--input", "data/valid.en"), "--input"),
        (("translate", "--output=a", "one.", "--output", "a"), "--output"),
        (("translate", "--beam-size", "2", "--beam-size", "1", "one."), "--beam-size"),
        (("train", "-c", "toy.yaml", "--config", "toy.yaml"), "--config"),
        (("config", "explain", "toy.yaml", "--json", "--json"), ""),
        (("translate", "--html", "--no-html", "one."), ""),
        (("translate", "--run", "runs/toy", "--run", "runs/toy", "one."), ""),
    ],
)
def test_an_option_for_one_value_is_given_once(arguments: tuple[str, ...], name: str, call, trained: Path) -> None:
    result = call(*arguments)
    assert result.returncode == (2 if name else 0), result.stderr
    assert (f"tmt: {name} was given twice, and takes one value. Leave one out.\n" == result.stderr) == bool(name)
    assert not (trained / "a").exists()
