"""The settings that an output was begun with, in a file beside it: others would mix two kinds of pairs."""

import json
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from transformer_mt.errors import UserError
from transformer_mt.storage.files import replace_file

SETTINGS = "settings.json"
LOCK = ".lock"
PRECISION = "--precision"


def begin_or_go_on(folder: Path, settings: dict[str, Any]) -> FileLock:
    """Make the folder with these settings, or compare them with those that it was begun with. Names are those of
    options. Returns the lock of the folder, which is to be released.

    Raises UserError for a folder of other things, for other settings by name, where another process writes there, and
    where it cannot be written.
    """
    path = folder / SETTINGS
    settings = json.loads(json.dumps(settings))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = [one.name for one in folder.iterdir() if not one.name.startswith(".")]
        lock = FileLock(folder / LOCK)
        lock.acquire(blocking=False)
        if not there:
            replace_file(path, json.dumps(settings, indent=1, ensure_ascii=False) + "\n")
            return lock
        begun = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    except Timeout:
        raise UserError(f"Another process writes to {folder}. Wait for it, or choose another --output.") from None
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}). Choose another --output.") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}. Choose another --output.") from None
    try:
        _refuse_other(folder, begun, settings)
    except UserError:
        lock.release()
        raise
    return lock


def precision_of(folder: Path) -> str | None:
    """The precision that an output was begun in, which a busy machine might not choose again; None if none was."""
    try:
        precision = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))[PRECISION]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return precision if isinstance(precision, str) else None


def _refuse_other(folder: Path, begun: object, settings: dict[str, Any]) -> None:
    if not isinstance(begun, dict):
        raise UserError(f"{folder} holds files, and no {SETTINGS} of this command. Choose another --output.")
    names = [name for name in {**begun, **settings} if begun.get(name) != settings.get(name)]
    if names:
        changes = "; ".join(f"{name} was {_told(begun, name)}, is {_told(settings, name)}" for name in names)
        raise UserError(
            f"{folder} was begun with other settings: {changes}. Give the same, or choose another --output."
        )


def _told(settings: dict[str, Any], name: str) -> str:
    value = settings.get(name)
    return "not given" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
