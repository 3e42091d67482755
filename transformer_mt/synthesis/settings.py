"""The settings that an output was begun with, in a file beside it: others would mix two kinds of pairs."""

import json
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from transformer_mt.errors import UserError
from transformer_mt.paths import exists
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
    settings = json.loads(json.dumps(settings))
    try:
        _is_begun(folder, settings)  # before there is a file of the lock: what is refused stays as it is
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(blocking=False)
        try:
            if not _is_begun(folder, settings):
                replace_file(folder / SETTINGS, json.dumps(settings, indent=1, ensure_ascii=False) + "\n")
        except BaseException:
            lock.release()
            raise
    except Timeout:
        raise UserError(f"Another process writes to {folder}. Wait for it, or choose another --output.") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}. Choose another --output.") from None
    return lock


def precision_of(folder: Path) -> str | None:
    """The precision that an output was begun in, which a busy machine might not choose again; None if none was."""
    try:
        precision = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))[PRECISION]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return precision if isinstance(precision, str) else None


def _is_begun(folder: Path, settings: dict[str, Any]) -> bool:
    """Whether there is more than hidden files in the folder. UserError where it was not begun with these settings."""
    path = folder / SETTINGS
    if not exists(folder) or all(one.name.startswith(".") for one in folder.iterdir()):
        return False
    try:
        begun = json.loads(path.read_text(encoding="utf-8")) if exists(path) else None
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}). Choose another --output.") from None
    if not isinstance(begun, dict):
        raise UserError(f"{folder} holds files, and no {SETTINGS} of this command. Choose another --output.")
    names = [name for name in {**begun, **settings} if begun.get(name) != settings.get(name)]
    if names:
        changes = "; ".join(f"{name} was {_told(begun, name)}, is {_told(settings, name)}" for name in names)
        raise UserError(
            f"{folder} was begun with other settings: {changes}. Give the same, or choose another --output."
        )
    return True


def _told(settings: dict[str, Any], name: str) -> str:
    value = settings.get(name)
    return "not given" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
