"""The built-in corpus as files that any tool reads."""

from pathlib import Path

from transformer_mt.data.builtin import SPLITS, builtin_pairs
from transformer_mt.errors import UserError
from transformer_mt.paths import exists
from transformer_mt.storage.files import replace_file, writing

BUILTIN = {"builtin:en-es": ("en", "es")}


def export_builtin(corpus: str, folder: Path) -> list[tuple[Path, int]]:
    """Write SPLIT.LANGUAGE for every split and side; return each file with its number of lines.

    Raises UserError for an unknown corpus, for files that exist with other content, before any is written, and for a
    folder that cannot be written. Each file is there whole or not at all.
    """
    if corpus not in BUILTIN:
        raise UserError(f"{corpus!r} is not a built-in corpus. There is {', '.join(BUILTIN)}.")
    sides = {
        folder / f"{split}.{language}": side
        for split in SPLITS
        for language, side in zip(BUILTIN[corpus], zip(*builtin_pairs(split), strict=True), strict=True)
    }
    contents = {path: "".join(text + "\n" for text in side).encode() for path, side in sides.items()}
    with writing(folder, "Choose another folder."):
        for path, content in contents.items():
            if exists(path) and path.read_bytes() != content:
                raise UserError(f"{path} exists with other content. Delete it, or choose another folder.")
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            if not exists(path):
                replace_file(path, content)
    return [(path, len(side)) for path, side in sides.items()]
