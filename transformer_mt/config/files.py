"""Writing a file whole or not at all."""

import os
import secrets
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write UTF-8 text beside its final name, sync it to the disk, and put it in place of what was there.

    Whoever reads meanwhile, or after a kill or a full disk, finds the old file or the new one.
    """
    temporary = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
