"""What a model that writes what was hidden (`data.noise`) would put in its place."""

import math
import re
from dataclasses import dataclass

from transformer_mt.config.schema import RunConfig
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translation import Translation
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError

MASK = "[MASK]"  # as people write it; the model's own are <mask_0> and so on
_ONE = re.compile(r"<mask_(\d+)>")


@dataclass(frozen=True)
class Filling:
    """A whole sentence, and the probability that the model gives to it, or under spans to its fillings."""

    text: str
    probability: float


def fillings(translator: Translator, text: str, number: int) -> list[Filling]:
    """The likeliest fillings of a text with [MASK] in it, the best first: `number` of them, or fewer where several come
    to one text. A mask stands for any number of words.

    Raises UserError where the model learned nothing of that kind, and for a text without a mask, with more than it
    knows, or without the tag that its sources had.
    """
    config = translator.config
    asked = _with_masks(text, config)
    options = search_options(config.decoding, n_best=number, beam_size=max(4, number))
    (found,) = translator.translate_lines([asked], options)
    if found.problem or found.too_long:
        raise UserError(found.problem or "The text is longer than the model's positions. Give a shorter one.")
    kind = config.data.noise.kind if config.data.noise else ""
    by_text: dict[str, float] = {}
    for hypothesis in found.hypotheses:
        whole = _put_in(asked, hypothesis) if kind == "spans" else hypothesis.text
        by_text[whole] = by_text.get(whole, 0.0) + math.exp(hypothesis.log_prob)
    best = sorted(by_text.items(), key=lambda item: -item[1])
    return [Filling(_without_tag(whole, config), probability) for whole, probability in best]


def _with_masks(text: str, config: RunConfig) -> str:
    noise = config.data.noise
    if noise is None:
        raise UserError("This run was trained on pairs. Only one of `tmt pretrain` (data.noise) fills in hidden words.")
    if noise.hiding.masks == 0:
        raise UserError(f"data.noise.kind is {noise.kind}, which hides no words. infilling, spans and masked do.")
    refuse_without_tag(text, config)
    parts = text.split(MASK)
    if len(parts) == 1 and not _ONE.search(text):
        raise UserError(f"There is no {MASK} in the text. Put one where words are to be found.")
    if noise.kind != "spans":
        return " <mask_0> ".join(parts)
    if len(parts) > config.tokenizer.masks:
        raise UserError(
            f"The text has {len(parts) - 1} masks, and this model knows {config.tokenizer.masks - 1} in a text."
        )
    return "".join(
        part + (f" <mask_{number}> " if number + 1 < len(parts) else "") for number, part in enumerate(parts)
    )


def refuse_without_tag(text: str, config: RunConfig) -> None:
    """Raise UserError where the text lacks the tag that the texts of the run began with."""
    tags = [source.tag for source in config.data.train if source.mono and source.tag]
    if tags and (text.split() or [""])[0] not in tags:
        raise UserError(
            f"Sources of this run begin with a tag: {', '.join(sorted(set(tags)))}. Begin the text with it."
        )


def _put_in(asked: str, hypothesis: Translation) -> str:
    """The text with what stands behind each of its masks in the hypothesis; nothing where that has it not."""
    _, *found = _ONE.split(hypothesis.text)
    said = {number: words.strip() for number, words in zip(found[::2], found[1::2], strict=True)}
    return " ".join(_ONE.sub(lambda mask: said.get(mask.group(1), ""), asked).split())


def _without_tag(text: str, config: RunConfig) -> str:
    first, _, rest = text.partition(" ")
    return rest if first in config.tokenizer.tags else text
