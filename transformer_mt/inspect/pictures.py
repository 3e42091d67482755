"""Every attention of a model on one pair of sentences as files: a picture for each layer, and one page."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.inspect.attention import ATTENTIONS, Attention
from transformer_mt.inspect.attention_page import attention_page
from transformer_mt.inspect.heat_map import heat_maps, to_png
from transformer_mt.paths import exists, is_dir
from transformer_mt.storage.files import replace_file, writing

PAGE = "attention.html"


def num_files(attentions: Sequence[Attention]) -> int:
    """How many files `write_pictures` writes."""
    return 1 + sum(len(attention.weights) for attention in attentions)


def refuse_earlier(folder: Path) -> None:
    """Raise UserError where the folder has a page or pictures already."""
    if earlier := _earlier(folder):
        raise UserError(
            f"{earlier[0]} is there already. Name another folder with --output, or replace all pictures there with "
            "--force."
        )


def write_pictures(folder: Path, attentions: Sequence[Attention], model: str) -> Iterator[Path]:
    """Write `attention.html`, then `KIND_layer_N.png` for each attention and layer, its heads side by side.

    Yields each file when it is written. Layers and heads count from 0. Makes the folder. An earlier page and earlier
    pictures are deleted first, so that pictures of two sentences never stand together. Raises UserError where a file
    cannot be written.
    """
    for path in _earlier(folder):
        try:
            path.unlink()
        except OSError as error:
            raise UserError(f"{path} cannot be replaced: {error.strerror or error}. Name another --output.") from None
    yield _write(folder / PAGE, attention_page(attentions, model))
    for attention in attentions:
        for layer, weights in enumerate(attention.weights):
            title = f"{attention.kind.title}, layer {layer}\n{attention.kind.caption}"
            heads = [f"head {head}" for head in range(len(weights))]
            strips = attention.query_patches, attention.key_patches
            words = attention.key_words, attention.query_words
            figure = heat_maps(weights, *words, heads, title, attention.num_src, *strips)
            yield _write(folder / f"{attention.kind.name}_layer_{layer}.png", to_png(figure))


def _earlier(folder: Path) -> list[Path]:
    """The files in a folder whose names `write_pictures` might have given."""
    names = {kind.name for kinds in ATTENTIONS.values() for kind in kinds}
    pattern = re.compile(rf"{re.escape(PAGE)}|({'|'.join(names)})_layer_\d+\.png")
    return sorted(path for path in folder.glob("*") if pattern.fullmatch(path.name))


def _write(path: Path, content: str | bytes) -> Path:
    if exists(path.parent) and not is_dir(path.parent):
        raise UserError(f"{path.parent} is a file, not a folder. Name another with --output.")
    with writing(path, "Check --output and the disk."):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    return path
