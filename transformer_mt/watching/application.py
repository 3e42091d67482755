"""The page over HTTP: one page, its style and script, its parts as they are now, and the pictures."""

import html
import re
import socket
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer_mt.pages import charts, html_text
from transformer_mt.pages.over_http import HEADERS, answer
from transformer_mt.watching.live_run import LiveRun

FOLDER = Path(__file__).with_name("page_files")
NAMES_OF_THIS_MACHINE = ("127.0.0.1", "localhost", "::1", "[::1]")


def application(run: LiveRun, host: str) -> Starlette:
    """The whole of it. Where it listens on this machine alone, it answers to this machine's names alone: a page from
    elsewhere cannot read it through a name that leads here.
    """
    style = "\n".join(
        (html_text.STYLE.read_text(encoding="utf-8"), charts.STYLE, (FOLDER / "watch.css").read_text(encoding="utf-8"))
    )
    template = (FOLDER / "index.html").read_text(encoding="utf-8")
    script = (FOLDER / "watch.js").read_text(encoding="utf-8")

    def page(request: Request) -> Response:
        filling = {"name": html.escape(run.run.path.name), **run.look().parts}
        text = re.sub("@([A-Z]+)@", lambda found: filling[found[1].lower()], template)
        return Response(text, headers=HEADERS, media_type="text/html; charset=utf-8")

    def parts(request: Request) -> Response:
        look = run.look()
        if request.query_params.get("have") == look.version:
            return Response(status_code=204, headers=HEADERS)
        return JSONResponse({"version": look.version, "parts": look.parts}, headers=HEADERS)

    def picture(request: Request) -> Response:
        content = run.picture(request.query_params.get("name", ""))
        if content is None:
            return Response("There is no such picture.", 404, HEADERS)
        return Response(content, headers=HEADERS, media_type="image/png")

    def file(content: str, kind: str) -> Callable[[Request], Response]:
        return lambda request: Response(content, headers=HEADERS, media_type=f"{kind}; charset=utf-8")

    routes = [
        Route("/", page),
        Route("/parts", parts),
        Route("/picture", picture),
        Route("/watch.css", file(style, "text/css")),
        Route("/watch.js", file(script, "text/javascript")),
    ]
    names = [host, *NAMES_OF_THIS_MACHINE] if ip_address(host).is_loopback else ["*"]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names)])


def run_page(run: LiveRun, listener: socket.socket, begun: Callable[[], None]) -> None:
    """Answer until Ctrl-C or SIGTERM. `begun` is called when the first request can come."""
    app = application(run, listener.getsockname()[0])
    answer(app, listener, begun, lifespan="off", timeout_graceful_shutdown=2)
