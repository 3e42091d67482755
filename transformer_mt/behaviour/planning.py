"""From expectations to cases: which sources are translated, and what must hold of each translation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from transformer_mt.behaviour.expectations import VALIDATION, Expectation, Placed
from transformer_mt.behaviour.kinds import KINDS, Case, Given, Material
from transformer_mt.behaviour.negation import negation_of
from transformer_mt.behaviour.perturbing import names_of
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.tokenizer import language_of
from transformer_mt.config.switching_off import named_by
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.sources.kinds import those_of_pairs
from transformer_mt.decoding.glossary import Glossary
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError

SEED = 1  # of the choice of sources and of the changes: each time, and for every run, the same cases


@dataclass(frozen=True)
class Planned:
    """The cases of an expectation; where there is none, `untested` says why."""

    placed: Placed
    cases: list[Case]
    untested: str = ""


def validation_pairs(config: RunConfig, data_root: str | None) -> list[tuple[str, str]]:
    """The pairs of the run's validation split. UserError where they cannot be read."""
    data = config.data
    changes = {"too_long": "filter", "root": data.root if data_root is None else data_root}
    return list(load_corpus(data.validation, data.model_copy(update=changes)))


def plan(
    expectations: Sequence[Placed],
    config: RunConfig,
    pairs: list[tuple[str, str]],
    glossary: str | None,
    fits: Callable[[str], bool],
    languages: tuple[str, str],
    num_cases: int,
) -> list[Planned]:
    """The cases of each expectation, at most `num_cases` from the validation pairs.

    `glossary` is that of the run's search. `fits`: whether a text is one that the models read. `languages` are those
    that are read and written where no tag of the validation says otherwise. Raises UserError for a source of a user
    that the models do not read, or that shows nothing of what is expected.
    """
    data = config.data
    is_tagged = any(language_of(source.tag) for source in those_of_pairs(data.validation))
    of_pairs = (data.src_lang, data.tgt_lang) if is_tagged else languages
    names = names_of(pairs)
    planned = []
    for placed in expectations:
        path = placed.expectation.glossary or glossary
        is_needed = KINDS[placed.expectation.kind].takes == "glossary"
        terms = _glossary(path, placed, config) if is_needed and path else None
        src, tgt = of_pairs if placed.expectation.sources == VALIDATION else languages
        material = Material((src, tgt), (negation_of(src), negation_of(tgt)), names, terms)
        lacking = KINDS[placed.expectation.kind].lacks(material)
        if lacking:
            planned.append(Planned(placed, [], lacking))
        elif placed.expectation.sources == VALIDATION:
            cases = _cases_of_pairs(placed.expectation, pairs, material, fits, num_cases)
            planned.append(Planned(placed, cases, "" if cases else KINDS[placed.expectation.kind].nothing))
        else:
            planned.append(Planned(placed, list(_cases_of_user(placed, material, fits))))
    return planned


def _glossary(path: str, placed: Placed, config: RunConfig) -> Glossary:
    """The terms of a file that the expectation names, or else the search."""
    is_own = placed.expectation.glossary is not None
    origin = f"glossary in {placed.where}" if is_own else named_by(config.decoding, "glossary", path)
    return Glossary.read(Path(path), config.tokenizer.lowercase, origin)


def _cases_of_pairs(
    expectation: Expectation,
    pairs: Sequence[tuple[str, str]],
    material: Material,
    fits: Callable[[str], bool],
    num_cases: int,
) -> list[Case]:
    """Cases from all over the pairs, none twice."""
    random = Random(f"{SEED} {expectation.kind}")
    cases: dict[str, Case] = {}
    (expected,) = expectation.expected_texts or [""]
    for place in random.sample(range(len(pairs)), len(pairs)):
        if len(cases) == num_cases:
            break
        case = KINDS[expectation.kind].make(Given(*pairs[place], expected, random, material))
        if case is not None and case.source not in cases and all(map(fits, _texts_of(case))):
            cases[case.source] = case
    return list(cases.values())


def _cases_of_user(placed: Placed, material: Material, fits: Callable[[str], bool]) -> Iterator[Case]:
    expectation = placed.expectation
    kind, random = KINDS[expectation.kind], Random(f"{SEED} {expectation.kind}")
    texts = expectation.expected_texts or [""]
    for number, source in enumerate(expectation.sources):
        case = kind.make(Given(source, None, texts[number % len(texts)], random, material))
        if case is None:
            raise UserError(f"{placed.where}: {source!r} has no {kind.missed}. Take it out, or change it.")
        for text in _texts_of(case):
            if not fits(text):
                raise UserError(
                    f"{placed.where}: {text!r} is blank, or longer than the model reads. Take it out, or shorten it."
                )
        yield case


def _texts_of(case: Case) -> list[str]:
    return [case.source] if case.beside is None else [case.source, case.beside]


def all_read(translators: Sequence[Translator], text: str) -> bool:
    """Whether a text has tokens, and no more than each model has positions."""
    each = ((len(one.src_tokenizer.encode(text)), one.config.model.max_len) for one in translators)
    return not is_beyond(text) and all(0 < number < positions for number, positions in each)


def texts_of(planned: Sequence[Planned]) -> list[str]:
    """Every text that is to be translated, once."""
    return list(dict.fromkeys(text for one in planned for case in one.cases for text in _texts_of(case)))
