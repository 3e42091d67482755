"""What a caller demands of translations, from text to tokens: prefixes, and phrases that one must or none may hold."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray

from transformer_mt.config.sections.model import ModelConfig
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.data.sources.files import read_lines
from transformer_mt.data.tokenizers import Tokenizer, normalize
from transformer_mt.data.word_splitting import has_word, is_of_spaced_word
from transformer_mt.decoding.search.constrained_beam import Found
from transformer_mt.decoding.search.constraints import missing_after
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.search.rules import Demand, WordEdges, Writing
from transformer_mt.errors import UserError
from transformer_mt.paths import exists, user_path


@dataclass(frozen=True)
class SourceLine:
    """A text to translate. The translation begins with the words of `prefix`, if there are any, and holds all
    `constraints`: words and phrases. Several in a tuple are one constraint, which any of them meets.

    `patches` are those of a picture, (num_patches, pixels), and `text` is its name then.

    `place` says which line it is, counted from 0, and of a part of a line which part. Samples of equal texts at
    different places are different. Without a place it is the number of the text in the call.
    """

    text: str
    prefix: str = ""
    constraints: tuple[str | tuple[str, ...], ...] = ()
    place: tuple[int, ...] = ()
    patches: "NDArray[np.uint8] | None" = field(default=None, compare=False)


def source_rows(
    lines: Sequence[SourceLine], texts: Sequence[str], tokenizer: Tokenizer, model: ModelConfig
) -> list[Any]:
    """The ids of the text of each line, or its patches. UserError for patches that the model does not read."""
    drawn = {i for i, line in enumerate(lines) if line.patches is not None}
    for i in sorted(drawn):
        _refuse_other_patches(i + 1, lines[i].patches, model)
    rows = tokenizer.encode_batch(["" if i in drawn else text for i, text in enumerate(texts)])
    return [lines[i].patches if i in drawn else row for i, row in enumerate(rows)]


def _refuse_other_patches(number: int, patches: Any, model: ModelConfig) -> None:
    """UserError where a model reads text, or patches of another size or type than the line of this number has."""
    if model.patches is None:
        raise UserError(f"Line {number} has patches, and this model reads text. Give a text without patches.")
    shape, dtype = getattr(patches, "shape", ()), getattr(patches, "dtype", type(patches).__name__)
    if len(shape) != 2 or shape[1] != model.patches.pixels or dtype != np.uint8:
        raise UserError(
            f"The patches of line {number} are of the type {dtype} and the shape {shape}. Give an array of uint8, of "
            f"{model.patches.pixels} columns, as `read_picture` makes it."
        )


def with_places(lines: Sequence[str | SourceLine], first: int = 0) -> list[SourceLine]:
    """The lines with their places, of which the first has the number `first`."""
    begun = [SourceLine(line) if isinstance(line, str) else line for line in lines]
    return [line if line.place else replace(line, place=(number,)) for number, line in enumerate(begun, start=first)]


def demanding(
    chunks: Iterable[Sequence[str]], prefix: str | None, has_constraints: bool = False, first_line: int = 1
) -> Iterator[list[SourceLine]]:
    """The chunks of texts with the prefixes of their translations: the lines of a file, from `first_line` on, or with
    `tab` what stands behind the first tab of the text itself. Where a text has constraints, each stands behind a tab
    after that.

    Raises UserError where the file cannot be read, or has not a line for each text.
    """
    if prefix is None or prefix == "tab":
        lines = ([_parted(text, prefix == "tab", has_constraints) for text in chunk] for chunk in chunks)
    else:
        lines = _with_prefixes(chunks, Path(prefix), has_constraints, first_line)
    yield from lines


def _parted(text: str, has_prefix: bool, has_constraints: bool) -> SourceLine:
    """A text, and what stands behind its tabs."""
    prefix, constraints = "", []
    if has_constraints:
        text, *constraints = text.split("\t")
        if has_prefix and constraints:
            prefix, *constraints = constraints
    elif has_prefix:
        text, _, prefix = text.partition("\t")
    return SourceLine(text, prefix, tuple(constraints))


def _with_prefixes(
    chunks: Iterable[Sequence[str]], path: Path, has_constraints: bool, first_line: int
) -> Iterator[list[SourceLine]]:
    prefixes = lines_named_by("--prefix", path)
    number = sum(1 for _ in islice(prefixes, first_line - 1))
    for chunk in chunks:
        begun = [prefix for _, prefix in islice(prefixes, len(chunk))]
        number += len(begun)
        if begun:
            parted = (_parted(text, has_prefix=False, has_constraints=has_constraints) for text in chunk)
            yield [replace(line, prefix=prefix) for line, prefix in zip(parted, begun, strict=False)]
        if len(begun) < len(chunk):
            raise UserError(
                f"{path} ends after line {number}, and there are more texts to translate. Write a prefix for each, or "
                "a blank line."
            )
    if next(prefixes, None) is not None:
        raise UserError(f"{path} goes on after line {number}, where the texts to translate end. Check both.")


def lines_named_by(named_by: str, path: Path) -> Iterator[tuple[int, str]]:
    """`read_lines` of the file that an option or a key names; ~ is the user's folder. UserError, which says what names
    it, where there is none.
    """
    path = user_path(path)
    try:
        is_there = exists(path)
    except OSError as error:  # a name that is too long, or a folder that may not be read
        raise UserError(f"{path} cannot be read: {error.strerror}. Check the name after {named_by}.") from None
    if not is_there:
        raise UserError(f"There is no file {path}. Check the name after {named_by}.")
    return read_lines(path)


def list_of_texts(
    texts: Iterable, verb: str = "translate", noun: str = "text", kinds: type | tuple[type, ...] = str
) -> list[Any]:
    """The texts as a list. Raises UserError for a single text, and for items that are none of the `kinds`. `noun` is
    what messages call one of them.
    """
    if isinstance(texts, str):
        raise UserError(f"{verb} takes a list of {noun}s, and got one alone. Put it into a list: [{texts!r}].")
    if not isinstance(texts, Iterable):
        raise UserError(f"{verb} takes a list of {noun}s, not what is of type {type(texts).__name__}. Give it a list.")
    texts = list(texts)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, kinds):
            told = f"{noun.capitalize()} {number} of {len(texts)}"
            raise UserError(f"{told} is of type {type(text).__name__}. Give it as str.")
    return texts


def pairs_of_texts(texts: Iterable[str], translations: Iterable[str]) -> list[tuple[str, str]]:
    """What is to be scored. Raises UserError as `list_of_texts` does, and for lists of unequal length."""
    sides = list_of_texts(texts, "score"), list_of_texts(translations, "score", "translation")
    if len(sides[0]) != len(sides[1]):
        raise UserError(
            f"score got {len(sides[0]):,} texts and {len(sides[1]):,} translations. Give a translation of each."
        )
    return list(zip(*sides, strict=True))


def list_of_lines(texts: Iterable[str | SourceLine]) -> list[SourceLine]:
    """The texts as lines. Raises UserError for a single text, and for items that are neither text nor line."""
    lines = list_of_texts(texts, kinds=(str, SourceLine))
    lines = [SourceLine(text) if isinstance(text, str) else text for text in lines]
    for number, line in enumerate(lines, start=1):
        _refuse_other_types(number, line)
    return lines


def _refuse_other_types(number: int, line: SourceLine) -> None:
    """UserError for a part of a line, which has this number, that is of another type than `SourceLine` says."""
    for name, value in (("text", line.text), ("prefix", line.prefix)):
        if not isinstance(value, str):
            raise UserError(f"The {name} of line {number} is of type {type(value).__name__}. Give it as str.")
    phrases, place = line.constraints, line.place
    if isinstance(phrases, str):
        raise UserError(f"The constraints of line {number} are a string. Give a tuple of phrases: ({phrases!r},).")
    if not _all_are(phrases, lambda one: isinstance(one, str) or _all_are(one, lambda way: isinstance(way, str))):
        raise UserError(
            f"The constraints of line {number} are {phrases!r}. Give a tuple of phrases, each as str, or as a tuple of "
            "those of which one is enough."
        )
    if not _all_are(place, lambda one: isinstance(one, Integral) and 0 <= int(one) < 2**64):
        raise UserError(f"The place of line {number} is {place!r}. Give a tuple of whole numbers from 0 to 2^64 - 1.")


def _all_are(values: object, are: Callable[[Any], bool]) -> bool:
    return isinstance(values, tuple | list) and all(map(are, values))


class CannotMeetError(Exception):
    """No translation can meet the demand of a line; the message says why, without the line's number."""


