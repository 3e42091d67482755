"""What a model that writes what was hidden (`data.noise`) would put in its place."""

import math
import re
from dataclasses import dataclass

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.switching_off import NONE
from transformer_mt.decoding.filling.mask_ids import ids_around
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError

MASK = "[MASK]"  # as people write it; the model's own are <mask_0> and so on
_ONE = re.compile(r"<mask_(\d+)>")
_MASKS = re.compile(r"(\[MASK\]|<mask_\d+>)")


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
    stretches, numbers = _parted(text, config)
    masks = _mask_ids(translator)
    ids = ids_around(stretches, [masks[place] for place in numbers], translator.src_tokenizer)
    if len(ids) + 1 > config.model.max_len:
        raise UserError("The text is longer than the model's positions. Give a shorter one.")
    # The groups of a diverse beam, which keep clear of the likeliest, and minimum Bayes risk are for translating.
    options = search_options(
        config.decoding, n_best=number, beam_size=max(4, number), diverse_beam_groups=1, mbr=NONE, mbr_candidates=NONE
    )
    (found,) = translator.search([ids], options)
    is_spans = config.data.noise is not None and config.data.noise.kind == "spans"
    by_text: dict[str, float] = {}
    for hypothesis in found:
        if is_spans:
            said = _said(hypothesis.tokens, masks)
            words = [translator.tgt_tokenizer.decode(said.get(place, [])).strip() for place in numbers]
            whole = _put_in(stretches, words)
        else:
            whole = translator.tgt_tokenizer.decode(hypothesis.tokens)
        by_text[whole] = by_text.get(whole, 0.0) + math.exp(hypothesis.log_prob)
    best = sorted(by_text.items(), key=lambda item: -item[1])
    return [Filling(_without_tag(whole, config), probability) for whole, probability in best]


def _parted(text: str, config: RunConfig) -> tuple[list[str], list[int]]:
    """The stretches of the text between its masks, and the number of each mask: 0, 1 and so on under spans, where each
    has its own, and otherwise 0. The model's own <mask_3> may stand for it.
    """
    noise = config.data.noise
    if noise is None:
        raise UserError("This run was trained on pairs. Only one of `tmt pretrain` (data.noise) fills in hidden words.")
    if noise.hiding.masks == 0:
        raise UserError(f"data.noise.kind is {noise.kind}, which hides no words. infilling, spans and masked do.")
    refuse_without_tag(text, config)
    stretches, numbers, given = [""], [], 0
    for piece in _MASKS.split(text):
        own = _ONE.fullmatch(piece)
        if piece == MASK:
            numbers.append(given if noise.kind == "spans" else 0)
            given += 1
        elif own and int(own[1]) < config.tokenizer.masks:
            numbers.append(int(own[1]))
        else:
            stretches[-1] += piece
            continue
        stretches.append("")
    if not numbers:
        raise UserError(f"There is no {MASK} in the text. Put one where words are to be found.")
    if noise.kind == "spans" and given >= config.tokenizer.masks:
        raise UserError(f"The text has {given} masks, and this model knows {config.tokenizer.masks - 1} in a text.")
    return stretches, numbers


def _mask_ids(translator: Translator) -> list[int]:
    """Of <mask_0>, <mask_1> and so on."""
    names = [f"<mask_{number}>" for number in range(translator.config.tokenizer.masks)]
    return [ids[0] for ids in translator.tgt_tokenizer.encode_batch(names)]


def text_to_fill(config: RunConfig) -> str:
    """How a text for `tmt fill` begins, with a tag where those of the run had one."""
    return " ".join([*_tags(config)[:1], f"The {MASK} …"])


def _tags(config: RunConfig) -> list[str]:
    return [source.tag for source in config.data.train if source.mono and source.tag]


def refuse_without_tag(text: str, config: RunConfig) -> None:
    """Raise UserError where the text lacks the tag that the texts of the run began with."""
    tags = _tags(config)
    if tags and (text.split() or [""])[0] not in tags:
        raise UserError(
            f"Sources of this run begin with a tag: {', '.join(sorted(set(tags)))}. Begin the text with it."
        )


def _said(tokens: list[int], masks: list[int]) -> dict[int, list[int]]:
    """What stands behind each mask of a target of spans, by the mask's number."""
    numbers = {mask: number for number, mask in enumerate(masks)}
    said: dict[int, list[int]] = {}
    last: list[int] = []  # what comes before the first mask is of none
    for token in tokens:
        if token in numbers:
            last = said.setdefault(numbers[token], [])
        else:
            last.append(token)
    return said


def _put_in(stretches: list[str], fillings: list[str]) -> str:
    """The stretches of a text with a filling between each two; where it is empty, one space is enough."""
    whole = stretches[0]
    for filling, stretch in zip(fillings, stretches[1:], strict=True):
        whole = whole + filling + stretch if filling else whole.rstrip() + stretch
    return " ".join(whole.split())


def _without_tag(text: str, config: RunConfig) -> str:
    first, _, rest = text.partition(" ")
    return rest if first in config.tokenizer.tags else text
