"""What is judged: the translations that runs make of the test sets, and finished ones out of files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.decoding import search_in_words
from transformer_mt.data.bleu_tokenizers import bleu_tokenizer
from transformer_mt.data.sources.kinds import those_of_pairs
from transformer_mt.decoding.search.options import search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.evaluation.evaluate import Evaluation, Row, Scoring, evaluate, save_evaluation, with_tags
from transformer_mt.evaluation.metrics import check_bleu_tokenizer
from transformer_mt.judging.languages import refuse_other_languages
from transformer_mt.judging.scored_set import Output, ScoredSet, distinct_names, normalized, read_lines, refuse_unequal
from transformer_mt.plurals import counted

STAYS = "They are judged all the same; to have them saved, see to that place and evaluate again."
LEAST_CERTAIN = -1e9  # of a sentence without a translation


@dataclass(frozen=True)
class RunSystem:
    """What a run, or an ensemble of several, made of the test sets, each in its language of `languages`; `saved` says
    where that lies, or why not.
    """

    name: str
    config: RunConfig
    evaluation: Evaluation
    rows: list[Row]
    languages: list[str]
    saved: str

    @property
    def note(self) -> str:
        """Of which checkpoint, and by which search, the translations are."""
        parts = [f"{len(self.evaluation.ensemble)} models as an ensemble"] if self.evaluation.ensemble else []
        parts += [self.evaluation.checkpoint, search_in_words(self.evaluation.decoding)]
        several = " over all sets" if len(self.evaluation.source) > 1 else ""
        return ", ".join([*parts, self.evaluation.precision, f"nll {self.evaluation.nll:.4f}{several}"])


def translate_and_save(
    translator: Translator, scoring: Scoring, changes: dict[str, Any], progress: Callable[[], object]
) -> RunSystem:
    """Translate the test sets with the model's own score of each translation, and save that beside the (first) run.
    What cannot be saved can be judged.
    """
    run, checkpoint = translator.checkpoints[0]
    options = search_options(translator.config.decoding, **changes)
    evaluation, rows = evaluate(translator, run, checkpoint.name, scoring, options, progress)
    try:
        saved = f"saved: {save_evaluation(run, scoring, evaluation, rows, STAYS)}"
    except UserError as error:
        saved = f"the translations of {run.path} are not saved. {error}"
    data = scoring.over(translator.config).data
    sources = with_tags(scoring.sources(translator.config), translator, options)
    languages = [data.languages_of(source)[1] for source in sources]
    return RunSystem(str(run.path), translator.config, evaluation, rows, languages, saved)


def scoring_of_second(first: RunConfig, second: RunConfig, scoring: Scoring) -> Scoring:
    """How the second run is scored: on the first one's data. UserError where they translate other languages."""
    refuse_other_languages(first, second)
    if scoring.files:
        return scoring
    others = scoring.sources(first)  # which says so where there is no such split
    own = those_of_pairs(getattr(second.data, scoring.split))
    its_own, wanted = (own, second.data.root, second.data.columns), (others, first.data.root, first.data.columns)
    return scoring if its_own == wanted else replace(scoring, data=first.data)


def sets_of_runs(runs: Sequence[RunSystem], scoring: Scoring) -> list[ScoredSet]:
    """The test sets of runs that translated the same pairs: one for each source of the split or each pair of files."""
    rows = [run.rows for run in runs]
    pairs = [[(row["where"], row["ref"]) for row in some] for some in rows]  # a source may have a tag before it in one
    assert all(some == pairs[0] for some in pairs), "both runs translate the same text"
    names = distinct_names([run.name for run in runs])
    found = []
    for number, name in enumerate(runs[0].evaluation.source):
        places = [place for place, row in enumerate(rows[0]) if row["source"] == number]
        own = [rows[0][place] for place in places]
        outputs = [
            output_of(called, run, [some[place] for place in places])
            for called, run, some in zip(names, runs, rows, strict=True)
        ]
        if not own:  # all of it was left out
            continue
        references = [
            [row["ref"] for row in own],
            *map(list, zip(*(row.get("other_refs", ()) for row in own), strict=True)),
        ]
        found.append(
            ScoredSet(
                _name_of(scoring, number, name),
                normalized([row["src"] for row in own]),
                [normalized(texts) for texts in references],
                [row["where"] for row in own],
                outputs,
                _remarks(runs),
                runs[0].languages[number],
            )
        )
    return found


def _name_of(scoring: Scoring, number: int, name: str) -> str:
    """The files as a user named them, or the split and its source."""
    if scoring.files:
        one = scoring.files[number]
        return " / ".join(str(path) for path in (one.src, *one.refs))
    return f"{scoring.split}, {name}"


def output_of(name: str, run: RunSystem, rows: Sequence[Row]) -> Output:
    """The translations of these rows, with the mean log-probability of a token of each."""
    certainty = [row["log_prob"] / row["num_tokens"] if "log_prob" in row else LEAST_CERTAIN for row in rows]
    return Output(name, normalized([row["hypothesis"] for row in rows]), certainty, run.note)


def _remarks(runs: Sequence[RunSystem]) -> list[str]:
    """What was left out, over all test sets of a command."""
    first = runs[0].evaluation
    remarks = [f"left out: {counted(first.num_blank, 'pair')} with a blank side"] if first.num_blank else []
    remarks += (
        [f"left out: {counted(first.num_beyond, 'pair')} with a line that is too long"] if first.num_beyond else []
    )
    for run in runs:
        if number := run.evaluation.num_untranslated:
            remarks.append(
                f"translated as nothing: {counted(number, 'source')} longer than the {run.config.model.max_len} "
                f"positions of {run.name}"
            )
    return remarks


def with_file(test_set: ScoredSet, run: RunSystem, path: Path, ref: Path, is_first: bool) -> ScoredSet:
    """The test set of a run with the finished translations of the same lines beside it."""
    lines = read_lines(path)
    refuse_unequal([(str(ref), len(read_lines(ref))), (str(path), len(lines))])
    output = Output(str(path), normalized([lines[row["line"] - 1] for row in run.rows]))
    outputs = [output, *test_set.outputs] if is_first else [*test_set.outputs, output]
    return replace(test_set, outputs=outputs)


def tokenizer_of_files(asked: str | None, ref: Path) -> str:
    """BLEU's tokenizer for files, which no config says the language of: as asked, or by the name's ending, such as
    `test.zh` or `test.zh.gz`. UserError where sacreBLEU has it not.
    """
    suffixes = [suffix.lstrip(".") for suffix in ref.suffixes if suffix not in (".gz", ".bz2", ".xz")]
    tokenizer = asked or bleu_tokenizer(suffixes[-1] if suffixes else "")
    check_bleu_tokenizer(tokenizer)
    return tokenizer
