"""Tokenizers of the kind that a config names, learned from texts or read from a file."""

import json
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

import tokenizers as hf

from transformer_mt.config.sections.tokenizer import TokenizerConfig
from transformer_mt.config.special_ids import SPECIAL_TOKENS
from transformer_mt.data.tokenizers import TOKENIZERS, Tokenizer
from transformer_mt.errors import UserError


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Learn a vocabulary from raw texts. Deterministic: the same texts in the same order give the same ids."""
    return _train([list(texts)], config)


def train_tokenizers(
    texts: Callable[[int], Iterable[list[str]]], config: TokenizerConfig
) -> tuple[Tokenizer, Tokenizer]:
    """Source and target tokenizer, one and the same where `joint`.

    texts: of the sources (0) or of the targets (1), some thousand at a time.
    """
    if config.joint:
        joint = _train(chain(texts(0), texts(1)), config)
        return joint, joint
    return _train(texts(0), config), _train(texts(1), config)


def _train(texts: Iterable[list[str]], config: TokenizerConfig) -> Tokenizer:
    kind = TOKENIZERS[config.kind]
    return kind(_forget_special_matching(kind.train_backend(texts, config)), config.lowercase, config.all_tags)


def load_tokenizer(path: Path, config: TokenizerConfig, way_out: str = "Train again.") -> Tokenizer:
    """Read what `Tokenizer.save` wrote; UserError, with `way_out`, where the file is missing or damaged."""
    try:
        backend = hf.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}. {way_out}") from error
    except Exception as error:  # the library raises bare Exception on a file it cannot parse
        raise UserError(f"{path} is not a tokenizer file ({error}). {way_out}") from error
    if any(backend.token_to_id(token) != i for i, token in enumerate(SPECIAL_TOKENS)):
        raise UserError(f"{path} lacks the special tokens. It was not written by this project. {way_out}")
    if missing := [tag for tag in config.all_tags if backend.token_to_id(tag) is None]:
        raise UserError(f"{path} has no entry for {missing[0]}, one of tokenizer.tags and tokenizer.masks. {way_out}")
    return TOKENIZERS[config.kind](backend, config.lowercase, config.all_tags)


def _forget_special_matching(backend: hf.Tokenizer) -> hf.Tokenizer:
    """The special entries stay in the vocabulary, but the library no longer finds their names in text."""
    state = json.loads(backend.to_str())
    state["added_tokens"] = []
    return hf.Tokenizer.from_str(json.dumps(state))
