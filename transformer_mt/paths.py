"""The path that a user means, and what is at it, on every Python alike.

Where the system forbids to look, `Path.exists`, `is_file` and `is_dir` raise up to Python 3.13, and say False from 3.14
on. A run that may not be read would count as none.
"""

import errno
import os
import stat
from pathlib import Path

_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.EINVAL)  # the last for Windows' invalid names


def user_path(text: str | os.PathLike[str]) -> Path:
    """The path that a user means. `~` is the home folder, in a config and in `--runs=~/runs`, which shells leave alone;
    before an unknown user it is a name like any other.
    """
    return Path(os.path.expanduser(text))


def exists(path: Path) -> bool:
    """Whether there is anything. OSError where that cannot be seen, as of the two others."""
    return _mode(path) is not None


def is_file(path: Path) -> bool:
    """Whether there is a regular file, or a link to one."""
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_dir(path: Path) -> bool:
    """Whether there is a folder, or a link to one."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def what_exists_of(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if exists(place))


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except ValueError:  # a NUL in the name
        return None
    except OSError as error:
        if error.errno in _NOTHING:
            return None
        raise
