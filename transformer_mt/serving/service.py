"""What the server does, whatever the API: texts in one language to texts in another."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transformer_mt.aligning.aligner import Aligner
from transformer_mt.config.language_names import normal
from transformer_mt.config.schema import RunConfig
from transformer_mt.config.switching_off import NONE
from transformer_mt.decoding.demands import SourceLine, list_of_lines
from transformer_mt.decoding.lines.long_lines import TooLong
from transformer_mt.decoding.search.options import SearchOptions, search_options
from transformer_mt.decoding.translation import Translated, Translation
from transformer_mt.errors import UserError
from transformer_mt.markup.html_translator import HtmlTranslator
from transformer_mt.markup.marked import take_out
from transformer_mt.plurals import counted
from transformer_mt.serving.batcher import Batcher, Kind
from transformer_mt.serving.detection import Detector
from transformer_mt.serving.languages import find
from transformer_mt.serving.refusal import Limits, Refusal
from transformer_mt.serving.search_process import Job
from transformer_mt.serving.texts import translate_texts

MOST_ALTERNATIVES = 9
THREADS = 16  # requests with tags that are worked on at once; each waits for its sentences most of the time


@dataclass(frozen=True)
class Served:
    """A direction of a run that is served: the run's number among all, its name, config and aligner, and changes of its
    search options. A run has no aligner where `why_no_aligner`, a sentence, says why. `direction` is None where the run
    has one alone, and no tag says which.
    """

    number: int
    name: str
    config: RunConfig
    aligner: Aligner | None
    why_no_aligner: str = ""
    decoding: dict[str, Any] = field(default_factory=dict)
    direction: tuple[str, str] | None = None

    @property
    def pair(self) -> tuple[str, str]:
        """Source and target language."""
        return self.direction or (self.config.data.src_lang, self.config.data.tgt_lang)

    @property
    def to(self) -> str | None:
        """The target language, where the model must be told."""
        return self.direction[1] if self.direction else None


@dataclass(frozen=True)
class Request:
    """Texts of one language, to translate by one run. `markup` is html or xml where their tags follow their words.
    `split`: each sentence is searched by itself. `num_hypotheses` of each are wanted.
    """

    texts: list[str]
    served: Served
    num_hypotheses: int = 1
    markup: str = ""
    split: bool = True


class Service:
    """Translates for clients, within the limits."""

    def __init__(self, runs: Sequence[Served], batcher: Batcher, limits: Limits, detector: Detector | None) -> None:
        self.runs = list(runs)
        self.batcher = batcher
        self.limits = limits
        self.num_waiting = 0  # requests
        self._detector = detector
        self._kinds: dict[tuple[int, str | None, int], Kind] = {}
        self._threads = ThreadPoolExecutor(THREADS, "treatments")

    # Languages

    @cached_property
    def by_pair(self) -> dict[tuple[str, str], Served]:
        """The runs by source and target language. One that several spell in several ways has the code of the first."""
        codes: dict[str, str] = {}
        spelt = [[codes.setdefault(normal(code), code) for code in run.pair] for run in self.runs]
        return {(src, tgt): run for (src, tgt), run in zip(spelt, self.runs, strict=True)}

    @cached_property
    def targets(self) -> dict[str, list[str]]:
        """The target languages of each source language."""
        found: dict[str, list[str]] = {}
        for src, tgt in self.by_pair:
            found.setdefault(src, []).append(tgt)
        return found

    @cached_property
    def languages(self) -> list[str]:
        """All languages, sources first."""
        return list(dict.fromkeys([*self.targets, *(tgt for _, tgt in self.by_pair)]))

    def detect(self, text: str, among: Sequence[str] | None = None) -> list[tuple[str, float]]:
        """The languages of a text with their probabilities, the likeliest first. Raises Refusal where they cannot be
        told.
        """
        if self._detector is None:
            reasons = " ".join(dict.fromkeys(run.why_no_aligner for run in self.runs if run.why_no_aligner))
            raise Refusal(400, f"This server cannot detect languages: name the source language. {reasons}".strip())
        if not (found := self._detector.detect(text, None if among is None else map(normal, among))):
            raise Refusal(400, "This server knows no words of these languages: name the source language.")
        return [(self.our(code) or code, probability) for code, probability in found]

    def source_of(self, text: str, target: str) -> tuple[str, float]:
        """The likeliest language of a text that is to be in `target`, and its probability: one that can be translated
        to it, or that itself. Raises Refusal where none is translated to it.
        """
        among = [src for src, tgt in self.by_pair if tgt == target]
        if not among:
            targets = ", ".join(dict.fromkeys(tgt for _, tgt in self.by_pair))
            raise Refusal(400, f"{target} is not supported as a target language. This server translates to {targets}.")
        if self._detector is None and len(among) == 1:
            return among[0], 1.0
        return self.detect(text, [*among, target])[0]

    async def sources_of(self, texts: Sequence[str], target: str, markup: str) -> list[tuple[str, float]]:
        """As `source_of`, for each text. Under `markup`, html or xml, it goes by what stands between the tags."""
        if markup:  # in a thread, because it takes a while of much text
            loop, is_xml = asyncio.get_running_loop(), markup == "xml"
            texts = await loop.run_in_executor(self._threads, lambda: [_shown(text, is_xml) for text in texts])
        return [self.source_of(text, target) for text in texts]

    def our(self, code: str) -> str | None:
        """The language that a client means by a code, if there is one."""
        return find(code, self.languages)

    # Work

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """What happens inside is one request. Raises Refusal where too many are under way, and where it takes too
        long.
        """
        if self.num_waiting >= self.limits.max_waiting:
            raise Refusal(
                429, f"{self.num_waiting:,} requests are under way, and no more are taken at once. Ask again later.", 1
            )
        self.num_waiting += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                yield
        except TimeoutError:
            message = f"The answer was not there within {self.limits.seconds:g} seconds. Send less, or ask again later."
            raise Refusal(503, message, 5) from None
        finally:
            self.num_waiting -= 1

    def kind(self, served: Served, num_hypotheses: int = 1) -> Kind:
        """The kind of search for a direction, of which there is one for each number of hypotheses. Raises Refusal where
        the search cannot find so many.
        """
        key = served.number, served.to, num_hypotheses
        if key not in self._kinds:
            try:
                options = options_of(served, num_hypotheses)
            except UserError as error:
                if (most := _most_hypotheses(served, num_hypotheses)) == 0:
                    raise Refusal(400, str(error)) from None
                least = f"This server finds {counted(most, 'translation')} of a text at most"
                raise Refusal(400, f"{least}, and {num_hypotheses} are asked for. Ask for fewer.") from None
            self._kinds[key] = Kind(served.number, options)
        return self._kinds[key]

    def largest_kind(self, served: Served, most: int) -> Kind:
        """The kind of search for a direction that finds as many hypotheses as it can, up to `most`."""
        return self.kind(served, max(1, _most_hypotheses(served, most)))

    async def translate(self, request: Request) -> list[Translated]:
        """The translations of the texts, in order. Raises Refusal where one has none."""
        kind = self.kind(request.served, request.num_hypotheses)
        if request.markup:
            aligner = self.aligner_of(request.served)
            lines = _Waiting(self, request.served, kind, request.split, asyncio.get_running_loop())
            works = HtmlTranslator(lines, aligner, xml=request.markup == "xml")
            try:
                found = await asyncio.get_running_loop().run_in_executor(
                    self._threads, works.translate_lines, request.texts, kind.options
                )
            finally:
                lines.stop()
        else:
            lines = [SourceLine(text, place=(i,)) for i, text in enumerate(request.texts)]
            found = await self.search_texts(kind, lines, request.split)
        refuse_missing(request.texts, found)
        return found

    async def search_texts(self, kind: Kind, lines: Sequence[SourceLine], split: bool) -> list[Translated]:
        """The translations of plain texts."""

        async def search(sentences: list[SourceLine]) -> list[Translated]:
            return await self.batcher.search(kind, sentences)

        return await translate_texts(lines, search, kind.options, split)

    async def align(self, served: Served, pairs: list[tuple[str, str]]) -> list[Any]:
        """The alignments of pairs of sentences."""
        aligner = self.aligner_of(served)
        return await asyncio.get_running_loop().run_in_executor(self._threads, aligner.align, pairs)

    async def look(self, served: Served, source: str, target: str) -> bytes:
        """Every attention of the run's model on a pair of sentences, as JSON."""
        return await self.batcher.ask(Job("look", served.number, (source, target, served.to)))

    def aligner_of(self, served: Served) -> Aligner:
        """The aligner of a run. Raises Refusal where there is none."""
        if served.aligner is None:
            raise Refusal(400, f"This server cannot align words, nor translate text with tags. {served.why_no_aligner}")
        return served.aligner


