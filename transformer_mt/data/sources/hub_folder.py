"""Local folders in the layout of the hub, of Parquet files. The library `datasets` says which files are a split.

In CSV and JSON files it guesses the types of cells, anew for each piece of a file, so that 007 becomes 7 and a date a
time. Such folders are refused: a user names their files as sources of their own, which we read as text.
"""

import logging
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.sources import SourceConfig
from transformer_mt.data.sources.files import source_path
from transformer_mt.errors import UserError
from transformer_mt.paths import exists, is_dir

PATTERN = re.compile(r"[*?\[]|::|\$[\w{]")  # in a folder's path, `datasets` does not take this literally
TYPED = {".parquet", ".arrow"}  # files that say which of their cells are text
GUESSED = {".csv", ".tsv", ".json", ".jsonl", ".ndjson"}
SAVED_DICT = "dataset_dict.json"
SAVED = (SAVED_DICT, "state.json")  # what `save_to_disk` writes
ABOUT = {"dataset_info.json", "dataset_infos.json"}  # what `datasets` writes beside the data


def local_folder(config: SourceConfig, data: DataConfig) -> Path | None:
    """The folder that `hub` names; None where it is a name on the hub.

    Raises UserError for a folder that is not there, and for a name that `datasets` would take for something else.
    """
    name, folder = str(config.hub), source_path(str(config.hub), data)
    if is_dir(folder):
        if pattern := PATTERN.search(str(folder.absolute())):
            raise UserError(
                f"{folder.absolute()}: the library `datasets` takes {pattern[0]!r} in it for a pattern. Rename the "
                "folder, or name the files in it as csv, jsonl or parquet."
            )
        return folder
    from datasets import packaged_modules  # its readers, which would read files of the working folder

    if name.startswith(("/", ".", "~")) or hasattr(packaged_modules, name):
        raise UserError(f"There is no folder {folder.absolute()}. Check hub; relative paths start at data.root.")
    if exists(Path(name)):  # `datasets` would read it
        raise UserError(
            f"There is no folder {folder.absolute()}; relative paths start at data.root. "
            f"If you mean {Path(name).absolute()}, name it by this whole path."
        )
    return None


def folder_splits(folder: Path, config: SourceConfig) -> dict[str, list[Path]]:
    """The files of each split that the source names, or of all where it names none (`all`).

    Raises UserError for a folder with CSV or JSON in it, even where `datasets` would choose files of another kind.
    """
    import datasets

    if saved := [name for name in SAVED if exists(folder / name)]:
        raise _not_exported(folder, is_dict=saved[0] == SAVED_DICT)
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith((".", "__")) for part in path.relative_to(folder).parts)
        if not is_hidden and path.name not in ABOUT and GUESSED & {suffix.lower() for suffix in path.suffixes}:
            raise _not_parquet(folder, path)
    with quiet(), hub_errors(config, local=True):
        found = datasets.load_dataset_builder(str(folder.absolute()), config.config).config.data_files or {}
    splits = {str(split): [Path(name) for name in names] for split, names in found.items()}
    for path in [path for paths in splits.values() for path in paths]:
        if path.suffix.lower() not in TYPED:
            raise _not_parquet(folder, path)
    return {split: splits[split] for split in named_splits(str(config.split), list(splits)) or splits}


def _not_exported(folder: Path, is_dict: bool) -> UserError:
    """For a folder of `save_to_disk`: one data set, or several by the names of their splits."""
    saved = f"load_from_disk({str(folder.absolute())!r})" + '["train"]' * is_dict
    code = f'from datasets import load_from_disk; {saved}.to_parquet("train.parquet")'
    return UserError(
        f"{folder} was written by save_to_disk of the library `datasets`, and is no folder of Parquet files. Write the "
        f"split as one, for example python -c {shlex.quote(code)}, and name it as {{parquet: train.parquet}} in the "
        "place of hub."
    )


def _not_parquet(folder: Path, path: Path) -> UserError:
    return UserError(
        f"{folder}: {path.name} is no Parquet file, and of other files the library `datasets` guesses what is text. "
        "Name the files of the split as sources of their own instead, for example {csv: FILE}, {jsonl: FILE} or "
        "{parquet: FILE}."
    )


def named_splits(split: str, names: list[str]) -> list[str]:
    """Those of the splits that an expression such as `train[:10%]+test` names."""
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", split)]


@contextmanager
def hub_errors(config: SourceConfig, local: bool) -> Iterator[None]:
    """Turns whatever `datasets` and its libraries raise into a UserError about the name, the files or the network."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cause = error.__cause__ if type(error).__name__ == "DatasetGenerationError" else None
        reason = " ".join(str(cause or error).split()) or type(error).__name__
        way_out = (
            "Check that the folder is whole, and that config and split are among its own."
            if local
            else "Check name, config, split and the network; or download its files and name them, as {parquet: FILE}."
        )
        asked = f"{config.hub} (config {config.config or 'not given'}, split {config.split})"
        raise UserError(f"The data set {asked} cannot be loaded: {reason.rstrip('.')}. {way_out}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps the bars and the chatter of `datasets` off the terminal, and puts its settings back."""
    import datasets

    logger = logging.getLogger("datasets")
    level, bars = logger.level, datasets.are_progress_bars_disabled()
    logger.setLevel(logging.CRITICAL)  # what fails is told by hub_errors, once
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
