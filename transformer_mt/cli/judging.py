"""`tmt evaluate` where translations are judged: two systems compared, a report, several references or test sets."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer_mt.cli.options import Models
from transformer_mt.cli.report_files import refuse_place, write_page
from transformer_mt.cli.terminal import remark
from transformer_mt.config.switching_off import option_of
from transformer_mt.errors import UserError
from transformer_mt.paths import exists, is_dir, user_path

if TYPE_CHECKING:
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.evaluation.evaluate import Scoring, SetFiles
    from transformer_mt.judging.judgement import Judgement
    from transformer_mt.judging.systems import RunSystem


class Asked(NamedTuple):
    """The options of `tmt evaluate`, as they were given."""

    compare: tuple[str, str] | None
    html: Path | None
    models: Models
    split: str | None
    src: list[Path] | None
    ref: list[Path] | None
    bleu_tokenize: str | None
    lowercase: bool
    data_root: str | None
    decoding: dict[str, Any]


class Judged(NamedTuple):
    """What was found out about each test set, and the settings that differ between two runs."""

    judgements: "list[Judgement]"
    settings: dict[str, list[str]] | None = None


def judge(asked: Asked) -> None:
    """Translate what runs are to translate, judge it, write the report, and print the scores."""
    systems = [user_path(path) for path in asked.compare] if asked.compare else []
    if asked.compare and (asked.models.run or asked.models.ensemble_mode):
        raise UserError("--compare names what is compared. Leave out --run and --ensemble-mode.")
    if asked.html is not None:
        refuse_place(asked.html, "--html", [*systems, *(asked.src or []), *(asked.ref or [])])
    for path in systems:
        if not exists(path):
            raise UserError(f"There is no {path}. Compare runs, or files of finished translations.")
    is_run = [is_dir(path) for path in systems]
    are_files = bool(systems) and not any(is_run)
    judged = _judged_files(asked, systems) if are_files else _judged_runs(asked, systems, is_run)
    try:
        if asked.html is not None:
            from transformer_mt.judging.report_page import report_page

            write_page(asked.html, "--html", report_page(judged.judgements, judged.settings), "report")
    finally:
        _print(judged.judgements)


def _judged_files(asked: Asked, paths: list[Path]) -> Judged:
    """Two files of finished translations."""
    from transformer_mt.judging.judgement import judge_set
    from transformer_mt.judging.scored_set import set_of_files
    from transformer_mt.judging.systems import tokenizer_of_files

    given = {"--checkpoint": asked.models.checkpoint, "--split": asked.split, "--data-root": asked.data_root}
    given["--device"] = None if asked.models.device == "auto" else asked.models.device
    given |= {option_of(name): value for name, value in asked.decoding.items()}
    for option, value in given.items():
        if value is not None and value != []:
            raise UserError(f"{option} is for runs, and {paths[0]} is a file of finished translations. Leave it out.")
    if not asked.ref:
        raise UserError(f"{paths[0]} is a file of finished translations. Give the references with --ref FILE.")
    if asked.src and len(asked.src) > 1:
        raise UserError("Finished translations are of one test set. Give --src once, or compare set by set.")
    test_set = set_of_files(asked.src[0] if asked.src else None, asked.ref, paths)
    tokenizer = tokenizer_of_files(asked.bleu_tokenize, asked.ref[0])
    return Judged([judge_set(test_set, tokenizer, asked.lowercase)])


def _judged_runs(asked: Asked, systems: list[Path], is_run: list[bool]) -> Judged:
    """One or two runs, or a run and a file of finished translations."""
    from transformer_mt.data.bleu_tokenizers import bleu_tokenizer
    from transformer_mt.evaluation.evaluate import Scoring
    from transformer_mt.judging.judgement import judge_set
    from transformer_mt.judging.settings import differing_settings
    from transformer_mt.judging.systems import sets_of_runs, with_file

    files = _test_files(asked.src or [], asked.ref or [])
    scoring = Scoring(asked.split or "test", files, asked.data_root, asked.bleu_tokenize, asked.lowercase)
    is_mixed = bool(systems) and not all(is_run)
    if is_mixed and len(files) != 1:
        raise UserError("One of both is a file of finished translations. Say of what: --src FILE --ref FILE.")
    made = _translated(asked, [path for path, run in zip(systems, is_run, strict=True) if run], scoring)
    # A model that was trained in lower case cannot write capitals.
    lowercase = asked.lowercase or any(system.config.tokenizer.lowercase for system in made)
    sets = sets_of_runs(made, scoring)
    if is_mixed:
        other = systems[is_run.index(False)]
        sets = [with_file(one, made[0], other, files[0].refs[0], is_run.index(False) == 0) for one in sets]
    frequencies = cache(lambda: _frequencies(made[0], lowercase))  # read once, and only for a report
    settings = differing_settings([one.config for one in made]) if len(made) > 1 else None
    each = [asked.bleu_tokenize or bleu_tokenizer(one.language) for one in sets]
    judged = [judge_set(one, tokenizer, lowercase, frequencies) for one, tokenizer in zip(sets, each, strict=True)]
    return Judged(judged, settings)


def _frequencies(system: "RunSystem", lowercase: bool) -> Any:
    """How often words come in the training data; None, and a remark, where that cannot be read any more."""
    from transformer_mt.judging.words import frequencies_of_training

    try:
        return frequencies_of_training(system.config, lowercase)
    except UserError as error:
        remark(f"rarity of words: counted in the references, because the training data cannot be read. {error}")
        return None


def _test_files(src: list[Path], ref: list[Path]) -> "tuple[SetFiles, ...]":
    """The files of each test set: as many references for each source, in their order."""
    from transformer_mt.evaluation.evaluate import SetFiles

    if bool(src) != bool(ref):
        raise UserError("--src and --ref go together. Give both, or neither for a split.")
    if not src:
        return ()
    each, over = divmod(len(ref), len(src))
    if over or not each:
        raise UserError(
            f"There are {len(src)} files of sources and {len(ref)} of references. Give each source as many references."
        )
    return tuple(SetFiles(one, tuple(ref[each * i : each * (i + 1)])) for i, one in enumerate(src))


def _translated(asked: Asked, paths: list[Path], scoring: "Scoring") -> "list[RunSystem]":
    """What each run makes of the test sets; saved as soon as it is there, where its folder can be written."""
    from tqdm import tqdm

    from transformer_mt.judging.systems import scoring_of_second, translate_and_save

    made: list[RunSystem] = []
    # All are loaded, and their languages compared, before hours of work.
    loaded = _translators(asked, paths)
    (first, _), *others = loaded
    each = [scoring, *(scoring_of_second(first.config, other.config, scoring) for other, _ in others)]
    if others:
        _refuse_other_readings(loaded, scoring)
    remark(f"scored: {scoring.description(first.config)}")
    for (translator, decoding), its_scoring in zip(loaded, each, strict=True):
        with tqdm(desc="Translating", unit=" sentences", disable=None) as bar:
            made.append(translate_and_save(translator, its_scoring, decoding, bar.update))
        remark(made[-1].saved)
    return made


def _refuse_other_readings(loaded: "list[tuple[Translator, dict[str, Any]]]", scoring: "Scoring") -> None:
    """UserError where the two runs read something else in the sources, or write another language."""
    from transformer_mt.decoding.search.options import search_options
    from transformer_mt.evaluation.evaluate import lines_of
    from transformer_mt.judging.languages import refuse_other_readings

    runs = [(one, search_options(one.config.decoding, **decoding).to) for one, decoding in loaded]
    lines = (line for one in scoring.files for line in lines_of(one.src) if line.strip())
    words = (line.split(maxsplit=1)[0] for line in lines)
    tags = (source.tag or "" for source in scoring.sources(loaded[0][0].config))
    refuse_other_readings(runs, words if scoring.files else tags, "--src FILE --ref FILE")


def _translators(asked: Asked, paths: list[Path]) -> "list[tuple[Translator, dict[str, Any]]]":
    """A translator of each run of --compare, else the one of --run, which may be an ensemble; with its search."""
    from transformer_mt.judging.languages import own_search
    from transformer_mt.storage.run_folder import newest_run

    models = asked.models
    if asked.compare:
        each = models.of_each(paths)
    else:
        each = [replace(models, run=models.run or [newest_run(models.runs).path])]  # named below
    decoding = [own_search(one.config, asked.decoding) if len(each) > 1 else asked.decoding for one in each]
    for one, its_decoding in zip(each, decoding, strict=True):
        one.search_options(its_decoding)  # refused before weights are read
    loaded = [one.load(asked.decoding.get("precision")) for one in each]
    for translator in loaded:
        for run, checkpoint in translator.checkpoints:
            remark(f"run: {run.path}, checkpoint: {checkpoint.name}")
        if unused := translator.config.decoding.lines.unused:
            remark(unused)
    return list(zip(loaded, decoding, strict=True))


def _print(judgements: "list[Judgement]") -> None:
    from transformer_mt.judging.told import lines_about

    for number, judgement in enumerate(judgements):
        print("\n" * (number > 0) + "\n".join(lines_about(judgement)))
