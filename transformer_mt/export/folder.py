"""The new folder that an export writes: nothing is replaced, and nothing half-written is left."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformer_mt import __version__
from transformer_mt.config.schema import RunConfig
from transformer_mt.data.encoding import save_tokenizers
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.errors import UserError
from transformer_mt.export.card import CARD
from transformer_mt.paths import exists, is_dir
from transformer_mt.storage.files import make_folder, writing

DESCRIPTION, TOKENIZERS = "transformer_mt.json", "tokenizers"


def refuse_occupied(folder: Path) -> None:
    """UserError where the export would replace something."""
    if folder.is_symlink() or not folder.name:
        raise UserError(f"{folder} is not the name of a new folder. Give one, for example {folder / 'exported'}.")
    if is_dir(folder) and not any(folder.iterdir()):
        return
    if exists(folder):
        raise UserError(f"{folder} exists and is not an empty folder. Name another, or delete it first.")


def write_folder(folder: Path, write: Callable[[Path], None], card: str | None) -> None:
    """Let `write` fill a folder that gets the card and the name `folder` when it is whole. UserError where that cannot
    be.
    """

    def write_all(temporary: Path) -> None:
        write(temporary)
        if card is not None:
            # The name of a folder, which a command on the card has, may be no UTF-8.
            (temporary / CARD).write_text(card, encoding="utf-8", errors="surrogateescape")

    refuse_occupied(folder)
    with writing(folder, "Choose another folder."):
        make_folder(folder, write_all)


def save_description(folder: Path, config: RunConfig, src: Tokenizer, tgt: Tokenizer, **of_export: Any) -> None:
    """Write the tokenizers and `DESCRIPTION`, which holds all that a translation needs to know beside the model."""
    save_tokenizers(folder / TOKENIZERS, src, tgt)
    description = {
        **of_export,
        "version": __version__,
        "run": config.name,
        "src_lang": config.data.src_lang,
        "tgt_lang": config.data.tgt_lang,
        "max_len": config.model.max_len,
        "tokenizer": config.tokenizer.model_dump(),
        "decoding": config.decoding.model_dump(),
    }
    text = json.dumps(description, ensure_ascii=False, indent=1) + "\n"
    (folder / DESCRIPTION).write_text(text, encoding="utf-8")