def refuse_cut_picture(is_cut: bool, model: ModelConfig) -> None:
    """Raise CannotMeetError for the terms of a glossary in the beginning of a picture."""
    if is_cut and model.patches is not None:
        raise CannotMeetError("the beginning of its picture has no text, in which terms could be found")


def demand_of(line: SourceLine, tokenizer: Tokenizer, limit: int) -> Demand:
    """The demand of a line as tokens; `limit` is the largest length of its translation, EOS counted. Raises
    CannotMeetError.
    """
    constraints = tuple(_constraint(i, phrase, tokenizer) for i, phrase in enumerate(line.constraints, start=1))
    if not line.prefix.strip():
        return Demand(constraints=constraints)
    prefix = tokenizer.encode(line.prefix)
    if UNK_ID in prefix:
        unknown = ", ".join(tokenizer.unknown_words(line.prefix))
        raise CannotMeetError(f"the model cannot write these words of the prefix: {unknown}")
    if len(prefix) >= limit:
        raise CannotMeetError(f"the prefix has {len(prefix)} tokens, and the translation may have {limit - 1}")
    return Demand(tuple(prefix), is_of_spaced_word(line.prefix.rstrip()[-1]), constraints=constraints)


def _constraint(number: int, phrases: str | tuple[str, ...], tokenizer: Tokenizer) -> tuple[Writing, ...]:
    """All ways to write a constraint, which has this number among those of its line. Raises CannotMeetError."""
    phrases = (phrases,) if isinstance(phrases, str) else phrases
    phrases = tuple(normalize(phrase, tokenizer.lowercase) for phrase in phrases if phrase.strip())
    if not phrases:
        raise CannotMeetError(f"constraint {number} holds no word")
    found = [writing for phrase in phrases for writing in writings_of(phrase, tokenizer)]
    if all(writing.after_break for writing in found):
        unknown = ", ".join(word for phrase in phrases for word in tokenizer.unknown_words(phrase))
        raise CannotMeetError(f"the model cannot write these words that are demanded: {unknown}")
    return tuple(dict.fromkeys(found))