def _shown(text: str, is_xml: bool) -> str:
    """What is translated of HTML, or of XML."""
    return " ".join(segment.text for segment in take_out(text, is_xml).segments)


def refuse_missing(texts: Sequence[str], found: Sequence[Translated]) -> None:
    """Raise Refusal where a text that is not blank has no translation."""
    for text, translated in zip(texts, found, strict=True):
        if text.strip() and not translated.hypotheses:
            said = translated.problem or "it is longer than the model takes"
            raise Refusal(400, f"A sentence has no translation: {said}.")


def options_of(served: Served, num_hypotheses: int = 1) -> SearchOptions:
    """The options of a run's search, without constraints, which no request has. Raises UserError where they make no
    sense.
    """
    return search_options(
        served.config.decoding,
        constraints=NONE,
        n_best=num_hypotheses,
        too_long=TooLong.SPLIT,
        scored=num_hypotheses > 1,
        to=served.to,
        **served.decoding,
    )


def _most_hypotheses(served: Served, limit: int) -> int:
    """How many hypotheses, up to `limit`, the search of a direction can find; 0 where its options make no sense."""
    for number in range(limit, 0, -1):
        with suppress(UserError):
            options_of(served, number)
            return number
    return 0


class _Waiting:
    """A translator of lines for a thread that waits while the sentences are searched with those of all others."""

    def __init__(
        self, service: Service, served: Served, kind: Kind, split: bool, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.service = service
        self.config = served.config
        self.precision: str = served.decoding.get("precision") or served.config.decoding.precision  # as asked for
        self.kind = kind
        self.split = split
        self.loop = loop
        self._search: Future[list[Translated]] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Search no more: nobody waits for it. The thread ends with CancelledError, which nobody hears."""
        self._is_stopped = True
        if self._search is not None:
            self._search.cancel()

    def keep_processes(self) -> nullcontext[None]:
        """The server keeps its processes anyway."""
        return nullcontext()

    def translate_lines(self, texts: Any, options: SearchOptions | None = None) -> list[Translated]:
        """As `Translator.translate_lines`."""
        lines = list_of_lines(texts)
        search = self.service.search_texts(self.kind, lines, self.split)
        self._search = asyncio.run_coroutine_threadsafe(search, self.loop)
        if self._is_stopped:  # before there was anything to cancel
            self._search.cancel()
        return self._search.result()


def hypotheses_of(source: str, translated: Translated) -> list[Translation]:
    """The hypotheses of a text; a blank one is its own."""
    return translated.hypotheses if source.strip() else [Translation(source, 0.0, 0.0, [])]
