"""Scores of a trained run on a split or on two files, saved beside the run."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.data import DataConfig
from transformer_mt.config.sections.decoding import SearchConfig
from transformer_mt.config.sections.section import SPLITS
from transformer_mt.config.sections.sources import SourceConfig, source_of_files
from transformer_mt.config.sections.tokenizer import language_of
from transformer_mt.data.corpus import Corpus, load_corpus
from transformer_mt.data.preparation import load_split
from transformer_mt.data.sources.files import read_line_blocks
from transformer_mt.data.sources.kinds import sources_of, those_of_pairs
from transformer_mt.decoding.ensemble import Ensemble
from transformer_mt.decoding.search.options import SearchOptions
from transformer_mt.decoding.translation import Translated
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.evaluation.directions import Directions
from transformer_mt.evaluation.metrics import Scores, check_bleu_tokenizer, score_texts
from transformer_mt.evaluation.nll import NllResult, batch_nlls, mean_nll, tokens_at_once
from transformer_mt.storage.checkpoint_files import full_name
from transformer_mt.storage.files import replace_file, writing
from transformer_mt.storage.run_folder import RunFolder

Row = dict[str, Any]  # a pair with its translation, see `evaluate`


@dataclass(frozen=True)
class Evaluation:
    """The scores, with all that they depend on. nll is the mean over the target tokens, in nats; nll and ppl leave out
    `num_too_long` pairs with a side that does not fit the model. The translation of `num_untranslated` sources is
    empty, because they do not fit. `decoding` holds the section's keys that change a translation. Of an ensemble `run`
    and `checkpoint` are the first, and `ensemble` holds the runs and checkpoints of all. `directions` has bleu, chrf,
    nll and num_sentences of each direction (`en-de`), where the pairs are of several. `split` is that of the run's
    config; nothing of files, and of another run's split.
    """

    run: str
    checkpoint: str
    ensemble: list[str]
    ensemble_mode: str
    source: list[str]
    num_sentences: int
    num_blank: int
    num_beyond: int
    num_too_long: int
    num_untranslated: int
    decoding: dict[str, Any]
    precision: str
    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    nll: float
    ppl: float
    seconds: float
    sentences_per_second: float
    directions: dict[str, dict[str, float]] = field(default_factory=dict)
    split: str = ""


@dataclass(frozen=True)
class SetFiles:
    """A file of sources, and one or more files of references. UserError where there is none of these."""

    src: Path
    refs: tuple[Path, ...]

    def __post_init__(self) -> None:
        if not self.refs:
            raise UserError(f"{self.src} has no references. Give ref (--ref FILE) a file of them, or several.")


@dataclass(frozen=True)
class Scoring:
    """The choices that change a score, apart from those of the search.

    `files` are test sets to take instead of a split of the config. `data_root` is the folder from which the relative
    paths of a split start now. `tokenizer` is that of BLEU, by default chosen by the target language. `data` is the
    section of another run, whose split is taken; None takes the run's own. Raises UserError for a tokenizer that
    sacreBLEU has not.
    """

    split: str = "test"
    files: tuple[SetFiles, ...] = ()
    data_root: str | None = None
    tokenizer: str | None = None
    lowercase: bool = False
    data: DataConfig | None = None

    def __post_init__(self) -> None:
        if self.tokenizer is not None:  # said now, and not after weights are read
            check_bleu_tokenizer(self.tokenizer)

    def over(self, config: RunConfig) -> RunConfig:
        """The config with the data that is scored."""
        data = self.data or config.data
        root = data.root if self.data_root is None else self.data_root
        return config.model_copy(update={"data": data.model_copy(update={"too_long": "filter", "root": root})})

    def sources(self, config: RunConfig) -> list[SourceConfig]:
        """The files, or the pairs that the config names for the split. UserError where it names nothing."""
        if self.files:
            return [source_of_files(one.src, one.refs[0]) for one in self.files]
        if self.split not in SPLITS:
            raise UserError(
                f"There is no split {self.split!r}. Use train, validation or test, or files: src and ref (--src FILE "
                "--ref FILE)."
            )
        sources = getattr(self.data or config.data, self.split)
        if not sources:
            raise UserError(
                f"The run's config names no {self.split} data. Use the split validation (--split validation), or "
                "files: src and ref (--src FILE --ref FILE)."
            )
        return those_of_pairs(sources)

    def description(self, config: RunConfig) -> str:
        """The sources in words. Raises UserError as `sources` does."""
        data = self.data or config.data
        names = ", ".join(source.description for source in sources_of(self.sources(config), data))
        return names if self.files else f"{self.split}, {names}"


def evaluate(
    translator: Translator,
    run: RunFolder,
    checkpoint: str,
    scoring: Scoring,
    options: SearchOptions,
    progress: Callable[[], object] = lambda: None,
) -> tuple[Evaluation, list[Row]]:
    """Translate every pair and score it; a sentence that is too long counts as an empty translation.

    `progress` is called for each sentence. A pair with a side that is blank or `is_beyond` is left out and counted.
    BLEU and chrF take all references, and nll the first. Returns the scores, and for each pair its place, texts and
    translation: `where`, and `source` (from 0) and `line` (from 1) as numbers; `src`, `ref`, `hypothesis`; `other_refs`
    where there are more references; and where the search is `scored`, `log_prob` and `num_tokens` (EOS counted).
    """
    config = scoring.over(translator.config)
    corpus = load_corpus(with_tags(scoring.sources(config), translator, options), config.data)
    directions = Directions.of(corpus, config.data)
    tokenizer = scoring.tokenizer or directions.bleu_tokenizer(config.data)
    others = _other_references(corpus, scoring.files)
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    split = load_split("evaluated", corpus, *tokenizers, config, "Evaluate on shorter ones.")
    pairs = list(corpus)
    translations, seconds = _translate([src for src, _ in pairs], translator, options, progress)
    hypotheses = [translated.text for translated in translations]
    # A model that was trained in lower case cannot write capitals; validation ignores case then, too.
    lowercase = scoring.lowercase or config.tokenizer.lowercase
    scores = score_texts(hypotheses, [ref for _, ref in pairs], tokenizer, lowercase, others)
    # The weights are packed in the translator's precision already: no autocast is needed.
    batches, of_batch = directions.plan(split, tokens_at_once(config))
    sums = batch_nlls(translator.search_model, split, batches, "fp32")
    nll = mean_nll(sums)
    mode = translator.model.mode if isinstance(translator.model, Ensemble) else ""
    members = translator.checkpoints if mode else []
    evaluation = Evaluation(
        run=str(run.path),
        checkpoint=checkpoint,
        ensemble=[f"{one.path.absolute()}, {full_name(one, taken.name)}" for one, taken in members],
        ensemble_mode=mode,
        source=corpus.descriptions,
        num_sentences=len(pairs),
        num_blank=corpus.num_blank,
        num_beyond=corpus.num_beyond,
        num_too_long=split.num_too_long - corpus.num_beyond,
        num_untranslated=sum(translated.too_long for translated in translations),
        decoding=options.as_saved,
        precision=translator.precision,
        **asdict(scores),
        nll=nll.nll,
        ppl=nll.ppl,
        seconds=seconds,
        sentences_per_second=len(pairs) / seconds,
        split="" if scoring.files or scoring.data else scoring.split,
    )
    if directions.are_several:
        references = [[ref for _, ref in pairs], *others]
        found = directions.scores(directions.of_row.tolist(), hypotheses, references, lowercase, scoring.tokenizer)
        evaluation = replace(evaluation, directions=_by_direction(found, directions.nlls(sums, of_batch)))
    return evaluation, _rows(corpus, translations, others, options)


def _rows(corpus: Corpus, translations: list[Translated], others: list[list[str]], options: SearchOptions) -> list[Row]:
    pairs: Any = corpus.dataset
    return [
        {"where": corpus.where(row), "source": pair["source"], "line": pair["line"]}
        | {"src": pair["src"], "ref": pair["tgt"], "hypothesis": translated.text}
        | ({"other_refs": [texts[row] for texts in others]} if others else {})
        | _said_of(translated, options)
        for row, (pair, translated) in enumerate(zip(pairs, translations, strict=True))
    ]


def with_tags(sources: list[SourceConfig], translator: Translator, options: SearchOptions) -> list[SourceConfig]:
    """The sources with the tag of the language that is asked for, where they have none. UserError where they have that
    of another, and a caller asks for this one.
    """
    tag = translator.languages.tag_of(options.to)
    is_given = options.to not in (None, translator.config.decoding.to)
    for source in sources:
        if is_given and language_of(source.tag) not in (None, options.to):
            raise UserError(
                f"to is {options.to}, and the pairs have a tag of their own, {source.tag}. Leave to (--to) out; it is "
                "for files of sources and references without tags (--src FILE --ref FILE)."
            )
    return [source.model_copy(update={"tag": tag}) if tag and source.tag is None else source for source in sources]


def _by_direction(scores: dict[str, tuple[Scores, int]], nlls: dict[str, NllResult]) -> dict[str, dict[str, float]]:
    """What an evaluation says of each direction."""
    return {
        name: {"num_sentences": number, "bleu": of.bleu, "chrf": of.chrf}
        | ({"nll": nlls[name].nll} if name in nlls else {})
        for name, (of, number) in scores.items()
    }


def _other_references(corpus: Corpus, files: tuple[SetFiles, ...]) -> list[list[str]]:
    """For each reference beyond the first, (pairs,) texts. UserError where a file has another number of lines, and
    where the test sets have unequal numbers of references.
    """
    numbers = {len(one.refs) for one in files} or {1}
    if len(numbers) > 1:
        raise UserError("The test sets have unequal numbers of references. Give each as many, or evaluate one by one.")
    found: list[list[str]] = []
    for number in range(1, max(numbers)):
        lines = [list(lines_of(one.refs[number])) for one in files]
        for one, source in zip(lines, corpus.sources, strict=True):
            if len(one) != (wanted := sum(len(block.lines) for block in source.blocks())):
                raise UserError(
                    f"A reference of {source.description} has {len(one):,} lines, not {wanted:,}. Line n of every file "
                    "must belong to the same sentence."
                )
        places = zip(corpus.dataset["source"], corpus.dataset["line"], strict=True)
        found.append([lines[source][line - 1] for source, line in places])
    return found


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file that a user names."""
    return (line for block in read_line_blocks(path.absolute()) for line in block)


