"""A validation: nll and ppl of the validation split, BLEU and chrF of a fixed sample of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch

from transformer_mt.config.schema import RunConfig
from transformer_mt.data.noise.epoch_split import validated_split
from transformer_mt.data.noise.noise import mono_rows
from transformer_mt.data.preparation import TrainingData
from transformer_mt.data.sources.kinds import sources_of
from transformer_mt.decoding.fast_layers.search_precision import choose_search_precision
from transformer_mt.decoding.lines.target_language import TargetLanguages
from transformer_mt.decoding.phrase_lists import PhraseLists
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translator import Translator
from transformer_mt.diagnosing.output_figures import output_figures
from transformer_mt.errors import LineError, UserError
from transformer_mt.evaluation.directions import Directions
from transformer_mt.evaluation.metrics import HIGHER_IS_BETTER, score_texts
from transformer_mt.evaluation.nll import batch_nlls, mean_nll, tokens_at_once
from transformer_mt.machine.device import DTYPES
from transformer_mt.machine.world import ALONE, World, merge
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.resuming.training_state import TrainingState
from transformer_mt.training.stop_signals import StopRequestedError

T = TypeVar("T")
NUM_SHOWN = 5
TRANSLATION_METRICS = ("bleu", "chrf")


@dataclass(frozen=True)
class Sample:
    """One validation pair and the model's translation."""

    src: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class ValidationResult:
    """`metrics` has nll and ppl, and bleu and chrf where sentences were translated for them. Where the split has
    several directions, it has nll and bleu of each too: `nll/en-de`.

    Where the nll is not finite, nothing was translated: there are no samples, bleu and chrf. `outputs`: see
    `output_figures`.
    """

    metrics: dict[str, float]
    samples: list[Sample]
    outputs: dict[str, float] = field(default_factory=dict)


def validation_search(config: RunConfig) -> SearchOptions:
    """The search of a validation is greedy: quick, and enough to see which checkpoint is better."""
    return search_options(config.decoding, beam_size=1, scored=False)


def refuse_unread(config: RunConfig, data: TrainingData) -> None:
    """UserError where a validation would translate by a list that cannot be read, or a line that does not say to which
    of several languages, or names one that is not learned: now, rather than after the first epoch. So too where it
    would read lines without the tag that every line of the training has, and where a test could not be translated.
    """
    decoding = config.decoding
    PhraseLists(data.src_tokenizer, data.tgt_tokenizer, lambda key, _: f"decoding.{key}").read(decoding)
    languages = TargetLanguages.of(config)
    if not languages.names:
        return
    split = data.validation
    translated = np.flatnonzero(~mono_rows(split.corpus)[split.rows])
    for text in split.texts(translated.tolist())[0]:
        try:
            problem = languages.parted(text, decoding.to).problem
        except LineError as error:
            raise UserError(
                f"A validation translates, and in data.validation {text.strip()[:60]!r} does not begin with the tag of "
                f"a language that is learned: {', '.join(f'<2{name}>' for name in languages.names)}. Give its source "
                "such a tag, as those of data.train have, or set decoding.to."
            ) from error
        if problem:
            raise UserError(f"A line of data.validation cannot be translated: {problem}. Take it out.")
        if languages.default and not languages.typed(text).tag:
            tag = languages.tag_of(None)
            raise UserError(
                f"A source of data.validation has no tag, and every source of data.train has {tag}, so that "
                f"{text.strip()[:60]!r} would be read as no line of the training was. Give it tag: {tag}."
            )
    _refuse_unread_test(config, languages)


def _refuse_unread_test(config: RunConfig, languages: TargetLanguages) -> None:
    """UserError where a source of `data.test` does not say to which of several languages, as far as its tag and its
    first line tell: a file may hold tags itself.
    """
    for source in sources_of(config.data.test, config.data):
        tagged = source.tagged_stream() if source.files() else ()  # what is on the hub is not fetched for it
        first = next((pair.src for pair in tagged if pair.src.strip()), f"{source.config.tag or ''} ...")
        try:
            languages.parted(first, config.decoding.to)
        except LineError as error:
            raise UserError(
                f"data.test: {source.description} does not say to which language it is translated, and the model "
                f"learns {', '.join(languages.names)}. Give it a tag, such as tag: <2{languages.names[0]}>, set "
                "decoding.to, or train without it: data.test=[]."
            ) from error


