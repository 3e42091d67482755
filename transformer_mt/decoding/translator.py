"""Raw text in, raw text out.

from transformer_mt import Translator
Translator.load("runs/quickstart").translate(["The cat sat"])
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from transformer_mt.config.run_folder import open_run
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.special_ids import EOS_ID
from transformer_mt.data.batching import pad_rows
from transformer_mt.data.tokenizers import Tokenizer
from transformer_mt.decoding.beam import beam_search
from transformer_mt.decoding.checkpoint import load_run, stale_average
from transformer_mt.decoding.graphs import CudaGraphs, GraphedDecoders
from transformer_mt.decoding.options import SearchOptions, search_options
from transformer_mt.decoding.packed import find_packing, packed
from transformer_mt.decoding.precision import choose_search_precision
from transformer_mt.decoding.search import Hypothesis, StepFunction, greedy_search
from transformer_mt.decoding.splitting import TooLong, join_texts, split_text
from transformer_mt.errors import UserError
from transformer_mt.machine.device import AS_ASKED, choose_device, set_up
from transformer_mt.machine.memory import gibibytes, memory_of_machine
from transformer_mt.machine.workers import Workers
from transformer_mt.model.cache import DecoderCache
from transformer_mt.model.interface import TranslationModel

_BYTES_OF_LOGIT = 4
KILLED = "Take a smaller --batch-size, or fewer processes with OMP_NUM_THREADS=1."  # what to do where one of them is


@dataclass(frozen=True)
class Translation:
    """One hypothesis as text. `log_prob` sums over `tokens` and EOS; `score` is that divided by the length norm."""

    text: str
    score: float
    log_prob: float
    tokens: list[str]


@dataclass(frozen=True)
class Translated:
    """A source line and its hypotheses, best first: none for a blank line, and for a `too_long` one left blank."""

    source: str
    hypotheses: list[Translation]
    too_long: bool = False

    @property
    def text(self) -> str:
        """The best hypothesis, or nothing."""
        return self.hypotheses[0].text if self.hypotheses else ""


class ModelDecoder:
    """A model and the cache of one batch, as the step function that search asks for."""

    def __init__(self, model: TranslationModel, src: Tensor) -> None:
        self.model = model
        self.cache: DecoderCache = model.start(src)

    def step(self, tokens: Tensor) -> Tensor:
        return self.model.decode_step(tokens, self.cache)

    def reorder(self, index: Tensor, sentences: Tensor | None = None) -> None:
        self.cache.reorder(index, sentences)


def list_of_texts(texts: Iterable[str]) -> list[str]:
    """UserError where it is a single text, or holds what is none."""
    if isinstance(texts, str):
        raise UserError(f"translate takes a list of texts. Write translate([{texts!r}]).")
    if not isinstance(texts, Iterable):
        raise UserError(f"translate takes a list of texts, not what is of type {type(texts).__name__}. Give it a list.")
    texts = list(texts)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise UserError(f"Text {number} of {len(texts)} is of type {type(text).__name__}. Give it as str.")
    return texts


class Translator:
    """A trained model, its two tokenizers and its search options."""

    def __init__(
        self, model: TranslationModel, src: Tokenizer, tgt: Tokenizer, config: RunConfig, precision: str = "fp32"
    ) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.search_model = packed(model, precision)
        self.largest_token = find_packing(precision).largest_token
        self.decoder: Callable[[TranslationModel, Tensor], StepFunction] = ModelDecoder
        self.graphs: GraphedDecoders | None = None  # which `load` makes: a few batches alone do not repay them
        self.src_tokenizer = src
        self.tgt_tokenizer = tgt
        self.config = config
        self.precision = precision
        self._workers = Workers("the search", KILLED)
        self.note = ""  # what a person should know about the checkpoint and the precision that were taken

    @classmethod
    def load(
        cls,
        run: str | Path,
        checkpoint: str | None = None,
        device: str = "auto",
        precision: str | None = None,
    ) -> "Translator":
        """The translator of a run's folder.

        checkpoint: `best`, `last`, `average` or `step_N`; by default best, else last. precision: by default what the
        run's config says under `decoding`. Raises UserError where the folder or the checkpoint is not there or damaged.
        """
        if not isinstance(run, str | os.PathLike):
            raise UserError(f"A run is the path of its folder, not of the type {type(run).__name__}. Give its path.")
        folder = open_run(Path(run))
        config, model, src, tgt, taken_checkpoint = load_run(folder, checkpoint)
        place = torch.device(choose_device(device).value)
        set_up(place)
        taken = choose_search_precision(precision or config.decoding.precision, place, config.model.d_model)
        translator = cls(model.to(place), src, tgt, config, taken.value)
        # Experts take rows by what they hold, which no graph can.
        if place.type == "cuda" and config.model.num_experts == 1:
            translator.graphs = GraphedDecoders(partial(CudaGraphs, place))
        notes = [stale_average(folder, taken_checkpoint)]
        if taken.reason != AS_ASKED:
            notes.append(f"precision: {taken.value}, {taken.reason}")
        translator.note = "\n".join(filter(None, notes))
        return translator

    def keep_processes(self) -> AbstractContextManager[None]:
        """Inside `with translator.keep_processes():` the processes of a search on a CPU stay for the next call.

        A search of several batches is then about a tenth of a second faster, but for the first. Meanwhile they take
        memory, and what is changed of the model, the tokenizers or this object does not reach them.
        """
        return self._workers.keep()

    def translate(
        self, texts: Iterable[str], beam_size: int | None = None, length_penalty: float | None = None
    ) -> list[str]:
        """One text for each text, in order; blank for a blank one and for one longer than the model's positions.

        Raises UserError for a string, whose letters would be texts.
        """
        options = search_options(self.config.decoding, beam_size, length_penalty, scored=False)
        return [translated.text for translated in self.translate_lines(texts, options)]

    def translate_lines(self, texts: Iterable[str], options: SearchOptions | None = None) -> list[Translated]:
        """All hypotheses of each text, in order. Sentences of like length are decoded together."""
        texts = list_of_texts(texts)
        results: list[Translated | None] = [None] * len(texts)
        for index, translated in self.translate_as_done(texts, options):
            results[index] = translated
        return [translated for translated in results if translated is not None]

    def translate_as_done(
        self, texts: Iterable[str], options: SearchOptions | None = None
    ) -> Iterator[tuple[int, Translated]]:
        """Pairs of place and result in the order in which they are done, batch by batch, long sentences first."""
        options = options or search_options(self.config.decoding)
        positions = self.config.model.max_len
        texts = list_of_texts(texts)
        ids = self.src_tokenizer.encode_batch(texts)
        to_do = []
        truncated = set()
        for index, row in enumerate(ids):
            too_long = len(row) + 1 > positions
            if too_long and options.too_long is TooLong.SPLIT:
                yield index, self._translate_in_pieces(texts[index], options)
            elif row and (not too_long or options.too_long is TooLong.TRUNCATE):
                ids[index] = row[: positions - 1]
                to_do.append(index)
                if too_long:
                    truncated.add(index)
            else:
                yield index, Translated(texts[index], [], too_long)
        to_do.sort(key=lambda index: len(ids[index]), reverse=True)
        batches = self._batches(to_do, options.batch_size)
        self._refuse_what_never_fits(max(map(len, batches), default=0), options.beam_size)
        rows = [([ids[index] for index in batch], options) for batch in batches]
        with closing(self._workers.map(self._search_texts, rows, self.device)) as results:
            for batch, result in zip(batches, results, strict=True):
                for index, found in zip(batch, result, strict=True):
                    yield index, Translated(texts[index], found, index in truncated)

    def _batches(self, indices: list[int], size: int) -> list[list[int]]:
        """Batches of `size`, in order. On a CPU the last is a share for each core: they end at about one time."""
        batches = [indices[start : start + size] for start in range(0, len(indices), size)]
        if self.device.type != "cpu" or len(batches) < 2:
            return batches
        last = batches.pop()
        share = -(-len(last) // torch.get_num_threads())
        return [*batches, *(last[start : start + share] for start in range(0, len(last), share))]

    def _refuse_what_never_fits(self, num_texts: int, beam_size: int) -> None:
        """Raise UserError where one step's logits alone take more than all of the machine's memory: a system that hands
        out what it has not got would end the process without a word. A GPU says it by itself.
        """
        there = memory_of_machine()
        needed = num_texts * beam_size * self.tgt_tokenizer.vocab_size * _BYTES_OF_LOGIT
        if self.device.type == "cpu" and there is not None and needed > there:
            raise UserError(
                f"A beam of {beam_size:,} takes {gibibytes(needed)} at least with {num_texts:,} texts at once, and "
                f"this machine has {gibibytes(there)}. Lower beam_size or batch_size."
            )

    def _translate_in_pieces(self, text: str, options: SearchOptions) -> Translated:
        """The pieces' best hypotheses side by side, then their second best, and so on; scored as one hypothesis."""

        def num_tokens(texts: list[str]) -> list[int]:
            return [len(row) for row in self.src_tokenizer.encode_batch(texts)]

        pieces = split_text(text, num_tokens, self.config.model.max_len - 1)
        # A single character of more tokens than there are positions is all that can still be too long.
        whole = replace(options, too_long=TooLong.TRUNCATE)
        found = [result.hypotheses for result in self.translate_lines([piece.text for piece in pieces], whole)]
        joined = []
        for ranked in zip(*found, strict=False):
            log_prob = sum(hypothesis.log_prob for hypothesis in ranked)
            tokens = [token for hypothesis in ranked for token in hypothesis.tokens]
            score = log_prob / options.norm(len(tokens) + len(ranked))  # an EOS each
            joined.append(Translation(join_texts([h.text for h in ranked], pieces), score, log_prob, tokens))
        return Translated(text, sorted(joined, key=lambda hypothesis: -hypothesis.score), too_long=True)

    @torch.inference_mode()
    def search(self, rows: list[list[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        """Hypotheses of sources given as ids without EOS, decoded as one batch."""
        assert not self.model.training, "dropout would change the translations"
        src = pad_rows([[*row, EOS_ID] for row in rows]).to(self.device)
        limits = [options.max_length(len(row) + 1, self.config.model.max_len) for row in rows]
        if self.graphs is None:
            return self._search(self.decoder(self.search_model, src), limits, options)
        with self.graphs.lock:
            graphed = self.graphs.begin(self.search_model, src, max(limits), options.beam_size)
            return self._search(graphed or self.decoder(self.search_model, src), limits, options)

    def _search(self, decoder: StepFunction, limits: list[int], options: SearchOptions) -> list[list[Hypothesis]]:
        if options.beam_size == 1:
            rules = options.norm, options.allow_unk, self.device, options.scored, self.largest_token
            return greedy_search(decoder, limits, *rules)
        return beam_search(
            decoder, limits, options.beam_size, options.n_best, options.norm, options.allow_unk, self.device
        )

    def _search_texts(self, rows_and_options: tuple[list[list[int]], SearchOptions]) -> list[list[Translation]]:
        """`search` and what makes text of its ids, which is work for the process that searches."""
        return [[self._to_text(hypothesis) for hypothesis in found] for found in self.search(*rows_and_options)]

    def _to_text(self, hypothesis: Hypothesis) -> Translation:
        return Translation(
            self.tgt_tokenizer.decode(hypothesis.tokens),
            hypothesis.score,
            hypothesis.log_prob,
            self.tgt_tokenizer.tokens(hypothesis.tokens),
        )