def _said_of(translated: Translated, options: SearchOptions) -> dict[str, Any]:
    """What the model says of its translation, if it was asked and there is one."""
    if not options.scored or not translated.hypotheses:
        return {}
    first = translated.hypotheses[0]
    return {"log_prob": first.log_prob, "num_tokens": len(first.tokens) + 1}


def _translate(
    texts: list[str], translator: Translator, options: SearchOptions, progress: Callable[[], object]
) -> tuple[list[Translated], float]:
    """Their translations in their order, and the seconds that the search took."""
    start = time.perf_counter()
    return translator.translate_lines(texts, options, progress), time.perf_counter() - start


def evaluation_name(run: RunFolder, scoring: Scoring, evaluation: Evaluation) -> str:
    """A name that holds every choice that changes a score, so that no evaluation overwrites another."""
    data = scoring.split
    places = [path for one in scoring.files for path in (one.src, *one.refs)]
    places += [] if scoring.data_root is None else [Path(scoring.data_root)]
    if places:  # because many folders have a test.en
        # However a file is named, as `../test.en` or by a link, it is the same test set.
        key = _key("\n".join(str(path.resolve()) for path in places))
        data = f"{places[0].stem if scoring.files else data}-{key}"
    if scoring.data is not None:  # the split of that name is another run's
        data = f"{data}-{_key(scoring.data.model_dump_json())}"
    parts = [data, full_name(run, evaluation.checkpoint)]
    if evaluation.ensemble:
        key = _key("\n".join(evaluation.ensemble))
        parts.append(f"ensemble{len(evaluation.ensemble)}-{evaluation.ensemble_mode}-{key}")
    parts += [f"beam{evaluation.decoding['beam_size']}", *_search_parts(evaluation.decoding)]
    parts += [f"tok-{scoring.tokenizer}"] * (scoring.tokenizer is not None) + ["lc"] * scoring.lowercase
    parts += [evaluation.precision] * (evaluation.precision != "fp32")
    return "_".join(parts)


