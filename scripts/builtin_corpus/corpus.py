"""The project's own English-Spanish corpus: sentence pairs drawn from a grammar, the same on every machine.

One English sentence has one Spanish translation. The splits share no sentence on either side. About half of the test
sentences pair a noun with a verb that training never brings together in one sentence, though each occurs often.
"""

import re
import zlib
from collections import Counter
from dataclasses import dataclass
from functools import cache

from builtin_corpus.frames import first_sentence, sentence
from builtin_corpus.grammar import Dice, Piece

SPLITS = ("train", "validation", "test")
SIZES = {"train": 23_000, "validation": 1_000, "test": 1_000}
NUM_UNSEEN = 500  # of the test sentences, those with a noun and a verb that training never pairs; they alternate
SEED = 2017
HELD_OUT_PER_MILLE = 60
MIN_WORDS, MAX_WORDS = 3, 20
MIN_COUNT = 3  # every word of validation and test is at least so often in train
SPARE = 200  # sentences drawn above what validation and each half of test need, before rare words drop some
NEVER_HELD_OUT = frozenset({"be", "have", "like", "think", "know", "say", "sit"})


@dataclass(frozen=True)
class Example:
    """A sentence pair and the English lemmas of which noun is subject or object of which verb."""

    src: str
    tgt: str
    noun_verb_pairs: frozenset[tuple[str, str]]


def builtin_pairs(split: str) -> list[tuple[str, str]]:
    """The (English, Spanish) sentences of "train", "validation" or "test", always the same in the same order."""
    return [(example.src, example.tgt) for example in builtin_examples(split)]


def builtin_examples(split: str) -> tuple[Example, ...]:
    """The sentence pairs of a split with the nouns and verbs that they pair."""
    if split not in SPLITS:
        raise AssertionError(f"no split is called {split!r}; there are {', '.join(SPLITS)}")
    return _corpus()[split]


@cache
def held_out(noun: str, verb: str) -> bool:
    """Whether training never shows the noun and the verb in one sentence."""
    return verb not in NEVER_HELD_OUT and zlib.crc32(f"{noun}|{verb}".encode()) % 1000 < HELD_OUT_PER_MILLE


def words(text: str) -> list[str]:
    """The words of a sentence in lower case, without punctuation."""
    return re.findall(r"[^\W\d_]+", text.lower())


@cache
def _corpus() -> dict[str, tuple[Example, ...]]:
    train, validation, fresh, unseen = _draw()
    seen = tuple(Counter(word for piece in train for word in words(side(piece))) for side in (_en, _es))
    fresh, unseen, validation = (
        [piece for piece in pool if all(c[word] >= MIN_COUNT for c, side in zip(seen, (_en, _es), strict=True)
                                        for word in words(side(piece)))]
        for pool in (fresh, unseen, validation)
    )  # fmt: skip
    test = [piece for couple in zip(unseen[:NUM_UNSEEN], fresh, strict=False) for piece in couple]
    pools = {"train": train, "validation": validation[: SIZES["validation"]], "test": test}
    for split, pool in pools.items():
        assert len(pool) == SIZES[split], f"{split} has {len(pool)} sentences"
    return {split: tuple(map(_example, pool)) for split, pool in pools.items()}


def _draw() -> tuple[list[Piece], list[Piece], list[Piece], list[Piece]]:
    """The sentences of train and spare ones for validation, for test, and for test with unseen pairs."""
    dice = Dice(SEED)
    train, validation, fresh, unseen = [first_sentence()], [], [], []
    taken = {_key(side(train[0])) for side in (_en, _es)}
    pools = ((train, SIZES["train"]), (validation, SIZES["validation"] + SPARE), (fresh, NUM_UNSEEN + SPARE))
    while any(len(pool) < size for pool, size in pools) or len(unseen) < NUM_UNSEEN + SPARE:
        piece = _maybe_without_period(dice, sentence(dice))
        keys = {_key(_en(piece)), _key(_es(piece))}
        if keys & taken or not all(MIN_WORDS <= len(words(side(piece))) <= MAX_WORDS for side in (_en, _es)):
            continue
        if any(held_out(*pair) for pair in piece.pairs):
            pool = unseen
        elif any(held_out(noun, verb) for noun in piece.nouns for verb in piece.verbs):
            continue
        else:
            pool = dice.weighted(pools)
        taken |= keys
        pool.append(piece)
    return train[: SIZES["train"]], validation, fresh, unseen


def _maybe_without_period(dice: Dice, piece: Piece) -> Piece:
    """Drops the period of some statements, in both languages."""
    if dice.chance(15):
        return piece._replace(en=piece.en.removesuffix("."), es=piece.es.removesuffix("."))
    return piece


def _key(text: str) -> str:
    return " ".join(words(text))


def _en(piece: Piece) -> str:
    return piece.en


def _es(piece: Piece) -> str:
    return piece.es


def _example(piece: Piece) -> Example:
    return Example(piece.en, piece.es, frozenset(piece.pairs))
