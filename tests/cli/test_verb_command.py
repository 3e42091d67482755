"""What every verb does before it begins; see `cli/verb_command.py`."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from transformer_mt.cli.foreign_options import FOREIGN
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
    words = {option.metavar for option in VERBS[verb].params if option.param_type_name == "option"}
    assert words <= {"PATH", "TEXT", "INTEGER", "FLOAT", "A B", "", None}
    assert "\n" not in (VERBS[verb].help or "").replace("\n\n", ""), "a paragraph is wrapped by the terminal alone"


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_what_reads_a_value_has_a_name(verb: tuple[str, ...]) -> None:
    """Older versions of Typer ask for it, and fail before any verb is there."""
    parameters = inspect.signature(VERBS[verb].callback).parameters.values()
    options = [note for parameter in parameters for note in get_args(parameter.annotation)[1:]]
    parsers = [option.parser for option in options if getattr(option, "parser", None)]
    assert [parser for parser in parsers if not hasattr(parser, "__name__")] == []


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("translate", "--input", "toy.yaml", "--input", "data/valid.en"), "--input"),
        (("translate", "--output=a", "one.", "--output", "a"), "--output"),
        (("translate", "--beam-size", "2", "--beam-size", "1", "one."), ""),
        (("train", "-c", "toy.yaml", "--config", "toy.yaml"), "--config"),
        (("diagnose", "runs/toy", "--json", "--json"), ""),
        (("translate", "--html", "--no-html", "one."), ""),
        (("translate", "--run", "runs/toy", "--run", "runs/toy", "one."), ""),
    ],
)
def test_an_option_for_one_file_is_given_once(arguments: tuple[str, ...], name: str, call, trained: Path) -> None:
    result = call(*arguments)
    assert result.returncode == (2 if name else 0), result.stderr
    assert (f"tmt: {name} was given twice, and takes one value. Leave one out.\n" == result.stderr) == bool(name)
    assert not (trained / "a").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("translate", "--model", "x", "one."), "`tmt translate` has no --model. Did you mean --run?"),
        (("translate", "--models=x", "one."), "`tmt translate` has no --models. Did you mean --run?"),
        (("translate", "-m", "x", "one."), "`tmt translate` has no -m. Did you mean --run?"),
        (("translate", "--alpha", "1", "one."), "`tmt translate` has no --alpha. Did you mean --length-penalty?"),
        (("translate", "-i", "toy.yaml"), "`tmt translate` has no -i. Did you mean --input?"),
        (("translate", "--source", "toy.yaml"), "`tmt translate` has no --source. Did you mean --input?"),
        (("translate", "--src", "toy.yaml"), "`tmt translate` has no --src. Did you mean --input?"),
        (("data", "check", "--source", "toy.yaml"), "No such option: --source"),
        (("debug", "batch", "-m", "x", "y"), "`tmt debug batch` has no -m. Did you mean --run?"),
        (("score", "--source", "toy.yaml"), "`tmt score` has no --source. Did you mean --src?"),
        (("train", "--seed", "5"), "--seed is no option, it is a setting of the config. Write it without dashes: seed"),
        (("train", "-c", "toy.yaml", "--name=q r"), "Write it without dashes: 'name=q r'"),
        (("train", "--max_steps", "5"), "Write it without dashes: training.max_steps=5"),
        (("pretrain", "--training.max_steps", "5"), "Write it without dashes: training.max_steps=5"),
        (("train", "--learning-rate", "5"), "Write it without dashes: training.lr=5"),
        (("train", "--seed", "--profile"), "Write it without dashes: seed=VALUE"),
        (("config", "explain", "toy.yaml", "--beam-size", "5"), "Write it without dashes: decoding.beam_size=5"),
        (("distill", "--constraints", "ordered", "--output", "o"), "No such option: --constraints"),
        (("distill", "--html", "--output", "o"), "No such option: --html"),
        (("translate", "--seeed", "5"), "No such option: --seeed"),
        (("train", "--zzz", "5"), "No such option: --zzz"),
        (("train", "--config"), "Option '--config' requires an argument"),
        (("translate", "--run", "toy", "one."), "it has no config.yaml. Did you mean runs/toy?"),
        (("trace", "--run", "toy", "one."), "Did you mean runs/toy?"),
        (("translate", "--checkpoint", "1200", "one."), "Did you mean step_1200?"),
        (("test", "--run", "runs/toy"), "`tmt test` takes the run as an argument. Write: tmt test runs/toy"),
        (("average", "-m", "a b"), "`tmt average` takes the run as an argument. Write: tmt average 'a b'"),
        (("diagnose", "--run=x"), "`tmt diagnose` takes the run as an argument. Write: tmt diagnose x"),
        (("evaluate", "runs/toy"), "`tmt evaluate` takes the run as an option. Write: --run runs/toy"),
        (("evaluate", "nothing"), "Got unexpected extra argument"),
        (("evaluate", "longer than a name may be " * 20), "Got unexpected extra argument"),
    ],
)  # fmt: skip
def test_what_was_meant_is_told(arguments: tuple[str, ...], told: str, call) -> None:
    result = call(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert told in " ".join(result.stderr.replace("│", "").split())


def test_every_foreign_option_stands_for_one_of_some_verb() -> None:
    options = {name for verb in VERBS.values() for option in verb.params for name in option.opts}
    for name, own in FOREIGN.items():
        assert name not in own
        assert options.issuperset(own)
