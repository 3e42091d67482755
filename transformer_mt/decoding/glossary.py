"""Terms and their translations: where a source has a term as whole words, its line must have the translation."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from transformer_mt.data.tokenizers import normalize
from transformer_mt.data.word_splitting import has_word, is_of_spaced_word
from transformer_mt.decoding.demands import lines_named_by
from transformer_mt.errors import UserError

Alternatives = tuple[str, ...]
_COLUMNS = 2


class Glossary:
    """Terms of the source language in all their forms, and what they become. Upper and lower case are as they stand,
    unless the tokenizer is of lower case.
    """

    def __init__(self, entries: Iterable[tuple[Sequence[str], Alternatives]], lowercase: bool = False) -> None:
        """entries: the forms of a term, and its translations, any of which will do."""
        self._lowercase = lowercase
        self._translations = {
            normalize(form, lowercase): translations for forms, translations in entries for form in forms
        }
        self._lengths = sorted({len(form) for form in self._translations}, reverse=True)

    @classmethod
    def read(cls, path: Path, lowercase: bool = False, named_by: str = "--glossary") -> "Glossary":
        """A file with a term, a tab and its translation a line. A bar parts the forms of a term, and its translations.

        Raises UserError, by file and line, where a line has not two columns, a column is blank between bars, or a form
        stands there twice; and where the file cannot be read or holds no term.
        """
        entries: list[tuple[list[str], Alternatives]] = []
        line_of: dict[str, int] = {}
        for number, line in lines_named_by(named_by, path):
            if not line.strip():
                continue
            columns = line.split("\t")
            if len(columns) != _COLUMNS:
                raise UserError(
                    f"{path}, line {number} has {len(columns)} column{'s' * (len(columns) != 1)}. Write a term, a tab "
                    "and its translation."
                )
            forms, translations = ([part.strip() for part in column.split("|")] for column in columns)
            if not all(forms) or not all(translations):
                raise UserError(
                    f"{path}, line {number} has nothing for a term or a translation. Write a term, a tab and its "
                    "translation; a bar parts several forms."
                )
            for form in forms:
                known = line_of.setdefault(normalize(form, lowercase), number)
                if known != number:
                    raise UserError(
                        f"{path}, line {number} has the term {form}, and so has line {known}. Write it once, with a "
                        "bar between its translations."
                    )
            entries.append((forms, tuple(translations)))
        if not entries:
            raise UserError(f"{path} holds no term. Write a term, a tab and its translation a line.")
        return cls(entries, lowercase)

    def constraints_of(self, text: str, given: Sequence[str | Alternatives] = ()) -> tuple[Alternatives, ...]:
        """The translations of each term in the text, in its order: from the left, the longest term first, and none
        within another. A term is left out where one of the constraints that are `given` is among its translations;
        each of these stands for one term.
        """
        open_ones = [self._as_written((one,) if isinstance(one, str) else one) for one in given]
        found = []
        for translations in self._translations_in(normalize(text, self._lowercase)):
            same = next((one for one in open_ones if one & self._as_written(translations)), None)
            if same is None:
                found.append(translations)
            else:
                open_ones.remove(same)
        return tuple(found)

    def _as_written(self, phrases: Alternatives) -> set[str]:
        """The phrases as the model writes them: it knows no double spaces, and perhaps no upper case."""
        return {normalize(phrase, self._lowercase) for phrase in phrases}

    def _translations_in(self, text: str) -> Iterable[Alternatives]:
        start = 0
        while start < len(text):
            end = next((start + n for n in self._lengths if self._is_term(text, start, start + n)), None)
            if end is not None:
                yield self._translations[text[start:end]]
            start = end or start + 1

    def _is_term(self, text: str, start: int, end: int) -> bool:
        """Whether a term stands here as whole words."""
        if end > len(text) or text[start:end] not in self._translations:
            return False
        goes_back = start > 0 and is_of_spaced_word(text[start]) and has_word(text[start - 1])
        goes_on = end < len(text) and is_of_spaced_word(text[end - 1]) and has_word(text[end])
        return not goes_back and not goes_on
