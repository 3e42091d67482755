"""Scores of a trained run on a split or on two files, saved beside the run."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from transformer_mt.config.files import replace_file
from transformer_mt.config.run_folder import RunFolder
from transformer_mt.config.schema import DecodingConfig, RunConfig, SourceConfig
from transformer_mt.data.corpus import load_corpus
from transformer_mt.data.preparation import load_split
from transformer_mt.data.sources import describe
from transformer_mt.decoding.checkpoint import averaged_steps
from transformer_mt.decoding.options import SearchOptions
from transformer_mt.decoding.translator import Translated, Translator
from transformer_mt.errors import UserError
from transformer_mt.evaluation.metrics import bleu_tokenizer, check_bleu_tokenizer, score_texts
from transformer_mt.evaluation.nll import split_nll


@dataclass(frozen=True)
class Evaluation:
    """What was scored, how, and the scores. nll and ppl are a target token, in nats, over the pairs that fit:
    `num_too_long` have a side that does not, `num_untranslated` a source that does not, whose translation is empty.
    """

    run: str
    checkpoint: str
    source: list[str]
    num_sentences: int
    num_blank: int
    num_too_long: int
    num_untranslated: int
    beam_size: int
    length_penalty: float
    length_norm: str
    allow_unk: bool
    max_length_ratio: float
    max_length_extra: int
    precision: str
    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    nll: float
    ppl: float
    seconds: float
    sentences_per_second: float


@dataclass(frozen=True)
class Scoring:
    """What is scored and how: every choice beside the search's that changes a score.

    `files` are sources and their references, instead of a split of the config, and `data_root` is where the relative
    paths of such a split start now. `tokenizer` is BLEU's, by default by the target language.
    """

    split: str = "test"
    files: tuple[Path, Path] | None = None
    data_root: str | None = None
    tokenizer: str | None = None
    lowercase: bool = False

    def sources(self, config: RunConfig) -> list[SourceConfig]:
        """The two files, or what the config names for the split. UserError where it names nothing."""
        if self.files is not None:
            # Paths that a user types start where the user stands, not at data.root.
            return [SourceConfig(src=str(self.files[0].absolute()), tgt=str(self.files[1].absolute()))]
        if self.split not in ("train", "validation", "test"):
            raise UserError(
                f"There is no split {self.split!r}. Use train, validation or test, or --src FILE --ref FILE."
            )
        sources = getattr(config.data, self.split)
        if not sources:
            raise UserError(
                f"The run's config names no {self.split} data. Use --split validation, or --src FILE --ref FILE."
            )
        return sources

    def description(self, config: RunConfig) -> str:
        """What is scored, in words. UserError as `sources` raises it."""
        names = ", ".join(describe(source) for source in self.sources(config))
        return names if self.files is not None else f"{self.split}, {names}"


def evaluate(
    translator: Translator,
    run: RunFolder,
    checkpoint: str,
    scoring: Scoring,
    options: SearchOptions,
    progress: Callable[[], object] = lambda: None,
) -> tuple[Evaluation, list[dict[str, str]]]:
    """Translate every pair and score it; a sentence that is too long counts as an empty translation.

    `progress` is called once a sentence done. A pair with a blank side is left out and counted. Returns the scores, and
    of each pair its place, texts and translation.
    """
    root = translator.config.data.root if scoring.data_root is None else scoring.data_root
    data = translator.config.data.model_copy(update={"too_long": "filter", "root": root})
    config = translator.config.model_copy(update={"data": data})
    tokenizer = scoring.tokenizer or bleu_tokenizer(data.tgt_lang)
    check_bleu_tokenizer(tokenizer)
    corpus = load_corpus(scoring.sources(config), data)
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    split = load_split("evaluated", corpus, *tokenizers, config, "Evaluate on shorter ones.")
    pairs = list(corpus)
    translations, seconds = _translate([src for src, _ in pairs], translator, options, progress)
    hypotheses = [translated.text for translated in translations]
    # A model that was taught in lower case cannot be asked for more: validation does not ask for it either.
    lowercase = scoring.lowercase or config.tokenizer.lowercase
    scores = score_texts(hypotheses, [ref for _, ref in pairs], tokenizer, lowercase)
    # Its weights are packed in the translator's precision, and need no other arithmetic.
    nll = split_nll(translator.search_model, split, config.training.max_tokens, "fp32")
    evaluation = Evaluation(
        run=str(run.path),
        checkpoint=checkpoint,
        source=corpus.descriptions,
        num_sentences=len(pairs),
        num_blank=corpus.num_blank,
        num_too_long=split.num_too_long,
        num_untranslated=sum(translated.too_long for translated in translations),
        beam_size=options.beam_size,
        length_penalty=options.norm.alpha,
        length_norm=options.norm.kind,
        allow_unk=options.allow_unk,
        max_length_ratio=options.max_length_ratio,
        max_length_extra=options.max_length_extra,
        precision=translator.precision,
        **asdict(scores),
        nll=nll.nll,
        ppl=nll.ppl,
        seconds=seconds,
        sentences_per_second=len(pairs) / seconds,
    )
    rows = [
        {"where": corpus.where(row), "src": src, "ref": ref, "hypothesis": hypothesis}
        for row, ((src, ref), hypothesis) in enumerate(zip(pairs, hypotheses, strict=True))
    ]
    return evaluation, rows


def _translate(
    texts: list[str], translator: Translator, options: SearchOptions, progress: Callable[[], object]
) -> tuple[list[Translated], float]:
    """Their translations in their order, and the seconds that the search took."""
    done: dict[int, Translated] = {}
    start = time.perf_counter()
    for index, translated in translator.translate_as_done(texts, options):
        done[index] = translated
        progress()
    return [done[index] for index in range(len(texts))], time.perf_counter() - start


def evaluation_name(run: RunFolder, scoring: Scoring, evaluation: Evaluation) -> str:
    """A name with every choice that changes a score, so that one evaluation does not take another's place."""
    data = scoring.split
    places = scoring.files or ([] if scoring.data_root is None else [Path(scoring.data_root)])
    if places:  # many folders have a test.en
        key = hashlib.blake2b("\n".join(str(path.absolute()) for path in places).encode(), digest_size=3).hexdigest()
        data = f"{data if scoring.files is None else places[0].stem}-{key}"
    checkpoint = evaluation.checkpoint
    if checkpoint == run.average.name:
        steps = averaged_steps(run)
        checkpoint = f"{checkpoint}{len(steps)}_to_{steps[-1]}"
    parts = [data, checkpoint, f"beam{evaluation.beam_size}"]
    parts += [f"lp{evaluation.length_penalty:g}"] * (evaluation.beam_size > 1)
    default = DecodingConfig()  # what is as in most configs goes without saying
    parts += [evaluation.length_norm] * (evaluation.beam_size > 1 and evaluation.length_norm != default.length_norm)
    parts += ["unk"] * evaluation.allow_unk
    longest = evaluation.max_length_ratio, evaluation.max_length_extra
    if longest != (default.max_length_ratio, default.max_length_extra):
        parts.append(f"max{longest[0]:g}x+{longest[1]}")
    parts += [f"tok-{scoring.tokenizer}"] * (scoring.tokenizer is not None) + ["lc"] * scoring.lowercase
    parts += [evaluation.precision] * (evaluation.precision != "fp32")
    return "_".join(parts)


def save_evaluation(run: RunFolder, scoring: Scoring, evaluation: Evaluation, rows: list[dict[str, str]]) -> Path:
    """Write `evaluations/NAME.json`, and the translations beside it as `NAME.jsonl`; returns the first.

    Raises UserError where it cannot be written.
    """
    path = run.evaluations / f"{evaluation_name(run, scoring, evaluation)}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        replace_file(path.with_suffix(".jsonl"), "".join(lines))
        replace_file(path, json.dumps(asdict(evaluation), indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}. The scores above are whole; to have them saved, see "
            "to that place and evaluate again."
        ) from error
    return path
