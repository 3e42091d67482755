"""The new folder that an export writes: nothing is replaced, and nothing half-written is left."""

from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from transformer_mt.errors import UserError
from transformer_mt.storage.files import make_folder


def refuse_occupied(folder: Path) -> None:
    """UserError where the export would replace something."""
    if folder.is_symlink() or not folder.name:
        raise UserError(f"{folder} is not the name of a new folder. Give one, for example {folder / 'exported'}.")
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise UserError(f"{folder} exists and is not an empty folder. Name another, or delete it first.")


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder that gets the name `folder` when it is whole. UserError where that cannot be."""
    refuse_occupied(folder)
    try:
        make_folder(folder, write)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{folder} cannot be written: {reason}. Choose another folder.") from error
