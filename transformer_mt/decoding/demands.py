"""What a caller demands of translations, from text to tokens: prefixes, and phrases that none may hold."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import regex

from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.data.sources.files import read_lines
from transformer_mt.data.tokenizers import Tokenizer, normalize
from transformer_mt.data.word_splitting import is_of_spaced_word
from transformer_mt.decoding.search.rules import Demand
from transformer_mt.errors import UserError


@dataclass(frozen=True)
class SourceLine:
    """A text to translate. The translation begins with the words of `prefix`, if there are any.

    `place` says which line it is, counted from 0, and of a part of a line which part. Samples of equal texts at
    different places are different. Without a place it is the number of the text in the call.
    """

    text: str
    prefix: str = ""
    place: tuple[int, ...] = ()


def with_places(lines: Sequence[str | SourceLine], first: int = 0) -> list[SourceLine]:
    """The lines with their places, of which the first has the number `first`."""
    begun = [SourceLine(line) if isinstance(line, str) else line for line in lines]
    return [line if line.place else replace(line, place=(number,)) for number, line in enumerate(begun, start=first)]


def demanding(chunks: Iterable[Sequence[str]], prefix: str | None) -> Iterator[list[SourceLine]]:
    """The chunks of texts with the prefixes of their translations: the lines of a file, or with `tab` what stands
    behind the first tab of the text itself.

    Raises UserError where the file cannot be read, or has not a line for each text.
    """
    if prefix is None:
        yield from ([SourceLine(text) for text in chunk] for chunk in chunks)
    elif prefix == "tab":
        for chunk in chunks:
            yield [SourceLine(text, begun) for text, _, begun in (text.partition("\t") for text in chunk)]
    else:
        yield from _with_prefixes(chunks, Path(prefix))


def _with_prefixes(chunks: Iterable[Sequence[str]], path: Path) -> Iterator[list[SourceLine]]:
    prefixes = lines_named_by("--prefix", path)
    number = 0
    for chunk in chunks:
        begun = [prefix for _, prefix in islice(prefixes, len(chunk))]
        number += len(begun)
        if begun:
            yield [SourceLine(text, prefix) for text, prefix in zip(chunk, begun, strict=False)]
        if len(begun) < len(chunk):
            raise UserError(
                f"{path} ends after line {number}, and there are more texts to translate. Write a prefix for each, or "
                "a blank line."
            )
    if next(prefixes, None) is not None:
        raise UserError(f"{path} goes on after line {number}, where the texts to translate end. Check both.")


def lines_named_by(option: str, path: Path) -> Iterator[tuple[int, str]]:
    """`read_lines` of the file after this option. Raises UserError, which names the option, where there is none."""
    if not path.exists():
        raise UserError(f"There is no file {path}. Check the name after {option}.")
    return read_lines(path)


def list_of_texts(texts: Iterable[str], verb: str = "translate") -> list[str]:
    """The texts as a list. Raises UserError for a single text, and for items that are no texts."""
    return _checked(texts, str, verb)


def list_of_lines(texts: Iterable[str | SourceLine]) -> list[SourceLine]:
    """The texts as lines. Raises UserError for a single text, and for items that are neither text nor line."""
    lines = _checked(texts, (str, SourceLine), "translate")
    return [SourceLine(text) if isinstance(text, str) else text for text in lines]


def _checked(texts: Iterable, kinds: type | tuple[type, ...], verb: str) -> list:
    if isinstance(texts, str):
        raise UserError(f"{verb} takes a list of texts. Write {verb}([{texts!r}]).")
    if not isinstance(texts, Iterable):
        raise UserError(f"{verb} takes a list of texts, not what is of type {type(texts).__name__}. Give it a list.")
    texts = list(texts)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, kinds):
            raise UserError(f"Text {number} of {len(texts)} is of type {type(text).__name__}. Give it as str.")
    return texts


class CannotMeetError(Exception):
    """No translation can meet the demand of a line; the message says why, without the line's number."""


NO_DEMAND = Demand()


def demand_of(line: SourceLine, tokenizer: Tokenizer, limit: int) -> Demand:
    """The demand of a line as tokens; `limit` is the largest length of its translation, EOS counted. Raises
    CannotMeetError.
    """
    if not line.prefix.strip():
        return NO_DEMAND
    prefix = tokenizer.encode(line.prefix)
    if UNK_ID in prefix:
        unknown = ", ".join(tokenizer.unknown_words(line.prefix))
        raise CannotMeetError(f"the model cannot write these words of the prefix: {unknown}")
    if len(prefix) >= limit:
        raise CannotMeetError(f"the prefix has {len(prefix)} tokens, and the translation may have {limit - 1}")
    return Demand(tuple(prefix), is_of_spaced_word(line.prefix.rstrip()[-1]))


class AvoidedPhrases:
    """Words and phrases that no translation may hold. They are whole words, in upper and lower case as they stand."""

    def __init__(self, phrases: Iterable[str], tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._phrases = [normalize(phrase, tokenizer.lowercase) for phrase in phrases if phrase.strip()]
        self._pattern = regex.compile("|".join(map(_as_whole_words, self._phrases)))

    @classmethod
    def read(cls, path: Path, tokenizer: Tokenizer) -> "AvoidedPhrases":
        """One phrase a line. Raises UserError where the file cannot be read or has no phrase."""
        phrases = [line for _, line in lines_named_by("--avoid", path) if line.strip()]
        if not phrases:
            raise UserError(f"{path} holds no word or phrase to avoid. Write one a line, or leave out --avoid.")
        return cls(phrases, tokenizer)

    def is_in(self, tokens: list[int]) -> bool:
        """Whether the text of the tokens holds one of them."""
        return self.is_in_text(self._tokenizer.decode(tokens))

    def is_in_text(self, text: str) -> bool:
        """Whether a text holds one of them."""
        return self._pattern.search(text) is not None

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
