"""The server's own endpoints, the whole application, and the connections that it is asked over."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from transformer_mt.pages.over_http import answer
from transformer_mt.serving.refusal import Refusal
from transformer_mt.serving.web import deepl, libretranslate, page
from transformer_mt.serving.web.endpoints import DEEPL, LIBRETRANSLATE, Server, route
from transformer_mt.serving.web.parameters import Parameters

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
BACKLOG = 2048  # connections that wait to be accepted
IDLE_SECONDS = 30  # that a client may stay between two requests, take for the head of one, or read nothing of an answer
MOST_HEAD = 2**16  # bytes of the head of a request
OF_FIELD = 32  # what a header counts beside its bytes, as in HTTP/2 (RFC 9113, section 6.5.2)
HTTP_ERRORS = {
    404: "There is nothing here. See docs/serving.md for what there is.",
    405: "This method is not for this address. The header Allow says which are.",
}


def application(server: Server) -> Starlette:
    """The whole server as an ASGI application. Its start takes the event loop for the processes of the search."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        server.service.batcher.pool.attach()
        yield

    async def refuse(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        style = DEEPL if request.url.path.startswith("/v2/") else LIBRETRANSLATE
        server.metrics.answered("other", status, 0.0)
        response = style.refuse(Refusal(status, HTTP_ERRORS.get(status, "The request is refused.")))
        response.headers.update((error.headers if isinstance(error, HTTPException) else None) or {})
        return response

    return Starlette(
        routes=[
            *libretranslate.routes(server),
            *deepl.routes(server),
            route(server, "/metrics", ["GET"], LIBRETRANSLATE, metrics, is_open=True, busy=False),
            *page.routes(server),
        ],
        exception_handlers={HTTPException: refuse},
        lifespan=lifespan,
    )


async def metrics(server: Server, parameters: Parameters) -> Response:
    """What the server did, for Prometheus."""
    batcher, service = server.service.batcher, server.service
    others = {
        "tmt_characters_total": ("counter", "Characters that were to be translated.", server.metrics.num_chars),
        "tmt_sentences_total": ("counter", "Sentences that were translated.", batcher.num_searched),
        "tmt_batches_total": ("counter", "Groups of sentences that were searched together.", batcher.num_batches),
        "tmt_waiting_requests": ("gauge", "Requests that are under way.", service.num_waiting),
        "tmt_waiting_sentences": ("gauge", "Sentences that wait for a process.", batcher.num_waiting),
        "tmt_processes": ("gauge", "Processes that search.", batcher.pool.num_processes),
        "tmt_processes_begun_again_total": (
            "counter", "Processes that were begun again after one had died.", batcher.pool.num_begun_again,
        ),
    }  # fmt: skip
    return Response(server.metrics.text(others).encode(), media_type=PROMETHEUS)


class _Connection(HttpToolsProtocol):
    """A connection that is closed where the head of a request does not come in time, or is too long, and where nothing
    is read of an answer.
    """

    _timer: asyncio.TimerHandle | None = None
    _timer_of_reader: asyncio.TimerHandle | None = None
    _is_in_head = False
    _num_bytes = 0  # of a head that is still coming
    _num_of_fields = 0  # the same of its headers, and of those behind a body
    _read = _to_read_again = b""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # `pause_writing` comes as soon as the system takes no more
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        was_in_head, num_bytes = self._is_in_head, len(data)
        while data and not self.transport.is_closing():
            self._read, self._to_read_again = data, b""
            super().data_received(data)
            data, self._read = self._to_read_again, b""
        if was_in_head and self._is_in_head:  # one that never ends is refused before it has filled the memory
            self._num_bytes += num_bytes
            if self._num_bytes > MOST_HEAD and not self.transport.is_closing():
                self.send_400_response(f"The head of a request has {MOST_HEAD:,} bytes at most. Send less.")
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._timer is None and is_answered and not self.transport.is_closing():
            self._wait_for_head()

    def _should_upgrade(self) -> bool:
        """Whether nothing is begun of a request that asks for another protocol, until `handle_websocket_upgrade`."""
        return True

    def handle_websocket_upgrade(self) -> None:
        """Have a request that asks for another protocol, as Java's clients do for HTTP/2, read again without that: any
        server may pass it over (RFC 9110, section 7.8). The parser takes such a request for one without a body.
        """
        upgrade, method = sys.exception(), self.parser.get_method()
        assert isinstance(upgrade, HttpParserUpgrade)
        if method == b"CONNECT":  # which is nothing else
            self.send_400_response("This server is no proxy.")
            return
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % field for field in self.headers if field[0] != b"upgrade"]
        self.parser = HttpRequestParser(self)  # the one that was may take the request for the last
        self._to_read_again = b"\r\n".join([*lines, b"", self._read[upgrade.args[0] :]])

    def on_message_begin(self) -> None:
        self._is_in_head, self._num_bytes, self._num_of_fields = True, 0, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._num_of_fields += len(name) + len(value) + OF_FIELD
        if self._num_of_fields > MOST_HEAD:
            raise ValueError("the parser stops, and the request is refused")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._wait_no_longer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_longer()
        self._wait_for_no_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        self._wait_for_no_reader()
        super().resume_writing()

    def _wait_for_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._timer_of_reader = self.loop.call_later(IDLE_SECONDS, self._close_unless_read, left)

    def _wait_for_no_reader(self) -> None:
        if self._timer_of_reader is not None:
            self._timer_of_reader.cancel()
            self._timer_of_reader = None

    def _close_unless_read(self, left: int) -> None:
        """End the connection where as much is left to be sent as before; a slow reader is waited for."""
        if self.transport.get_write_buffer_size() >= left:
            self.transport.abort()
        else:
            self._wait_for_reader()

    def _wait_for_head(self) -> None:
        self._timer = self.loop.call_later(IDLE_SECONDS, self.transport.close)

    def _wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def run(server: Server, listener: socket.socket, begun: Callable[[], None]) -> None:
    """Answer until Ctrl-C or SIGTERM; then finish what is begun. `begun` is called when the first request can come."""
    answer(
        application(server), listener, begun, http=_Connection, lifespan="on", backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS, timeout_graceful_shutdown=int(server.service.limits.seconds) + 5,
    )  # fmt: skip
