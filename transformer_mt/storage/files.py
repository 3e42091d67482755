"""Writing a file or a folder whole or not at all, and what to say where the system forbids reading or writing."""

import errno
import glob
import os
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.paths import exists, is_dir, is_file

TEMPORARY = ".tmp-"  # how the name of what is being written begins


def replace_file(path: Path, content: str | bytes) -> None:
    """Write bytes, or text as UTF-8, as `make_file` does."""
    make_file(path, lambda file: file.write_bytes(content.encode("utf-8") if isinstance(content, str) else content))


def make_file(final: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write a file beside the final name, sync it, and give it the final name.

    Whoever reads meanwhile, or after a kill or a full disk, finds either the old file or the new one.
    What killed processes left of a file of that name is deleted.
    """
    _sweep(final)
    temporary = temporary_beside(final)
    try:
        write(temporary)
        _sync(temporary)
        os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(final: Path, write: Callable[[Path], object], make_way: Callable[[], None] = lambda: None) -> None:
    """Let `write` fill a folder beside the final name, sync all that is in it, and rename it.

    `make_way` is called right before the renaming and removes what has the final name. Without it, there may be only an
    empty folder of that name, or nothing. Raises OSError and whatever the two functions raise, and then leaves nothing
    behind. What killed processes left of a folder of that name is deleted.
    """
    _sweep(final)
    temporary = temporary_beside(final)
    try:
        temporary.mkdir(parents=True)
        write(temporary)
        for path in [*temporary.rglob("*"), temporary]:
            _sync(path)
        make_way()
        if sys.platform == "win32":  # which gives no folder the name of another, even of an empty one
            with suppress(OSError):
                final.rmdir()
        os.replace(temporary, final)
        _sync(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_folder(final: Path, write: Callable[[Path], object]) -> None:
    """`make_folder` in the place of one of that name. Of two processes that do this at once, either's folder stays."""

    def make_way() -> None:
        with suppress(FileNotFoundError):
            remove(final)

    try:
        make_folder(final, write, make_way)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process has put its own there a moment ago
            raise


@contextmanager
def working_folder(folder: Path, name: str) -> Iterator[Path]:
    """A new folder in another, for files that get their names together; it is deleted at the end. What killed processes
    left of one with this name is deleted.
    """
    _sweep(folder / name)
    temporary = temporary_beside(folder / name)
    try:
        temporary.mkdir()
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sweep(final: Path) -> None:
    """Delete what killed processes left of this file or folder an hour ago or more. What was written to since may be in
    the making; the time of a folder does not say so, which is when a name in it was last made.
    """
    for left in final.parent.glob(f"{TEMPORARY}{glob.escape(final.name)}-*"):
        with suppress(OSError):
            written = max(path.lstat().st_mtime for path in [left, *left.rglob("*")])
            if time.time() - written > 3600:
                _delete(left)


def temporary_beside(final: Path) -> Path:
    """A new name beside `final`, for what is not whole yet or about to be deleted."""
    return final.with_name(f"{TEMPORARY}{final.name}-{secrets.token_hex(4)}")


def remove(path: Path) -> None:
    """Delete a folder or a file. It is renamed first, so that a kill in the middle leaves nothing that looks whole."""
    rubbish = temporary_beside(path)
    os.rename(path, rubbish)
    _delete(rubbish)


def _delete(path: Path) -> None:
    if is_dir(path) and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def permission_to_read(folder: Path) -> Iterator[None]:
    """Raises UserError where the body reads something in `folder` that it may not read, or a path that is too long."""
    try:
        yield
    except PermissionError as error:
        raise UserError(
            f"{error.filename or folder} may not be read: permission denied. Have its owner allow it: "
            f"chmod -R a+rX {shlex.quote(str(folder))}"
        ) from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise UserError(
            f"{folder} is too long a path for this system, or has too long a name in it. Check it."
        ) from None


@contextmanager
def writing(path: Path | str, way_out: str) -> Iterator[None]:
    """Raises UserError, with `way_out` at its end, where the body cannot write there."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}. {way_out}") from error


@contextmanager
def written_to(what: str, path: Path, run: Path) -> Iterator[None]:
    """Raises UserError where the body cannot write `path`, that is `what`, in the folder `run`."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"The {what} {path} cannot be written: {error.strerror or error}. To have it, {way_to_write(error, run)} "
            "and try again."
        ) from error


def way_to_write(error: BaseException, folder: Path) -> str:
    """What to do about an error in writing to a folder, as the middle of a sentence."""
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"have {folder} made writable for you"
    if isinstance(error, FileNotFoundError) and not exists(folder):
        return f"put {folder} back where it was"
    if isinstance(error, OSError) and error.errno in (errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE):
        return f"see that the disk of {folder} works"
    return "free some space"


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if is_file(path):
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    elif sys.platform != "win32":  # on Windows a folder cannot be opened
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError):  # some network file systems refuse; the files themselves are synced
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
