"""Writing a file whole or not at all."""

import os
import secrets
from pathlib import Path


def replace_file(path: Path, content: str | bytes) -> None:
    """Write bytes, or text as UTF-8, beside the final name, sync them, and put them in place of what was there.

    Whoever reads meanwhile, or after a kill or a full disk, finds the old file or the new one.
    """
    temporary = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
