"""LibreTranslate's API."""

import asyncio
from typing import Any

from starlette.routing import Route

from transformer_mt.config.language_names import name_of
from transformer_mt.serving.refusal import Refusal
from transformer_mt.serving.service import MOST_ALTERNATIVES, Request, Served, Service, hypotheses_of
from transformer_mt.serving.web.endpoints import LIBRETRANSLATE, Server, route
from transformer_mt.serving.web.parameters import Parameters

AUTO = "auto"


def routes(server: Server) -> list[Route]:
    """The routes of the API."""
    return [
        route(server, "/translate", ["GET", "POST"], LIBRETRANSLATE, translate),
        route(server, "/detect", ["GET", "POST"], LIBRETRANSLATE, detect),
        route(server, "/languages", ["GET"], LIBRETRANSLATE, languages, is_open=True, busy=False),
        route(server, "/health", ["GET"], LIBRETRANSLATE, health, is_open=True, busy=False),
        route(server, "/frontend/settings", ["GET"], LIBRETRANSLATE, settings, is_open=True, busy=False),
    ]


async def translate(server: Server, parameters: Parameters) -> dict[str, Any]:
    """`q`, a text or a list, from `source` to `target`; with `alternatives` more translations of each."""
    texts, is_list = parameters.texts("q")
    source, target = parameters.word("source"), parameters.word("target")
    format = parameters.word("format", "text")
    if format not in ("text", "html"):
        raise Refusal(400, f"{format} format is not supported. Give text or html.")
    alternatives = parameters.number("alternatives", 0, MOST_ALTERNATIVES)
    markup = "html" if format == "html" else ""
    service = server.service
    server.metrics.num_chars += service.limits.check(texts)
    tgt = known(service, target)
    if source == AUTO:
        detected = await service.sources_of(texts, tgt, markup)
    else:
        detected = [(known(service, source), 1.0)] * len(texts)
    found = await translate_from(service, texts, [code for code, _ in detected], tgt, markup, alternatives)
    answer: dict[str, Any] = {"translatedText": [one[0] for one in found]}
    if source == AUTO:
        answer["detectedLanguage"] = [_detected(*one) for one in detected]
    if alternatives:
        answer["alternatives"] = [one[1:] for one in found]
    return answer if is_list else {name: values[0] for name, values in answer.items()}


async def translate_from(
    service: Service,
    texts: list[str],
    sources: list[str],
    tgt: str,
    markup: str,
    alternatives: int = 0,
    split: bool = True,
) -> list[list[str]]:
    """For each text, of a language of its own, its translation and alternatives to it, in order. A text that is in the
    target language already is its own translation.
    """
    found: list[list[str]] = [[text] for text in texts]
    works = []
    for src in dict.fromkeys(sources):
        if src == tgt:
            continue
        served = served_of(service, src, tgt)
        places = [i for i, of_text in enumerate(sources) if of_text == src]
        works.append((places, Request([texts[i] for i in places], served, alternatives + 1, markup, split)))
    searches = [asyncio.create_task(service.translate(request)) for _, request in works]
    try:
        results = await asyncio.gather(*searches)
    finally:
        for search in searches:  # where one is refused, nobody waits for the others
            search.cancel()
    for (places, request), translations in zip(works, results, strict=True):
        for place, text, translated in zip(places, request.texts, translations, strict=True):
            found[place] = list(dict.fromkeys(h.text for h in hypotheses_of(text, translated)))
    return found


async def detect(server: Server, parameters: Parameters) -> Any:
    """The languages of `q`, the likeliest first."""
    texts, is_list = parameters.texts("q")
    server.service.limits.check(texts)
    found = [[_detected(*one) for one in server.service.detect(text)] for text in texts]
    return found if is_list else found[0]


async def languages(server: Server, parameters: Parameters) -> list[dict[str, Any]]:
    """All source languages with the target languages of each."""
    return [
        {"code": code, "name": name_of(code), "targets": sorted(server.service.targets.get(code, []))}
        for code in server.service.languages
    ]


async def health(server: Server, parameters: Parameters) -> dict[str, str]:
    """Whether the server can translate."""
    if server.service.batcher.pool.is_lost:
        raise Refusal(
            503, "No process is left to translate, and none could be begun. The server's standard error says why."
        )
    return {"status": "ok"}


async def settings(server: Server, parameters: Parameters) -> dict[str, Any]:
    """What a page or a program must know to ask."""
    src, tgt = server.service.runs[0].pair
    limits = server.service.limits
    return {
        "apiKeys": server.needs_key,
        "keyRequired": server.needs_key,
        "charLimit": limits.max_chars,
        "suggestions": False,
        "supportedFilesFormat": [],
        "frontendTimeout": 500,
        "language": {"source": {"code": src, "name": name_of(src)}, "target": {"code": tgt, "name": name_of(tgt)}},
    }


def known(service: Service, code: str) -> str:
    """The language of ours. Raises Refusal where it is none."""
    found = service.our(code)
    if found is None:
        raise Refusal(400, f"{code} is not supported. This server has {', '.join(service.languages)}.")
    return found


def served_of(service: Service, src: str, tgt: str) -> Served:
    """The run of a pair of languages. Raises Refusal where none is served."""
    served = service.by_pair.get((src, tgt))
    if served is None:
        raise Refusal(400, f"{name_of(tgt)} ({tgt}) is not available as a target language from {name_of(src)} ({src}).")
    return served


def _detected(code: str, probability: float) -> dict[str, Any]:
    return {"confidence": round(100 * probability, 1), "language": code}
