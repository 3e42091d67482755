"""The page for people at `/`, and the endpoints that only it needs."""

from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from transformer_mt.aligning.alignment import Alignment
from transformer_mt.config.language_names import name_of
from transformer_mt.decoding.demands import SourceLine
from transformer_mt.decoding.lines.long_lines import spaces_before
from transformer_mt.pages.over_http import HEADERS
from transformer_mt.serving.languages import direction_of
from transformer_mt.serving.service import refuse_missing
from transformer_mt.serving.texts import Sentences
from transformer_mt.serving.web.endpoints import JSON, LIBRETRANSLATE, Handler, Server, route
from transformer_mt.serving.web.libretranslate import AUTO, known, served_of
from transformer_mt.serving.web.parameters import Parameters

FOLDER = Path(__file__).with_name("page_files")
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
NUM_ALTERNATIVES = 4


def routes(server: Server) -> list[Route]:
    """The routes of the page."""
    files = [
        route(server, path, ["GET"], LIBRETRANSLATE, _file(name, kind), is_open=True, busy=False)
        for path, (name, kind) in FILES.items()
    ]
    return [
        *files,
        route(server, "/page/settings", ["GET"], LIBRETRANSLATE, settings, is_open=True, busy=False),
        route(server, "/page/translate", ["POST"], LIBRETRANSLATE, translate),
        route(server, "/page/attention", ["POST"], LIBRETRANSLATE, attention),
    ]


def _file(name: str, kind: str) -> Handler:
    content = (FOLDER / name).read_bytes()

    async def send(server: Server, parameters: Parameters) -> Response:
        return Response(content, headers=HEADERS, media_type=f"{kind}; charset=utf-8")

    return send


async def settings(server: Server, parameters: Parameters) -> dict[str, Any]:
    """What the page shows before anything is typed."""
    service = server.service
    return {
        "languages": {code: {"name": name_of(code), "dir": direction_of(code)} for code in service.languages},
        "pairs": [list(pair) for pair in service.by_pair],
        "max_chars": service.limits.max_chars,
        "needs_key": server.needs_key,
    }


async def translate(server: Server, parameters: Parameters) -> dict[str, Any]:
    """`q` sentence by sentence: its translations, the best first, and which words of the best translate which."""
    text = parameters.text("q")
    service = server.service
    server.metrics.num_chars += service.limits.check([text])
    tgt = known(service, parameters.word("target"))
    source = parameters.word("source")
    src = service.source_of(text, tgt)[0] if source == AUTO else known(service, source)
    if src == tgt:
        return {
            "source": src,
            "sentences": [{"source": text, "space": "", "target_space": "", "hypotheses": []}],
            "space": "",
        }
    served = served_of(server.service, src, tgt)
    sentences = Sentences.of(text)
    lines = [SourceLine(piece.text, place=(0, i)) for i, piece in enumerate(sentences.pieces)]
    kind = service.largest_kind(served, NUM_ALTERNATIVES)
    found = await service.batcher.search(kind, lines)
    refuse_missing([line.text for line in lines], found)
    pairs = [(one.source, h.text) for one in found for h in one.hypotheses]
    alignments = iter(await service.align(served, pairs) if served.aligner is not None else [None] * len(pairs))
    spaces = spaces_before([next((h.text for h in one.hypotheses), "") for one in found], sentences.pieces)
    shown = [
        {
            "source": piece.text,
            "space": piece.space_before,
            "target_space": space if i else piece.space_before,
            "hypotheses": [{"text": h.text, **_links(next(alignments))} for h in one.hypotheses],
        }
        for i, (piece, one, space) in enumerate(zip(sentences.pieces, found, spaces, strict=True))
    ]
    return {"source": src, "sentences": shown, "space": sentences.space_after}


def _links(alignment: Alignment | None) -> dict[str, Any]:
    """Where the words stand in both texts, in characters, and which translate which."""
    if alignment is None:
        return {"src_words": [], "tgt_words": [], "links": []}
    sides = ([[word.start, word.end] for word in words] for words in (alignment.src_words, alignment.tgt_words))
    src, tgt = sides
    return {"src_words": src, "tgt_words": tgt, "links": alignment.links}


async def attention(server: Server, parameters: Parameters) -> Response:
    """Every attention of the model on a sentence `q` and its translation `translation`."""
    text, translation = parameters.text("q"), parameters.text("translation")
    server.service.limits.check([text, translation])
    src, tgt = (known(server.service, parameters.word(name)) for name in ("source", "target"))
    found = await server.service.look(served_of(server.service, src, tgt), text, translation)
    return Response(b'{"attentions":%s}' % found, media_type=JSON)
