"""A manifest holds the sizes and hashes of a folder's files. It is written last, and shows any byte changed since."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.storage.files import permission_to_read, replace_file
from transformer_mt.storage.run_folder import MANIFEST


def digest(path: Path) -> str:
    """The blake2b hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def write_manifest(folder: Path, names: Sequence[str]) -> None:
    """Put the manifest of these files beside them."""
    entries = {name: {"num_bytes": (folder / name).stat().st_size, "blake2b": digest(folder / name)} for name in names}
    replace_file(folder / MANIFEST, json.dumps(entries, indent=1) + "\n")


class DamagedError(UserError):
    """A file is missing or was changed. `what` is the sentence that says so, without a way out."""

    def __init__(self, what: str, way_out: str) -> None:
        super().__init__(f"{what} {way_out}")
        self.what = what


def check_manifest(folder: Path, names: Sequence[str], way_out: str) -> None:
    """Compare these files of a folder with its manifest.

    Raises DamagedError, with `way_out`, for the first file that differs. Raises another UserError where a file cannot
    be read, since then nobody knows whether it is damaged.
    """
    manifest_path = folder / MANIFEST
    try:
        with permission_to_read(folder):
            manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
            for name in names:
                path, entry = folder / name, manifest[name]
                if path.stat().st_size != entry["num_bytes"] or digest(path) != entry["blake2b"]:
                    raise DamagedError(f"{path} is damaged: it was changed or cut short since it was written.", way_out)
    except FileNotFoundError as error:
        raise DamagedError(f"{error.filename} is missing.", way_out) from None
    except OSError as error:
        raise UserError(f"{error.filename or folder} cannot be read: {error.strerror or error}. {way_out}") from None
    except KeyError as error:
        raise DamagedError(f"{manifest_path} does not name {error.args[0]}, which it needs.", way_out) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedError(f"{manifest_path} is damaged ({error}).", way_out) from None
