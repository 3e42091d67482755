"""The lock that leaves a run folder to one process."""

import errno
import os
import re
import socket
import sys
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
    Where the file system has no locks, as Lustre's mostly, what the file says has to do: a process that it names is
    seen on this machine alone, which is printed. Raises UserError where another process has the lock.
    """
    lock = FileLock(run.lock)
    new = [folder for folder in (run.path, *run.path.parents) if not exists(folder)]
    with run_folder_errors(run):
        run.path.mkdir(parents=True, exist_ok=True)
        locks = _has_locks(run)
        try:
            if locks:
                lock.acquire(blocking=False)
        except Timeout:
            raise UserError(f"{_taken(run)}, or train under another name (name=NEW).") from None
    if not locks:
        if _holder(run) != _own_name() and _may_live(run):  # in a container, every training may have the same name
            raise UserError(f"{_taken(run)}, or delete {run.lock} where that process is no training of it.")
        print(f"note: there are no locks where {run.path} lies, so let no other machine train in it meanwhile")
    try:
        with suppress(OSError):  # on a full disk others cannot learn who holds the lock, and that is all
            run.lock.write_text(_own_name(), encoding="utf-8")
        yield
    finally:
        lock.release()
        with suppress(OSError):
            if not locks and other_trainer(run) is None:
                run.lock.unlink()
            if new and {path.name for path in run.path.iterdir()} <= {run.lock.name}:  # refused before it was begun
                run.lock.unlink(missing_ok=True)
                for folder in new:
                    folder.rmdir()


def _has_locks(run: RunFolder) -> bool:
    """Whether the file system knows locks. Where it does not, filelock would take the file itself for one, which stays
    when its process is killed. Raises OSError where the file cannot be written.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    with run.lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_UN)  # which frees nothing: this file was opened just now
        except OSError as error:
            return error.errno != errno.ENOSYS
    return True


def _own_name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _taken(run: RunFolder) -> str:
    return f"{run.path} is being trained by {_holder(run)}. Wait for it or stop it"


def _holder(run: RunFolder) -> str:
    try:
        return run.lock.read_text(encoding="utf-8", errors="replace") or "another process"
    except OSError:
        return "another process"


def _may_live(run: RunFolder) -> bool | None:
    """Whether the process that wrote its name into the file still lives. None where that cannot be known: on another
    machine, on Windows, and where there is no name.
    """
    try:
        named = re.fullmatch(r"process (\d+) on (.*)", run.lock.read_text(encoding="utf-8", errors="replace"))
        if named is None or named[2] != socket.gethostname():
            return None
        if sys.platform == "win32":  # where a signal of 0 is Ctrl-C
            return None
        os.kill(int(named[1]), 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, OverflowError):  # another user's process, or a lock that may not be read
        return None
    return True


def other_trainer(run: RunFolder) -> str | None:
    """The process that wrote its name into the lock after this one did, if one did: the folder was moved or deleted,
    and that process trains in a new one of the same name.
    """
    with suppress(OSError):
        holder = run.lock.read_text(encoding="utf-8", errors="replace")
        is_ours = holder.startswith(f"process {os.getpid()} on ")  # a laptop's name changes with its network
        return holder if holder and not is_ours else None
    return None


def is_trained_now(run: RunFolder) -> bool:
    """Whether a process trains in the folder. The lock is tried only where the process that wrote its name there may
    still live, so that no training that begins at this moment finds it taken.
    """
    if (lives := _may_live(run)) is False:
        return False
    try:
        if not _has_locks(run):
            return lives is True
        lock = FileLock(run.lock)
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:  # a folder that may not be written to
        return False
    lock.release()
    return False
