"""The built-in corpus as files that any tool reads."""

from pathlib import Path

from transformer_mt.data.builtin import SPLITS, builtin_pairs
from transformer_mt.errors import UserError

BUILTIN = {"builtin:en-es": ("en", "es")}


def export_builtin(corpus: str, folder: Path) -> list[tuple[Path, int]]:
    """Write SPLIT.LANGUAGE for every split and side; return each file with its number of lines.

    Raises UserError for an unknown corpus, for files that exist with other content, and for a folder that cannot be
    written.
    """
    if corpus not in BUILTIN:
        raise UserError(f"{corpus!r} is not a built-in corpus. There is {', '.join(BUILTIN)}.")
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split in SPLITS:
            for language, side in zip(BUILTIN[corpus], zip(*builtin_pairs(split), strict=True), strict=True):
                path = folder / f"{split}.{language}"
                content = "".join(text + "\n" for text in side).encode()
                if path.exists() and path.read_bytes() != content:
                    raise UserError(f"{path} exists with other content. Delete it, or choose another folder.")
                path.write_bytes(content)
                written.append((path, len(side)))
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}. Choose another folder.") from error
    return written
