"""The kinds of expectations: how each makes a case of a source, and what must hold of the translation."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import regex

from transformer_mt.behaviour.perturbing import (
    bare_end,
    has_name,
    other_name,
    other_number,
    value_of,
    with_double_space,
    without_stop,
)
from transformer_mt.checking.faults.pair_texts import numbers_of
from transformer_mt.data.word_splitting import has_word
from transformer_mt.decoding.glossary import Glossary

Negation = regex.Pattern[str] | None


class Case(NamedTuple):
    """A source to translate, and whether (its translation, that of `beside`) is right; `wanted` says it in words.

    `beside` is a source whose translation this one's is compared with, or None.
    """

    source: str
    wanted: str
    holds: Callable[[str, str], bool]
    beside: str | None = None


@dataclass(frozen=True)
class Material:
    """What is known of the languages and of the validation pairs, for the kinds that need it."""

    languages: tuple[str, str]
    negations: tuple[Negation, Negation]
    names: list[str]
    glossary: Glossary | None = None


class Given(NamedTuple):
    """A source, its reference where it has one, the text that is expected where one is, and dice of this case."""

    text: str
    reference: str | None
    expected: str
    random: Random
    material: Material


@dataclass(frozen=True)
class Kind:
    """A kind of expectation.

    `test` is its sort in CheckList (Ribeiro et al. 2020, section 2): `minimum` functionality, `invariance` or
    `directional`. `make` gives the case of a source, or None where the source shows nothing; `nothing` says so of all
    pairs, and `missed` is what a source without a reference then lacks.
    `lacks` says why such a test cannot be made at all, or nothing. `takes` is the key that it needs: `expected`,
    `glossary` or none. `needs_reference`: sources without one show nothing.
    """

    test: str
    make: Callable[[Given], Case | None]
    nothing: str
    takes: str = ""
    lacks: Callable[[Material], str] = lambda material: ""
    needs_reference: bool = False
    missed: str = ""


def _not_empty(given: Given) -> Case:
    return Case(given.text, "a letter or a digit", lambda output, _: has_word(output))


def _numbers_kept(given: Given) -> Case | None:
    made = other_number(given.text, given.reference, given.random)
    if made is None:
        return None
    new, old = value_of(made.new), value_of(made.old)

    def holds(output: str, _: str) -> bool:
        found = numbers_of(output)
        return new in found and old not in found

    return Case(made.text, f"the number {made.new}", holds)


def _names_kept(given: Given) -> Case | None:
    made = other_name(given.text, given.reference or "", given.material.names, given.random)
    if made is None:
        return None

    def holds(output: str, _: str) -> bool:
        return has_name(output, made.new) and not has_name(output, made.old)

    return Case(made.text, f"the name {made.new}", holds)


def _negation_kept(given: Given) -> Case | None:
    of_src, of_tgt = given.material.negations
    assert of_src is not None
    assert of_tgt is not None
    is_negated = of_src.search(given.text) and (given.reference is None or of_tgt.search(given.reference))
    return Case(given.text, "a negation", lambda output, _: of_tgt.search(output) is not None) if is_negated else None


def _ignores_case(given: Given) -> Case | None:
    text = given.text.lower()
    return None if text == given.text else _same(given.text, text, str.casefold, "upper and lower case apart")


def _ignores_full_stop(given: Given) -> Case | None:
    text = without_stop(given.text)
    return None if text is None else _same(given.text, text, bare_end, "its full stop apart")


def _ignores_spaces(given: Given) -> Case | None:
    text = with_double_space(given.text, given.random)
    return None if text is None else _same(given.text, text, _as_text, "")


def _same(source: str, changed: str, seen: Callable[[str], str], but: str) -> Case:
    """The translation of a changed source is that of the source, as far as `seen` sees."""
    wanted = f"the translation of {source!r}" + f", {but}" * bool(but)
    return Case(changed, wanted, lambda output, other: seen(output) == seen(other), source)


def _glossary(given: Given) -> Case | None:
    assert given.material.glossary is not None
    terms = given.material.glossary.constraints_of(given.text)
    wanted = " and ".join(" or ".join(term) for term in terms)
    return (
        Case(given.text, wanted, lambda output, _: all(any(_has(output, one) for one in term) for term in terms))
        if terms
        else None
    )


def _contains(given: Given) -> Case:
    return Case(given.text, f"text with {given.expected!r}", lambda output, _: _has(output, given.expected))


def _not_contains(given: Given) -> Case:
    return Case(given.text, f"text without {given.expected!r}", lambda output, _: not _has(output, given.expected))


def _equals(given: Given) -> Case:
    return Case(given.text, repr(given.expected), lambda output, _: _as_text(output) == _as_text(given.expected))


def _matches(given: Given) -> Case:
    pattern = regex.compile(given.expected)
    return Case(given.text, f"a match of {given.expected}", lambda output, _: pattern.search(output) is not None)


def _same_as(given: Given) -> Case:
    return _same(given.expected, given.text, _as_text, "")


def _as_text(text: str) -> str:
    """The text as it is compared: in one form of Unicode, white space at its ends apart."""
    return unicodedata.normalize("NFC", text).strip()


def _has(output: str, text: str) -> bool:
    return _as_text(text) in _as_text(output)


def _lacks_negation(material: Material) -> str:
    pairs = zip(material.languages, material.negations, strict=True)
    missing = [language for language, pattern in pairs if pattern is None]
    return f"there is no table of words that negate in {' and in '.join(missing)}" if missing else ""


def _lacks_names(material: Material) -> str:
    return "" if len(material.names) > 1 else "fewer than two names stand on both sides of the validation pairs"


def _lacks_glossary(material: Material) -> str:
    return "" if material.glossary else "the run has no decoding.glossary"


KINDS = {
    "not_empty": Kind("minimum", _not_empty, "there is no source"),
    "numbers_kept": Kind(
        "directional",
        _numbers_kept,
        "no number in digits stands on both sides of a pair",
        missed="number in digits that can be replaced (0 and 1 cannot)",
    ),
    "names_kept": Kind(
        "directional", _names_kept, "no name stands on both sides of a pair", lacks=_lacks_names, needs_reference=True
    ),
    "negation_kept": Kind(
        "minimum", _negation_kept, "no pair is negated on both sides", lacks=_lacks_negation, missed="word that negates"
    ),
    "ignores_case": Kind("invariance", _ignores_case, "no source has a capital letter", missed="capital letter"),
    "ignores_full_stop": Kind(
        "invariance", _ignores_full_stop, "no source ends in a full stop", missed="full stop at its end"
    ),
    "ignores_spaces": Kind("invariance", _ignores_spaces, "no source has a space", missed="space"),
    "glossary": Kind(
        "minimum",
        _glossary,
        "no source has a term of the glossary",
        "glossary",
        _lacks_glossary,
        missed="term of the glossary",
    ),
    "contains": Kind("minimum", _contains, "there is no source", "expected"),
    "not_contains": Kind("minimum", _not_contains, "there is no source", "expected"),
    "equals": Kind("minimum", _equals, "there is no source", "expected"),
    "matches": Kind("minimum", _matches, "there is no source", "expected"),
    "same_as": Kind("invariance", _same_as, "there is no source", "expected"),
}
