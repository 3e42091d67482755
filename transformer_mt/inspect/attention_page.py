"""An HTML page with every attention of a model on one pair of sentences. The page needs no network."""

import json
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.config.special_ids import SPECIAL_TOKENS
from transformer_mt.inspect.attention import Attention
from transformer_mt.pages.html_text import STYLE

TEMPLATE = Path(__file__).with_suffix(".html")
DIGITS = 4  # of a weight: so the page of a sentence of forty words has a megabyte or two


def attention_page(attentions: Sequence[Attention], model: str) -> str:
    """The page as text. `model` names the model, at the top.

    Weights are rounded to `DIGITS` digits. Words are never markup: the page holds them as JSON in which no character
    has a meaning for HTML, and shows them as text.
    """
    data = {
        "model": model,
        "special": SPECIAL_TOKENS,
        "attentions": [attention.for_a_page(DIGITS) | {"num_src": attention.num_src} for attention in attentions],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", r"\u003c")
    style = STYLE.read_text(encoding="utf-8")
    return TEMPLATE.read_text(encoding="utf-8").replace("@STYLE@", style).replace("@DATA@", text)