class Validator:
    """Validates a model. It translates the same pairs of the validation split every time.

    Several processes divide batches and sentences among themselves, and all get the scores that one alone would get.
    """

    def __init__(self, config: RunConfig, data: TrainingData, precision: str, world: World = ALONE) -> None:
        self.config = config
        self.world = world
        self.data = data
        self.precision = precision
        self.split, rows = validated_split(data, config)
        order = rows[np.random.default_rng([config.seed, 0xB1E0]).permutation(len(rows))]
        self.num_scored = min(config.validation.num_translated, len(order))
        self.directions = Directions.of(data.validation.corpus, config.data)
        self.of_scored = self.directions.of_row[data.validation.rows[order[: self.num_scored]]].tolist()
        self.sources, self.references = data.validation.texts(order[: max(self.num_scored, NUM_SHOWN)].tolist())

    def validate(self, model: TranslationModel, between_batches: Callable[[], None]) -> ValidationResult:
        """Leaves the model in evaluation mode.

        `between_batches` may raise StopRequestedError to give the validation up; all processes then raise it.
        """
        model.eval()
        sums, of_batch = self._nlls(model, between_batches)
        nll = mean_nll(sums)
        metrics = {"nll": nll.nll, "ppl": nll.ppl}
        if not math.isfinite(nll.nll):  # the caller refuses it; such a model cannot translate
            return ValidationResult(metrics, [])
        hypotheses = self._translate(model, between_batches)
        if self.num_scored:
            scores = score_texts(
                hypotheses[: self.num_scored],
                self.references[: self.num_scored],
                self.directions.bleu_tokenizer(self.config.data),
                self.config.tokenizer.lowercase,
            )
            metrics |= {"bleu": scores.bleu, "chrf": scores.chrf}
        if self.directions.are_several:
            metrics |= self._by_direction(sums, of_batch, hypotheses)
        shown = zip(self.sources[:NUM_SHOWN], self.references, hypotheses, strict=False)
        outputs = output_figures(self.sources, self.references, hypotheses)
        return ValidationResult(metrics, [Sample(*texts) for texts in shown], outputs)

    def _by_direction(
        self, sums: list[tuple[float, int]], of_batch: list[int], hypotheses: list[str]
    ) -> dict[str, float]:
        """nll and bleu of each direction, of the latter those of which something was translated."""
        nlls = self.directions.nlls(sums, of_batch)
        lowercase = self.config.tokenizer.lowercase
        scores = self.directions.scores(self.of_scored, hypotheses, [self.references], lowercase)
        return {
            **{f"nll/{name}": nll.nll for name, nll in nlls.items()},
            **{f"bleu/{name}": of.bleu for name, (of, _) in scores.items()},
        }

    def _translate(self, model: TranslationModel, between_batches: Callable[[], None]) -> list[str]:
        if not self.sources:
            return []
        data = self.data
        translator = Translator(model, data.src_tokenizer, data.tgt_tokenizer, self.config, self.precision)
        options = validation_search(self.config)
        sources = self.world.share(self.sources)

        def translate() -> list[str]:
            return [translated.text for translated in translator.translate_lines(sources, options, between_batches)]

        return self._together(translate)

    def _nlls(
        self, model: TranslationModel, between_batches: Callable[[], None]
    ) -> tuple[list[tuple[float, int]], list[int]]:
        """The nll and target tokens of every batch of the split, and the direction of each."""
        split = self.split
        planned, of_batch = self.directions.plan(split, tokens_at_once(self.config))
        batches = self.world.share(planned)
        precision = self.precision if self.precision in DTYPES else "fp32"  # int8 is for weights laid out for a search
        return self._together(lambda: batch_nlls(model, split, batches, precision, between_batches)), of_batch

    def _together(self, work: Callable[[], list[T]]) -> list[T]:
        """Do the work on each process's share; return all results. StopRequestedError in one is raised in all."""
        try:
            part = work()
        except StopRequestedError:
            part = None
        parts = self.world.gather(part)
        done = [part for part in parts if part is not None]
        if len(done) < len(parts):
            raise StopRequestedError
        return merge(done)


def validation_precision(
    wanted: str, model: TranslationModel, state: TrainingState, device: torch.device, world: World
) -> str:
    """The precision of validations. `auto` is decided once a run, because a second measurement might differ."""
    if wanted != "auto":
        return choose_search_precision(wanted, device, model).value
    if not state.validation_precision:
        state.validation_precision = world.first(lambda: choose_search_precision(wanted, device, model).value)
    return state.validation_precision


def is_better(metric: str, now: dict[str, float], best: dict[str, float] | None) -> bool:
    """Whether the scores `now` beat `best`; anything beats None. Among equal scores the lower nll is better.

    Early on BLEU is 0 for a while: without the nll, patience would count that as no progress.
    """
    if best is None or metric not in best:
        return True
    if now[metric] == best[metric]:
        return now["nll"] < best["nll"]
    return (now[metric] > best[metric]) == HIGHER_IS_BETTER[metric]
