"""Tables and tokenizers on disk, each made once and afterwards only read.

An entry is a folder. Its name is a hash of everything that its content depends on. It is written beside its final name
and renamed when it is whole, so a kill leaves nothing that could be taken for an entry. Two processes may make the same
entry at once. Beside its files lie their hashes, one for each 64 MiB. Every start compares them, so that nobody trains
on a byte that changed on the disk. The hash is a fast one: it sees accidents, not forgery.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.storage.files import TEMPORARY, make_folder, remove

META = "meta.json"
SHARD_BYTES = 2**26
BLOCK_BYTES = 2**20
STALE_SECONDS = 24 * 3600
NO_ROOM = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
LOGGER = logging.getLogger(__name__)

Counts = dict[str, int]
Content = TypeVar("Content")


def cache_folder(data: DataConfig) -> Path:
    """`data.cache_dir`, else `transformer_mt` in the user's cache folder (`XDG_CACHE_HOME` wins on every platform)."""
    folder = _cache_folder(data)
    try:
        str(folder).encode()
    except UnicodeEncodeError:  # pyarrow opens no such path
        raise UserError(f"The path of the cache folder, {str(folder)!a}, is not UTF-8. Set data.cache_dir.") from None
    return folder


def _cache_folder(data: DataConfig) -> Path:
    if "\0" in (data.cache_dir or ""):
        raise UserError(f"data.cache_dir is {data.cache_dir!r}: no path holds a NUL character. Take it out.")
    if data.cache_dir is None and os.path.isabs(xdg := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(xdg) / "transformer_mt"
    try:
        if data.cache_dir is not None:
            return Path(data.cache_dir).expanduser()
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "transformer_mt"
        caches = Path("Library", "Caches") if sys.platform == "darwin" else Path(".cache")
        return Path.home() / caches / "transformer_mt"
    except RuntimeError as error:
        raise UserError(f"No place for the cache folder was found: {error} Set data.cache_dir to a folder.") from None


def key_of(parts: list[Any], num_bytes: int = 20) -> str:
    """The name of an entry, a hash of the `parts` that its content depends on, which go into JSON."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=num_bytes).hexdigest()


def cached(entry: Path, write: Callable[[Path], Counts], read: Callable[[Path], Content]) -> tuple[Content, Counts]:
    """What `read` makes of the folder `entry`, and what `write` returned when it was made.

    Where there is no entry, `write` gets a folder, writes files to it, and returns counts to be kept. A damaged entry
    is made again, with a warning.
    """
    for _ in range(3):  # the second round reads what the first wrote, the third follows a race with another process
        with cache_errors(entry):
            found = _load(entry, read)
            if found is not None:
                return found
            _store(entry, write)
    raise UserError(f"The cache entry {entry} cannot be read back. Delete this folder and try again.")


def shard_hashes(path: Path) -> Iterator[str]:
    """A hash of each `SHARD_BYTES` of a file, in order; none for an empty file."""
    block = memoryview(bytearray(BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        digest, num_bytes = xxhash.xxh3_128(), 0
        while read := file.readinto(block[: min(BLOCK_BYTES, SHARD_BYTES - num_bytes)]):
            digest.update(block[:read])
            num_bytes += read
            if num_bytes == SHARD_BYTES:
                yield digest.hexdigest()
                digest, num_bytes = xxhash.xxh3_128(), 0
        if num_bytes:
            yield digest.hexdigest()


def _load(entry: Path, read: Callable[[Path], Content]) -> tuple[Content, Counts] | None:
    """The entry, or None where there is none; one that is damaged is removed."""
    import pyarrow as pa

    if not os.path.lexists(entry):
        return None
    try:
        meta = json.loads((entry / META).read_bytes())
        _check(entry, meta)
        return read(entry), meta["counts"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError, pa.ArrowException) as error:
        LOGGER.warning("The cache entry %s is damaged (%s) and is made again.", entry, error)
    try:
        remove(entry)
    except FileNotFoundError:  # another process was quicker
        pass
    except OSError as error:
        raise UserError(
            f"The cache entry {entry} is damaged and cannot be removed: {error.strerror or error}. Delete this folder."
        ) from error
    return None


def _check(entry: Path, meta: dict[str, Any]) -> None:
    """Raise ValueError for the first thing that differs from what was written."""
    if meta.pop("hash") != _hash_of(meta):
        raise ValueError(f"{META} was changed")
    for name, written in meta["files"].items():
        num_bytes = (entry / name).stat().st_size
        if num_bytes != written["num_bytes"]:
            raise ValueError(f"{name} has {num_bytes} bytes instead of {written['num_bytes']}")
        for shard, (now, before) in enumerate(zip(shard_hashes(entry / name), written["shards"], strict=True)):
            if now != before:
                first = shard * SHARD_BYTES
                raise ValueError(f"{name} was changed between the bytes {first:,} and {first + SHARD_BYTES:,}")


def _hash_of(meta: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(meta, sort_keys=True).encode())


def _store(entry: Path, write: Callable[[Path], Counts]) -> None:
    def fill(folder: Path) -> None:
        counts = write(folder)
        files = {
            path.name: {"num_bytes": path.stat().st_size, "shards": list(shard_hashes(path))}
            for path in sorted(folder.iterdir())
        }
        meta = {"counts": counts, "files": files}
        (folder / META).write_text(json.dumps({**meta, "hash": _hash_of(meta)}), encoding="utf-8")

    _sweep(entry.parent)
    try:
        make_folder(entry, fill)
    except OSError:
        if not exists(entry):  # else another process has made the same entry meanwhile
            raise


def _sweep(folder: Path) -> None:
    """Deletes what killed processes left there more than a day ago."""
    with suppress(FileNotFoundError):  # another process sweeps too
        for left in folder.glob(f"{TEMPORARY}*"):
            newest = max((path.lstat().st_mtime for path in [left, *left.rglob("*")]), default=0.0)
            if time.time() - newest > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def cache_errors(entry: Path) -> Iterator[None]:
    """Turns what the system says while the body writes `entry` or beside it into a `UserError`."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise UserError(
                f"There is no room for the cache entry {entry}: {error.strerror or error}. "
                "Free some space, or set data.cache_dir to a folder on another disk."
            ) from error
        raise UserError(
            f"The cache folder {entry.parent} cannot be written: {error.strerror or error}. "
            "Set data.cache_dir to a folder that can."
        ) from error
