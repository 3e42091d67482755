"""What every verb does before it begins; see `cli/verb_command.py`."""

from collections.abc import Iterator
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
