"""The ids of a text with masks in it, as noise would have made them of a whole line."""

from collections.abc import Sequence

from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.data.word_splitting import has_word


def ids_around(stretches: Sequence[str], masks: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """The ids of stretches of text, with a mask of these between each two. Punctuation that touches a mask is what it
    is beside a word, as in the lines of the training.
    """
    ids: list[int] = []
    for number, stretch in enumerate(stretches):
        ids += masks[number - 1 : number] if number else []
        ids += _beside_masks(stretch, number > 0, number + 1 < len(stretches), tokenizer)
    return ids


def _beside_masks(part: str, before: bool, after: bool, tokenizer: Tokenizer) -> list[int]:
    """The ids of a stretch of text that has a mask before or after it. A letter stands for a mask that touches it, and
    is taken out again.
    """
    touches = [there and not (c.isspace() or has_word(c)) for there, c in ((before, part[:1]), (after, part[-1:]))]
    start, end = (flag and part != "" for flag in touches)
    ids = tokenizer.encode("x" * start + part + "x" * end)
    return ids[len(tokenizer.encode("x")) * start : len(ids) - end]
