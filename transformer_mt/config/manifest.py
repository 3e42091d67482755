"""Sizes and hashes of a folder's files, written last, so that a byte that changed since is seen before it is used."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.config.files import permission_to_read, replace_file
from transformer_mt.config.run_folder import MANIFEST
from transformer_mt.errors import UserError

_WAY_OUT = "Choose another with --checkpoint; `tmt train --resume` goes on from the newest that is whole."


def digest(path: Path) -> str:
    """blake2b of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def write_manifest(folder: Path, names: Sequence[str]) -> None:
    """Put the manifest of these files beside them."""
    entries = {name: {"num_bytes": (folder / name).stat().st_size, "blake2b": digest(folder / name)} for name in names}
    replace_file(folder / MANIFEST, json.dumps(entries, indent=1) + "\n")


def check_manifest(folder: Path, names: Sequence[str], way_out: str = _WAY_OUT) -> None:
    """Compare these files of a folder with its manifest.

    Raises UserError, with `way_out` (by default a checkpoint's), naming the first that differs.
    """
    try:
        with permission_to_read(folder):
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            for name in names:
                path, entry = folder / name, manifest[name]
                if path.stat().st_size != entry["num_bytes"] or digest(path) != entry["blake2b"]:
                    raise UserError(f"{path} is damaged: it was changed or cut short since it was written. {way_out}")
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing. {way_out}") from None
    except OSError as error:
        raise UserError(f"{error.filename or folder} cannot be read: {error.strerror or error}. {way_out}") from None
    except KeyError as error:
        raise UserError(f"{folder / MANIFEST} does not name {error.args[0]}, which it needs. {way_out}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{folder / MANIFEST} is damaged ({error}). {way_out}") from None