def _search_parts(decoding: dict[str, Any]) -> list[str]:
    """What is not as in most configs; of a greedy search without the keys of a beam."""
    default = SearchConfig().model_dump()
    beam_only = {"length_penalty", "length_norm", "patience"}
    parts = [f"lp{decoding['length_penalty']:g}"] * (decoding["beam_size"] > 1)
    for key, value in decoding.items():
        is_told = key in ("beam_size", "length_penalty") or (decoding["beam_size"] == 1 and key in beam_only)
        if value != default[key] and not is_told:
            short = f"{Path(value).stem}-{_key(value)}" if key in ("avoid", "glossary") else value
            parts.append(key.replace("_", "-") + ("" if value is True else f"-{short}"))
    return parts


def _key(text: str) -> str:
    """A few letters that stand for a text."""
    return hashlib.blake2b(text.encode(), digest_size=3).hexdigest()


def save_evaluation(run: RunFolder, scoring: Scoring, evaluation: Evaluation, rows: list[Row], what_stays: str) -> Path:
    """Write `evaluations/NAME.json`, and the translations beside it as `NAME.jsonl`; returns the first.

    Raises UserError where it cannot be written, which ends with `what_stays`: only the caller knows what becomes of the
    scores then.
    """
    path = run.evaluations / f"{evaluation_name(run, scoring, evaluation)}.json"
    with writing(path, what_stays):
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        replace_file(path.with_suffix(".jsonl"), "".join(lines))
        replace_file(path, json.dumps(asdict(evaluation), indent=1, ensure_ascii=False) + "\n")
    return path
