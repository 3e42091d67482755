"""The command line of the scripts, which treats a mistake as `tmt` does: one sentence on standard error with a way out,
status 2, before anything is measured.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.config.schema import RunConfig

LANGUAGES = ("en", "de")


class Parser(argparse.ArgumentParser):
    """Its refusals are UserErrors; the description is printed as it stands."""

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith(".") else f". See {self.prog} --help."
        raise UserError(message + end)


def run(main: Callable[[], None]) -> None:
    """The exit status is that of `tmt`: 2 for what the user can put right, 130 for Ctrl-C, else as `main` ends."""
    name = Path(sys.argv[0]).name
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"{name}: {place}{error.strerror or error}. Put that right and start again.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        sys.exit(130)


def refusal_of(said: str) -> str:
    """What `tmt` or a script refused: all from the last line that begins with its name and a colon, without these. Such
    a message may have several lines. Blank where there is none.
    """
    begins = list(re.finditer(r"^(tmt|\w+\.py): ", said, re.MULTILINE))
    return said[begins[-1].end() :].strip() if begins else ""


# Types of options


def count(least: int = 1) -> Callable[[str], int]:
    """A whole number, `least` or more."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or number < least:
            raise argparse.ArgumentTypeError(f"{text!r} will not do. Give a whole number of {least} or more.")
        return number

    return parse


def _absolute(text: str | Path) -> Path:
    """Symlinks stay: what they lead to may be another thing under its own name, a virtual environment's Python say."""
    try:
        return Path(os.path.abspath(Path(text).expanduser()))
    except RuntimeError as error:  # ~somebody who does not exist
        raise UserError(f"{text}: {error} Write the path out in full.") from None


def folder(text: str | Path) -> Path:
    """One that is there."""
    path = _absolute(text)
    if not path.is_dir():
        raise UserError(f"There is no folder {path}. Check the path.")
    return path


def file(text: str | Path) -> Path:
    """One that is there."""
    path = _absolute(text)
    if not path.is_file():
        raise UserError(f"There is no file {path}. Check the path.")
    return path


def python(*modules: str) -> Callable[[str], Path]:
    """A Python that can import the modules; a bare name is looked for as a shell does."""
    packages = [module.partition(".")[0] for module in modules]
    code = f"import importlib.util as u; print(*[p for p in {packages} if u.find_spec(p) is None])"
    importing = f"from importlib import import_module as i; [i(m) for m in {modules}]"

    def parse(text: str) -> Path:
        path = _absolute(text if os.sep in text else shutil.which(text) or text)
        try:
            done = subprocess.run([path, "-c", code], capture_output=True, text=True)
        except OSError as error:
            raise UserError(
                f"{path} cannot be run: {error.strerror or error}. Name a Python, PATH/bin/python."
            ) from None
        if done.returncode:
            raise UserError(f"{path} does not run as a Python. Name one, PATH/bin/python.")
        if missing := done.stdout.strip():
            raise UserError(
                f"{path} has no {missing.replace(' ', ' and no ')}. Name the Python of an environment that has."
            )
        if (done := subprocess.run([path, "-c", importing], capture_output=True, text=True)).returncode:
            *_, reason = ["", *done.stderr.strip().splitlines()]
            raise UserError(
                f"{path} cannot import {' and '.join(modules)}: {reason.rstrip('.')}. Install versions that go "
                "together, or name another environment's Python."
            )
        return path

    return parse


def lines_of(path: Path) -> list[str]:
    """Of a file as `tmt` reads it."""
    from transformer_mt.data.sources.files import read_lines

    return [line for _, line in read_lines(file(path))]


def parallel(src: Path, tgt: Path) -> list[tuple[str, str]]:
    """The pairs of two files, which have as many lines, and some."""
    src_lines, tgt_lines = lines_of(src), lines_of(tgt)
    if len(src_lines) != len(tgt_lines):
        raise UserError(
            f"{src} has {len(src_lines):,} lines and {tgt} has {len(tgt_lines):,}. Give files that belong together."
        )
    if not src_lines:
        raise UserError(f"{src} and {tgt} are empty. Give files with text.")
    return list(zip(src_lines, tgt_lines, strict=True))


def tokenized(data: Path, split: str) -> list[tuple[str, str]]:
    """The pairs of a split of Multi30k, lower-cased and tokenized, in the folder that holds `tok/`."""
    src, tgt = (data / "tok" / f"{split}.lc.norm.tok.{language}" for language in LANGUAGES)
    return parallel(src, tgt)


def checked(config: str, overrides: Sequence[str]) -> "RunConfig":
    """The config as `tmt train` would read it. UserError that does not repeat the overrides, most of which are ours."""
    from transformer_mt.config.loading import load_config

    try:
        return load_config(config, overrides).config
    except UserError as error:
        raise UserError(str(error).replace(f", with {' '.join(overrides)}):", "):")) from None


# Options that go together


def refuse(args: argparse.Namespace, names: Collection[str], why: str) -> None:
    """UserError that names the options among these that stand on the command line: their default is None."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) is not None]
    if given:
        raise UserError(f"{' and '.join(given)} {'have' if given[1:] else 'has'} no meaning {why}. Leave that out.")


def fill(args: argparse.Namespace, *defaults: Mapping[str, Any]) -> None:
    """What does not stand on the command line gets the first value that there is for it."""
    for values in defaults:
        for name, value in values.items():
            if getattr(args, name) is None:
                setattr(args, name, value)
