"""From a request to an answer: keys, limits, counts, and refusals in the style of each API."""

import asyncio
import hmac
import json
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from transformer_mt.errors import UserError
from transformer_mt.serving.refusal import Refusal
from transformer_mt.serving.service import Service
from transformer_mt.serving.web.metrics import Metrics
from transformer_mt.serving.web.parameters import LONGEST_WORD, Parameters, parameters_of

JSON = "application/json"


@dataclass(frozen=True)
class Server:
    """What all endpoints share. With an `api_key` those that translate want it."""

    service: Service
    metrics: Metrics
    api_key: str | None = None

    @property
    def needs_key(self) -> bool:
        return self.api_key is not None


Handler = Callable[[Server, Parameters], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class Style:
    """How an API says things: the name of the sentence that says what is wrong, and of the parameter that is a key."""

    message: str
    key: str

    def answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
        """A value as JSON."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return Response(text.encode("utf-8", "replace"), status, headers, JSON)

    def refuse(self, refusal: Refusal) -> Response:
        """The answer for what the server does not do."""
        headers = {} if refusal.seconds is None else {"Retry-After": str(refusal.seconds)}
        return self.answer({self.message: refusal.message}, refusal.status, headers)


LIBRETRANSLATE = Style("error", "api_key")
DEEPL = Style("message", "auth_key")
CLIENT_GONE = 499  # the status that nginx's log has for it; nobody receives it
FAILED = Refusal(500, "The server failed at this request. Its operator finds out more on its standard error.")


def route(
    server: Server,
    path: str,
    methods: list[str],
    style: Style,
    handler: Handler,
    is_open: bool = False,
    busy: bool = True,
) -> Route:
    """A route that answers by what the handler returns: a value for JSON, or an answer.

    `is_open`: it needs no key and has no parameters, so nothing is read of what comes with the request. `busy`: it
    counts among the requests that are under way, and keeps to the time limit.
    """

    async def answer(request: Request) -> Response:
        begun = time.perf_counter()
        try:
            parameters = Parameters({}) if is_open else await parameters_of(request, server.service.limits)
            if not is_open:
                check_key(server, style, request, parameters)
            if busy:
                async with server.service.admitted():
                    value = await unless_gone(request, handler(server, parameters))
            else:
                value = await handler(server, parameters)
            response = value if isinstance(value, Response) else style.answer(value)
        except Refusal as refusal:
            response = style.refuse(refusal)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            response = style.refuse(FAILED)
        server.metrics.answered(path, response.status_code, time.perf_counter() - begun)
        return response

    return Route(path, answer, methods=methods)


async def unless_gone(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of some work for a request that has been read. Where its client goes before that, the work is
    cancelled, so that those who still wait do not wait for it too, and Refusal is raised, for the counts.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal(CLIENT_GONE, "The client went before it had its answer.")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    """Ends when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def check_key(server: Server, style: Style, request: Request, parameters: Parameters) -> None:
    """Raise Refusal where the server has a key and the request another, or none. The key stands in the header
    Authorization, or among the parameters.
    """
    if server.api_key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("deepl-auth-key", "bearer"):
        # A header is bytes: curl sends them as its terminal has them, which is UTF-8, and Python's clients as Latin-1.
        read = [given, given.encode("latin-1").decode("utf-8", "replace")]
    else:
        read = [parameters.word(style.key, "")]
    key = server.api_key.encode()
    if not any(hmac.compare_digest(one.strip().encode("utf-8", "replace"), key) for one in read):
        is_given = any(one.strip() for one in read)
        wrong = "Invalid API key. Ask the operator of this server for one."
        raise Refusal(403, wrong if is_given else "A key is needed.")


def key_from(text: str) -> str:
    """The key that an operator gives: what a file or a shell adds at its edges is none of it. Raises UserError for one
    that is blank, and for one that no client could send.
    """
    key = text.strip()
    if not key:
        raise UserError("--api-key is blank, and anybody could guess that. Give a key, or leave it out.")
    if not key.isprintable():
        raise UserError("--api-key has a line end, or another character that nobody can send. Give one line of text.")
    if len(key) > LONGEST_WORD:
        raise UserError(f"--api-key has {len(key):,} characters, and {LONGEST_WORD} are taken of a client. Give fewer.")
    return key
