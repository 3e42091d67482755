"""Every attention of a model on one pair of sentences, as files: a picture a layer, and a page for all."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_mt.config.files import replace_file
from transformer_mt.errors import UserError
from transformer_mt.inspect.attention import Attention
from transformer_mt.inspect.attention_page import attention_page
from transformer_mt.inspect.heat_map import heat_maps, to_png

PAGE = "attention.html"


def num_files(attentions: Sequence[Attention]) -> int:
    """How many files `write_pictures` writes."""
    return 1 + sum(len(attention.weights) for attention in attentions)


def write_pictures(folder: Path, attentions: Sequence[Attention], model: str) -> Iterator[Path]:
    """Write `attention.html`, then `KIND_layer_N.png` for each attention and layer, its heads side by side.

    Yields each file when it is written. Layers and heads count from 0. Makes the folder; files of the same
    name are replaced. Raises UserError where a file cannot be written.
    """
    yield _write(folder / PAGE, attention_page(attentions, model))
    for attention in attentions:
        for layer, weights in enumerate(attention.weights):
            title = f"{attention.kind.title}, layer {layer}\n{attention.kind.caption}"
            heads = [f"head {head}" for head in range(len(weights))]
            figure = heat_maps(weights, attention.key_words, attention.query_words, heads, title, attention.num_src)
            yield _write(folder / f"{attention.kind.name}_layer_{layer}.png", to_png(figure))


def _write(path: Path, content: str | bytes) -> Path:
    if path.parent.exists() and not path.parent.is_dir():
        raise UserError(f"{path.parent} is a file, not a folder. Name another with --output.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}. Check --output and the disk.") from None
    return path
