"""The files that a verb writes beside what it prints: where none can be is said before any work."""

from collections.abc import Iterable
from pathlib import Path

from transformer_mt.cli.terminal import remark
from transformer_mt.errors import UserError
from transformer_mt.paths import exists, is_dir, is_file


def refuse_place(path: Path, option: str, inputs: Iterable[Path] = (), is_page: bool = True) -> None:
    """UserError where no such file can be, where it would replace one of the inputs, a link or a device, and for a page
    with another ending than `.html`.
    """
    if not is_dir(path.absolute().parent):
        raise UserError(f"There is no folder {path.absolute().parent}. Make it, or name another place for {option}.")
    if is_dir(path):
        raise UserError(f"{path} is a folder. Name a file for {option}.")
    if exists(path) and any(exists(one) and path.samefile(one) for one in inputs):
        raise UserError(f"{path} is a file that is read. Name another for {option}, or it would be replaced.")
    if path.is_symlink() or (exists(path) and not is_file(path)):
        raise UserError(f"{path} is a link, a pipe or a device, and would be replaced. Name a file for {option}.")
    if is_page and path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{path} does not end in .html. Name the file of {option} so.")


def write_page(path: Path, option: str, page: str, what: str) -> None:
    """Write a page whole, and say where `what` it is lies. UserError, which names the option, where that cannot be."""
    from transformer_mt.storage.files import replace_file, writing

    with writing(path, f"Name another place for {option}."):
        replace_file(path, page)
    remark(f"{what}: {path}")
