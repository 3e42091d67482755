"""`tmt test`."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_mt.cli.options import (
    RUNS,
    CheckpointsOption,
    DeviceOption,
    Models,
    RunsOption,
    chosen_runs,
    path_argument,
    path_option,
)
from transformer_mt.cli.synthesis.pairs import languages_of
from transformer_mt.cli.terminal import remark
from transformer_mt.cli.verb_options import with_options
from transformer_mt.config.switching_off import NONE
from transformer_mt.errors import UserError

if TYPE_CHECKING:
    from transformer_mt.decoding.search.options import SearchOptions
    from transformer_mt.decoding.translation import Translated
    from transformer_mt.decoding.translator import Translator


@with_options
def behaviour(
    run: Annotated[
        list[Path] | None, path_argument("The folder of a run, or of two to compare. Default: the newest in runs/.")
    ] = None,
    tests: Annotated[
        Path | None, path_option("A YAML file of expectations. Default: the built-in ones, for any languages.")
    ] = None,
    cases: Annotated[int, typer.Option(min=1, help="Cases of each expectation, at most, from the validation.")] = 100,
    examples: Annotated[int, typer.Option(min=0, help="Failures that are shown of each expectation.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    checkpoint: CheckpointsOption = None,
    data_root: Annotated[
        str | None, typer.Option(help="The folder of the validation files, where it is no longer data.root.")
    ] = None,
    device: DeviceOption = "auto",
    runs: RunsOption = RUNS,
    *,
    decoding: dict[str, Any],
) -> None:
    """Test how a run behaves: numbers, names and negation kept, small changes of a source without effect, and what a
    file says. With two runs, which of them passes more.

    The first run's validation split gives the sources. Exit status 1 where a minimum is not reached.
    """
    if decoding.get("constraints", NONE) != NONE:
        raise UserError("--constraints belongs to tmt translate: what is tested has none. Leave it out.")
    from transformer_mt.behaviour.expectations import BUILT_IN, VALIDATION, read_expectations
    from transformer_mt.behaviour.outcomes import outcomes
    from transformer_mt.behaviour.planning import all_read, plan, texts_of, validation_pairs
    from transformer_mt.behaviour.told import as_json, lines_about
    from transformer_mt.judging.languages import own_search

    expectations = BUILT_IN if tests is None else read_expectations(tests)
    each = _models(run, checkpoint, device, runs)
    searches = [own_search(one.config, decoding) if len(each) > 1 else decoding for one in each]
    options = [one.search_options(its_own) for one, its_own in zip(each, searches, strict=True)]
    translators = _loaded(each, decoding.get("precision"))
    config = translators[0].config
    needs_pairs = any(placed.expectation.sources == VALIDATION for placed in expectations)
    pairs = validation_pairs(config, data_root) if needs_pairs else []
    planned = plan(
        expectations,
        config,
        pairs,
        options[0].glossary,
        partial(all_read, translators),
        languages_of(config, options[0].to),
        cases,
    )
    texts = texts_of(planned)
    _refuse_other_readings(translators, options, texts)
    translations = [_translated(*one, texts) for one in zip(translators, options, strict=True)]
    found = outcomes(planned, translations)
    names = [f"{run.path}, {checkpoint.name}" for one in translators for run, checkpoint in one.checkpoints]
    for line in [as_json(found, names, examples)] if json else lines_about(found, names, examples):
        print(line)
    if not all(outcome.is_reached for outcome in found):
        sys.exit(1)


def _translated(translator: "Translator", options: "SearchOptions", texts: list[str]) -> "dict[str, Translated]":
    """The translation of each text, with a bar."""
    from tqdm import tqdm

    with tqdm(desc="Translating", total=len(texts), unit=" sentences", disable=None) as bar:
        return dict(zip(texts, translator.translate_lines(texts, options, bar.update), strict=True))


def _models(given: list[Path] | None, checkpoints: list[str] | None, device: str, runs: Path) -> list[Models]:
    """The run that is tested, or the two that are compared."""
    paths = [folder.path for folder in chosen_runs(given, runs)]
    if len(paths) > 2:
        raise UserError(f"{len(paths)} runs were given. Test one, or compare two.")
    return Models(None, checkpoints, None, device, runs).of_each(paths)


def _loaded(models: list[Models], precision: str | None) -> "list[Translator]":
    """A translator of each, which are to be of the same languages."""
    from transformer_mt.judging.languages import refuse_other_languages

    loaded = [one.load(precision) for one in models]
    for second in loaded[1:]:
        refuse_other_languages(loaded[0].config, second.config)
    for translator in loaded:
        if unused := translator.config.decoding.lines.unused:
            remark(unused)
    return loaded


def _refuse_other_readings(translators: "list[Translator]", options: "list[SearchOptions]", texts: list[str]) -> None:
    """UserError where two runs read something else in the texts, or write another language."""
    from transformer_mt.judging.languages import refuse_other_readings

    if len(translators) > 1:
        runs = zip(translators, (its_options.to for its_options in options), strict=True)
        words = (next(iter(text.split(maxsplit=1)), "") for text in texts)
        refuse_other_readings(runs, words, "sources of your own (--tests FILE)")
