"""Raw text in, raw text out.

from transformer_mt import Translator
Translator.load("runs/quickstart").translate(["The cat sat"])
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_mt.config.schema import RunConfig
from transformer_mt.config.sections.tokenizer import language_of
from transformer_mt.config.special_ids import UNK_ID
from transformer_mt.config.switching_off import named_by
from transformer_mt.data.batches.batching import pad_sources
from transformer_mt.data.longest_line import is_beyond
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.beam_memory import refuse_what_never_fits
from transformer_mt.decoding.coverage import by_coverage
from transformer_mt.decoding.demands import (
    CannotMeetError,
    SourceLine,
    demand_of,
    list_of_lines,
    pairs_of_texts,
    problem_of,
    problem_of_blank,
    refuse_cut_picture,
    refuse_other_search,
    refuse_without_room,
    source_rows,
    with_places,
    without_avoided,
)
from transformer_mt.decoding.ensemble import EnsembleGraphs, decoder_of, members_of
from transformer_mt.decoding.evidence import Evidence, find_evidence
from transformer_mt.decoding.fast_layers.choose_passes import are_compiled
from transformer_mt.decoding.fast_layers.cuda_graphs import GraphedDecoders
from transformer_mt.decoding.fast_layers.find_kernels import compiled_passes
from transformer_mt.decoding.fast_layers.packed_weights import packed
from transformer_mt.decoding.fast_layers.search_precision import choose_search_precision
from transformer_mt.decoding.lines.in_pieces import InPieces
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.lines.target_language import TargetLanguages
from transformer_mt.decoding.load_ensemble import Paths, load_models
from transformer_mt.decoding.minimum_bayes_risk import most_useful
from transformer_mt.decoding.phrase_lists import PhraseLists
from transformer_mt.decoding.scoring import KILLED, Scored, Scorer, scoring_options
from transformer_mt.decoding.search.batch_search import batch_search
from transformer_mt.decoding.search.constrained_beam import Found
from transformer_mt.decoding.search.greedy import Hypothesis, StepFunction
from transformer_mt.decoding.search.options import SearchOptions, refuse_other_precision, search_options
from transformer_mt.decoding.search.rules import Demand, WordEdges
from transformer_mt.decoding.translation import Translated, Translation
from transformer_mt.machine.busy.giving_way import give_way
from transformer_mt.machine.cuda_graphs import CudaGraphs
from transformer_mt.machine.device import AS_ASKED, choose_device, set_up
from transformer_mt.machine.workers import Workers, compute_in_copies
from transformer_mt.model.interface import TranslationModel
from transformer_mt.storage.checkpoint_files import stale_average
from transformer_mt.storage.run_folder import RunFolder

SMALL_BATCH = 64  # sentences; a step of fewer takes nearly as long
SEARCHES_TO_AVOID = 20  # a phrase can be written in many ways by pieces of words; each search forbids those it met


class Translator:
    """A trained model, its two tokenizers and its search options."""

    def __init__(
        self,
        model: TranslationModel,
        src: Tokenizer,
        tgt: Tokenizer,
        config: RunConfig,
        precision: str = "fp32",
        graphs: GraphedDecoders | EnsembleGraphs | None = None,
    ) -> None:
        """`graphs` are those of the model's device. `load` makes them: a few batches alone would not repay them."""
        self.model = model
        self.device = next(model.parameters()).device
        self.search_model = packed(model, precision, for_graphs=graphs is not None)
        self.decoder: Callable[[TranslationModel, Tensor], StepFunction] = decoder_of
        self.graphs = graphs
        self.src_tokenizer = src
        self.tgt_tokenizer = tgt
        self.config = config
        self.precision = precision
        self.languages = TargetLanguages.of(config)
        self._workers = Workers("the search", KILLED)
        self.phrase_lists = PhraseLists(src, tgt, partial(named_by, config.decoding))
        self.checkpoints: list[tuple[RunFolder, Path]] = []  # where `load` had the weights from
        self.note = ""  # for a person, about the checkpoint and the precision that were taken

    @classmethod
    def load(
        cls,
        run: Paths,
        checkpoint: str | Sequence[str] | None = None,
        device: str = "auto",
        precision: str | None = None,
        ensemble_mode: str | None = None,
    ) -> "Translator":
        """The translator of a run's folder, or of several as an ensemble, which decodes as the first one's config says.

        checkpoint: `best`, `last`, `average` or `step_N`; by default best, else last; one for all runs, or one for
        each. Several of one run are an ensemble, too. precision: by default what the (first) run's config says under
        `decoding`. ensemble_mode: `linear` (the default) or `log_linear`, see `Ensemble`. Raises UserError where a
        folder or checkpoint is not there or damaged, and for runs that have not one vocabulary.
        """
        place = torch.device(choose_device(device).value)
        if place.type == "cpu":
            give_way(torch.get_num_threads())
            compute_in_copies()
        loaded = load_models(run, checkpoint, ensemble_mode)
        config, members = loaded.config, members_of(loaded.model)
        set_up(place)
        taken = choose_search_precision(precision or config.decoding.precision, place, loaded.model)
        graphs = None
        # Experts choose rows by their numbers, which no graph can do.
        if place.type == "cuda" and all(member.config.num_experts == 1 for member in members):
            of_each = [GraphedDecoders(partial(CudaGraphs, place)) for _ in members]
            graphs = EnsembleGraphs(of_each) if len(members) > 1 else of_each[0]
        translator = cls(loaded.model.to(place), loaded.src, loaded.tgt, config, taken.value, graphs)
        translator.checkpoints = loaded.checkpoints
        notes = [stale_average(folder, checkpoint) for folder, checkpoint in loaded.checkpoints]
        if taken.reason != AS_ASKED:
            notes.append(f"precision: {taken.value}, {taken.reason}")
        translator.note = "\n".join(filter(None, notes))
        return translator

    def keep_processes(self) -> AbstractContextManager[None]:
        """Inside `with translator.keep_processes():` the processes of a search on a CPU stay for the next call.

        From the second search of several batches on, each is about a tenth of a second faster. The processes take
        memory, and do not see later changes of the model, the tokenizers or this object.
        """
        return self._workers.keep()

    def translate(self, texts: Iterable[str | SourceLine], **changes: Any) -> list[str]:
        """One text for each text, in order; blank for a blank one and for one longer than the model's positions.

        changes: keys of the config's section `decoding`, such as beam_size=4. Raises UserError for a key that is none,
        and for a string, whose letters would be texts.
        """
        refuse_other_precision(self.precision, changes)
        options = search_options(self.config.decoding, **{"scored": False, **changes})
        return [translated.text for translated in self.translate_lines(texts, options)]

    def score(self, texts: Iterable[str], translations: Iterable[str], **changes: Any) -> list[Scored]:
        """What the model says of translations that are given, in order; see `Scored`.

        changes: keys of the config's section `decoding` that scoring obeys, such as length_penalty=1.0. Raises
        UserError for another key, for lists of unequal length, and as `translate` does.
        """
        refuse_other_precision(self.precision, changes)
        pairs = pairs_of_texts(texts, translations)
        return self.scorer.score(pairs, scoring_options(self.config.decoding, **changes))

    @cached_property
    def scorer(self) -> Scorer:
        """Scores what is given with the model, precision and device of the search."""
        return Scorer(self.search_model, self.src_tokenizer, self.tgt_tokenizer, self.languages)

    def translate_lines(
        self,
        texts: Iterable[str | SourceLine],
        options: SearchOptions | None = None,
        done: Callable[[], object] = lambda: None,
    ) -> list[Translated]:
        """All hypotheses of each text, in order. Sentences of similar length are decoded together. `done` is called for
        each, when it is done.

        A text that `is_beyond` has none, whatever the options say of texts that are too long.
        """
        lines = list_of_lines(texts)
        results: dict[int, Translated] = {}
        for index, translated in self._as_done(lines, options or search_options(self.config.decoding)):
            results[index] = translated
            done()
        return [results[index] for index in range(len(lines))]

    def _as_done(self, lines: list[SourceLine], options: SearchOptions) -> Iterator[tuple[int, Translated]]:
        """Pairs of place and result in the order in which they are done, batch by batch, long sentences first."""
        if options.is_sampling:
            lines = with_places(lines)
        beyond = {index for index, line in enumerate(lines) if is_beyond(line.text)}
        texts = ["" if i in beyond else line.text for i, line in enumerate(lines)]
        tagged = self.languages.all_parted(texts, options.to)
        ids = source_rows(lines, [one.whole for one in tagged], self.src_tokenizer, self.config.model)
        to_do: dict[int, Translated] = {}
        long: dict[int, Translated] = {}
        demands: dict[int, Demand] = {}
        for index, (line, row) in enumerate(zip(lines, ids, strict=True)):
            problem = tagged[index].problem or problem_of_blank(line)
            is_read = UNK_ID in row and not problem
            unknown = tuple(self.src_tokenizer.unknown_words(line.text)) if is_read else ()
            too_long = len(row) + 1 > self.config.model.max_len
            blank = Translated(line.text, [], too_long or index in beyond, unknown, problem)
            if too_long and options.too_long is TooLong.SPLIT and not blank.problem:
                long[index] = blank
            elif len(row) and not blank.problem and (not too_long or options.too_long is TooLong.TRUNCATE):
                ids[index] = row = row[: self.config.model.max_len - 1]
                try:
                    demands[index] = self._demand_of(line, row, too_long, options)
                except CannotMeetError as error:
                    yield index, replace(blank, problem=str(error))
                else:
                    to_do[index] = blank
            else:
                yield index, blank
        if long:
            in_pieces = InPieces(self.translate_lines, self.src_tokenizer, self.config.model.max_len, self.phrase_lists)
            yield from in_pieces.translated(long, lines, tagged, options)
        # Those that have constraints are apart from the others, which they would slow down; and so are those that need
        # a wider beam, since all sentences of a batch have as many places as the one with the most.
        by_width: dict[int, list[int]] = {}
        for index in sorted(to_do, key=lambda index: len(ids[index]), reverse=True):
            num_tokens = demands[index].tokens_of_constraints
            width = num_tokens and (options.num_rows if num_tokens < options.num_rows else 1 << num_tokens.bit_length())
            by_width.setdefault(width, []).append(index)
        alike = [some for _, some in sorted(by_width.items(), reverse=True)]
        batches = [batch for some in alike for batch in self._batches(some, options.batch_size)]
        sizes = [(len(b), max(options.num_rows, *(demands[i].tokens_of_constraints + 1 for i in b))) for b in batches]
        largest, num_rows = max(sizes, key=math.prod, default=(0, 0)), sum(map(math.prod, sizes))
        refuse_what_never_fits(*largest, self.tgt_tokenizer.vocab_size, options, self.device)
        compiled = are_compiled(self.search_model, len(batches), num_rows, self.device, self.precision)
        languages = [language_of(one.tag) or self.config.data.tgt_lang for one in tagged]
        jobs = [
            ([ids[i] for i in batch], options, [demands[i] for i in batch], [languages[i] for i in batch], compiled)
            for batch in batches
        ]
        with closing(self._workers.map(self._search_texts, jobs, self.device)) as results:
            for batch, result in zip(batches, results, strict=True):
                for index, (found, problem) in zip(batch, result, strict=True):
                    yield index, replace(to_do[index], hypotheses=found, problem=problem)

    def _demand_of(self, line: SourceLine, row: list[int], is_cut: bool, options: SearchOptions) -> Demand:
        """The demand of a line with these ids, which may be those of its beginning. Raises CannotMeetError."""
        limit = self._largest_length(row, options)
        if options.glossary is not None:
            refuse_cut_picture(is_cut, self.config.model)
            text = self.src_tokenizer.decode(row) if is_cut else line.text  # of a beginning only its own terms
            terms = self.phrase_lists.glossary(options.glossary).constraints_of(text, line.constraints)
            line = replace(line, constraints=(*line.constraints, *terms))
        demand = demand_of(line, self.tgt_tokenizer, limit)
        if options.is_sampling:
            demand = replace(demand, place=tuple(map(int, line.place)))  # of numpy's integers the sum overflows
        if options.avoid is not None:
            avoided = self.phrase_lists.avoided(options.avoid)
            demand = without_avoided(demand, avoided, options.avoid, self.tgt_tokenizer)
        if demand.constraints:
            refuse_other_search(options)
            refuse_without_room(demand, options.constraints == "ordered", self._edges, limit)
        return demand

    def _largest_length(self, row: list[int], options: SearchOptions) -> int:
        """Of a translation of a source of these ids, EOS counted."""
        return options.largest_length(len(row) + 1, self.config.model.max_len)

    def _batches(self, indices: list[int], size: int) -> list[list[int]]:
        """Batches of `size` at most, in order. On a CPU there is one for each core, unless they would be small; and
        where not all cores have as many, they share the last.
        """
        if self.device.type == "cpu":
            size = min(size, max(SMALL_BATCH, -(-len(indices) // torch.get_num_threads())))
        batches = [indices[start : start + size] for start in range(0, len(indices), size)]
        if self.device.type != "cpu" or len(batches) < 2 or len(batches) % torch.get_num_threads() == 0:
            return batches
        last = batches.pop()
        share = -(-len(last) // torch.get_num_threads())
        return [*batches, *(last[start : start + share] for start in range(0, len(last), share))]

    def search(self, rows: list[list[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        """Hypotheses of sources given as ids without EOS, decoded as one batch. Empty where none was found without a
        phrase of `options.avoid`.
        """
        return [found.hypotheses for found in self._find(rows, options, [Demand(place=(i,)) for i in range(len(rows))])]

    def _find(self, rows: list[list[int]], options: SearchOptions, demands: list[Demand]) -> list[Found]:
        """What a batch becomes, in which all have constraints or none has. What holds a phrase to avoid is searched
        again without the tokens by which it came to it.
        """
        demands = list(demands)
        found = self._search(rows, options, demands)
        if options.avoid is None:
            return found
        avoided = self.phrase_lists.avoided(options.avoid)
        for _ in range(SEARCHES_TO_AVOID):
            sequences = {
                i: {avoided.sequence_in(h.tokens) for h in one.hypotheses if avoided.is_in(h.tokens)}
                for i, one in enumerate(found)
            }
            again = [i for i, met in sequences.items() if met]
            if not again:
                return found
            for i in again:
                demands[i] = replace(demands[i], avoided=tuple({*demands[i].avoided, *sequences[i]}))
            results = self._search([rows[i] for i in again], options, [demands[i] for i in again])
            for i, result in zip(again, results, strict=True):
                found[i] = result
        return [Found([h for h in one.hypotheses if not avoided.is_in(h.tokens)], one.unmet) for one in found]

    def _search(self, rows: list[list[int]], options: SearchOptions, demands: list[Demand]) -> list[Found]:
        # Greedy search finds one hypothesis, and samples keep their order: there the penalty changes scores alone.
        is_ranked = options.num_rows > 1 and not options.keeps_order
        if not (options.coverage_penalty and (options.scored or is_ranked)):
            return self._by_log_prob(rows, options, demands)
        # Ranked is all that the beam has finished, or all samples.
        found = self._by_log_prob(rows, options.model_copy(update={"n_best": options.num_rows}), demands)
        ranked = by_coverage(self.search_model, rows, [one.hypotheses for one in found], options)
        return [Found(hypotheses, one.unmet) for hypotheses, one in zip(ranked, found, strict=True)]

    @torch.inference_mode()
    def _by_log_prob(self, rows: list[list[int]], options: SearchOptions, demands: list[Demand]) -> list[Found]:
        assert not self.model.training, "dropout would change the translations"
        src = pad_sources(rows).to(self.device)
        limits = [self._largest_length(row, options) for row in rows]
        is_bound = any(demand.constraints or demand.prefix for demand in demands)
        search = batch_search(options, limits, demands, self._edges if is_bound else WordEdges(), self.device)
        if self.graphs is None:
            return search.run(self.decoder(self.search_model, src))
        with self.graphs.lock:
            graphed = self.graphs.begin(self.search_model, src, max(limits), search.num_rows)
            return search.run(graphed or self.decoder(self.search_model, src))

    @cached_property
    def _edges(self) -> WordEdges:
        return WordEdges(self.tgt_tokenizer.ids_within_words(), self.tgt_tokenizer.ids_ending_within_words())

    def _search_texts(
        self, job: tuple[list[list[int]], SearchOptions, list[Demand], list[str], bool]
    ) -> list[tuple[list[Translation], str]]:
        """`search`, and the text of the ids that it finds: both are work for the process that searches. With it what
        could not be met, where it finds none.
        """
        rows, options, demands, languages, compiled = job
        with compiled_passes(compiled):
            outcomes = self._find(rows, options.of_search, demands)
        candidates = [found.hypotheses for found in outcomes]
        texts = [[self._to_text(hypothesis) for hypothesis in found] for found in candidates]
        if options.evidence:
            texts = self._with_evidence(rows, candidates, texts, options.batch_size)
        if options.mbr is not None:
            texts = [most_useful(found, options, to) for found, to in zip(texts, languages, strict=True)]
        problems = [
            problem_of(found, demand, options.avoid, self.tgt_tokenizer)
            for found, demand in zip(outcomes, demands, strict=True)
        ]
        return list(zip(texts, problems, strict=True))

    def _with_evidence(
        self, rows: list[list[int]], found: list[list[Hypothesis]], texts: list[list[Translation]], batch_size: int
    ) -> list[list[Translation]]:
        """The hypotheses of sources of these ids, as ids and as texts; `batch_size` of them are read together."""
        pairs = [(row, hypothesis.tokens) for row, of_row in zip(rows, found, strict=True) for hypothesis in of_row]
        flat = [translation.text for of_row in texts for translation in of_row]
        evidence: list[Evidence] = []
        for part in (slice(start, start + batch_size) for start in range(0, len(pairs), batch_size)):
            evidence += find_evidence(self.search_model, pairs[part], flat[part], self.tgt_tokenizer)
        of_each = iter(evidence)
        return [[replace(translation, evidence=(next(of_each),)) for translation in of_row] for of_row in texts]

    def _to_text(self, hypothesis: Hypothesis) -> Translation:
        return Translation(
            self.tgt_tokenizer.decode(hypothesis.tokens),
            hypothesis.score,
            hypothesis.log_prob,
            self.tgt_tokenizer.tokens(hypothesis.tokens),
        )
