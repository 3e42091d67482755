"""The lock that leaves a run folder to one process."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from filelock import FileLock, Timeout

from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.storage.run_folder import RunFolder, run_folder_errors


@contextmanager
def sole_trainer(run: RunFolder) -> Iterator[None]:
    """While inside, no other process trains in the same folder. The folder is made if it is missing; one that was made
    for nothing is deleted.

    The system holds the lock and frees it when the process ends, in whatever way; the file stays and means nothing.
    Raises UserError where another process has the lock.
    """
    lock = FileLock(run.lock)
    new = [folder for folder in (run.path, *run.path.parents) if not exists(folder)]
    with run_folder_errors(run):
        run.path.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise UserError(
                f"{run.path} is being trained by {_holder(run)}. Wait for it or stop it, or train under another name "
                "(name=NEW)."
            ) from None
    try:
        with suppress(OSError):  # on a full disk others cannot learn who holds the lock, and that is all
            run.lock.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield
    finally:
        lock.release()
        with suppress(OSError):
            if new and [path.name for path in run.path.iterdir()] == [run.lock.name]:  # refused before it was begun
                run.lock.unlink()
                for folder in new:
                    folder.rmdir()


def _holder(run: RunFolder) -> str:
    try:
        return run.lock.read_text(encoding="utf-8", errors="replace") or "another process"
    except OSError:
        return "another process"


def is_trained_now(run: RunFolder) -> bool:
    """Whether a process trains in the folder. The lock is tried only where the process that wrote its name there may
    still live, so that no training that begins at this moment finds it taken.
    """
    try:
        named = re.fullmatch(r"process (\d+) on (.*)", run.lock.read_text(encoding="utf-8", errors="replace"))
        if named is not None and named[2] == socket.gethostname():
            os.kill(int(named[1]), 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, OverflowError):
        pass  # another user's process, or a lock that may not be read
    lock = FileLock(run.lock)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:  # a folder that may not be written to
        return False
    lock.release()
    return False