def writings_of(phrase: str, tokenizer: Tokenizer) -> list[Writing]:
    """The ways to write a phrase, which is normalized, within a sentence: behind a space, and directly behind a mark as
    in "¿Qué". None where the vocabulary lacks a word of it.
    """
    ends_in_word = is_of_spaced_word(phrase[-1])
    behind = "(" if has_word(phrase[0]) else "x"  # neither makes one token with what follows
    both, before, spaced = tokenizer.encode_batch([behind + phrase, behind, phrase])
    joined = both[len(before) :]
    num_spaces = next(i for i, token in enumerate(spaced) if tokenizer.decode([token]))
    ways = [Writing(tuple(spaced), False, ends_in_word, num_spaces)]
    if joined != spaced:
        ways.append(Writing(tuple(joined), is_of_spaced_word(phrase[0]), ends_in_word))
    return [way for way in ways if UNK_ID not in way.tokens]


class AvoidedPhrases:
    """Words and phrases that no translation may hold. They are whole words, in upper and lower case as they stand."""

    def __init__(self, phrases: Iterable[str], tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._phrases = [normalize(phrase, tokenizer.lowercase) for phrase in phrases if phrase.strip()]
        self._pattern = regex.compile("|".join(map(_as_whole_words, self._phrases)))

    @classmethod
    def read(cls, path: Path, tokenizer: Tokenizer, named_by: str = "--avoid") -> "AvoidedPhrases":
        """One phrase a line. Raises UserError, which says what names the file, where it cannot be read or has none."""
        phrases = [line for _, line in lines_named_by(named_by, path) if line.strip()]
        if not phrases:
            raise UserError(f"{path} holds no word or phrase to avoid. Write one a line, or leave out {named_by}.")
        return cls(phrases, tokenizer)

    def is_in(self, tokens: Sequence[int]) -> bool:
        """Whether the text of the tokens holds one of them."""
        return self.is_in_text(self._tokenizer.decode(list(tokens)))

    def is_in_text(self, text: str) -> bool:
        """Whether a text holds one of them, however wide its spaces are."""
        return self._pattern.search(" ".join(text.split())) is not None

    def sequence_in(self, tokens: list[int]) -> tuple[int, ...]:
        """The tokens by which they first hold one of them, which they do."""
        end = len(tokens)
        while self.is_in(tokens[: end - 1]):  # not `end` by `end` from the front: "cat" may go on as "cats"
            end -= 1
        text = self._tokenizer.decode(tokens[:end])
        start = end - 1
        while self._pattern.search(text, len(self._tokenizer.decode(tokens[:start]))) is None:
            start -= 1
        return tuple(tokens[start:end])


def _as_whole_words(phrase: str) -> str:
    before = r"(?<![\p{L}\p{M}\p{N}])" * is_of_spaced_word(phrase[0])
    after = r"(?![\p{L}\p{M}\p{N}])" * is_of_spaced_word(phrase[-1])
    return before + regex.escape(phrase, literal_spaces=True) + after


def without_avoided(demand: Demand, avoided: AvoidedPhrases, path: str, tokenizer: Tokenizer) -> Demand:
    """The demand without the ways to write a constraint that hold a phrase of `path`. Raises CannotMeetError where none
    is left, and where the prefix holds one.
    """
    if avoided.is_in(demand.prefix):
        raise CannotMeetError(f"the prefix holds a phrase of {path}")
    allowed = tuple(tuple(way for way in phrase if not avoided.is_in(way.tokens)) for phrase in demand.constraints)
    for phrase, ways in zip(demand.constraints, allowed, strict=True):
        if all(way.after_break for way in ways):
            raise CannotMeetError(f"the constraint {tokenizer.decode(list(phrase[0].tokens))} holds a phrase of {path}")
    return replace(demand, constraints=allowed)


def problem_of_blank(line: SourceLine) -> str:
    """What is wrong with a blank source, of which nothing can be demanded; nothing where nothing is, or with a text."""
    if line.text.strip() or line.patches is not None:
        return ""
    phrases = [phrase for one in line.constraints for phrase in ((one,) if isinstance(one, str) else one)]
    if not any(text.strip() for text in (line.prefix, *phrases)):
        return ""
    return "the source is blank, and a prefix or phrase is demanded of its translation"


def refuse_other_search(options: SearchOptions) -> None:
    """Raise UserError where lines have constraints, and the options ask for a search that knows none."""
    if options.is_sampling or options.diverse_beam_groups > 1:
        groups = f"diverse_beam_groups {options.diverse_beam_groups} deals out the places of a beam otherwise"
        other = options.asks_for_samples if options.is_sampling else groups
        raise UserError(f"Lines have constraints, and {other}. Leave one of them out.")


def refuse_without_room(demand: Demand, ordered: bool, edges: WordEdges, limit: int) -> None:
    """Raise CannotMeetError where the prefix and those of the constraints that it does not hold are too long."""
    missing = missing_after(demand, ordered, edges)
    if len(demand.prefix) + missing >= limit:
        what = "prefix and constraints have" if demand.prefix else "the constraints have"
        raise CannotMeetError(f"{what} {len(demand.prefix) + missing} tokens, and the translation may have {limit - 1}")


def problem_of(found: Found, demand: Demand, avoid: str | None, tokenizer: Tokenizer) -> str:
    """Why nothing was found, as far as something was demanded; nothing where there is a hypothesis."""
    if found.hypotheses:
        return ""
    if found.unmet:
        unmet = ", ".join(tokenizer.decode(list(demand.constraints[i][0].tokens)) for i in found.unmet)
        return f"the search finds no translation with all constraints; what comes closest lacks: {unmet}"
    return f"the search finds no translation without a phrase of {avoid}"
