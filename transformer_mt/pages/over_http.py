"""What the pages of a server and of a training have in common where a browser asks for them."""

import socket
from collections.abc import Callable
from typing import Any

import uvicorn

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def answer(application: Any, listener: socket.socket, begun: Callable[[], None], **options: Any) -> None:
    """Answer until Ctrl-C or SIGTERM; then finish what is begun. `begun` is called when the first request can come.
    The options are uvicorn's.
    """

    class Begun(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            begun()

    config = uvicorn.Config(application, ws="none", log_level="error", access_log=False, server_header=False, **options)
    Begun(config).run(sockets=[listener])
