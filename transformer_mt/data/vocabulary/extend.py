"""New words for a vocabulary that a model was trained with: they come behind the old ones, whose ids stay."""

import json
from collections.abc import Iterable
from typing import NamedTuple

import tokenizers as hf

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.tokenizers import Tokenizer, WordTokenizer, frequent_words
from transformer_mt.errors import UserError


class Extended(NamedTuple):
    """The tokenizer, how many words it has gained, and how many found no room under `tokenizer.vocab_size`."""

    tokenizer: Tokenizer
    num_new: int
    num_without_room: int


def extend_vocabularies(
    corpus: Corpus, src: Tokenizer, tgt: Tokenizer, config: TokenizerConfig
) -> tuple[Extended, Extended]:
    """Source and target tokenizer with the frequent new words of the corpus; where `joint`, one and the same with those
    of both sides.
    """
    if not config.joint:
        return extended(src, corpus.texts(0), config), extended(tgt, corpus.texts(1), config)
    both = extended(src, (texts for side in (0, 1) for texts in corpus.texts(side, once=True)), config)
    return both, both


def extended(tokenizer: Tokenizer, texts: Iterable[list[str]], config: TokenizerConfig) -> Extended:
    """The tokenizer, of whole words, with those words of the texts that it lacks and that are seen
    `config.min_frequency` times, the most frequent first, up to `config.size` entries in all.

    Raises UserError where there are such words and no room for any.
    """
    assert isinstance(tokenizer, WordTokenizer), "the config refuses others"
    vocab = tokenizer.backend.get_vocab()
    new = [word for word in frequent_words(texts, config) if word not in vocab]
    room = max(0, config.size - len(vocab))
    if new and not room:
        raise UserError(
            f"The vocabulary has {len(vocab):,} entries and tokenizer.vocab_size is {config.size:,}, so none of "
            f"{len(new):,} new words has room. Raise tokenizer.vocab_size, or leave vocabulary: extend out."
        )
    state = json.loads(tokenizer.backend.to_str())
    state["model"]["vocab"] |= {word: len(vocab) + place for place, word in enumerate(new[:room])}
    wider = WordTokenizer(hf.Tokenizer.from_str(json.dumps(state)), tokenizer.lowercase, list(config.all_tags))
    return Extended(wider, min(len(new), room), max(0, len(new) - room))
